"""Machines without GPUs: each rank is a process on CPUs, as Gloo and MPI run them.

In a cluster file `node.gpu = "CPU"` says so, and `node.gpus` how many ranks a machine runs:

    nodes = 4
    [node]
    gpu = "CPU"
    gpus = 8
    [node.nics]
    count = 1
    rate = "25Gbit/s"

Ranks of one machine talk over loopback or shared memory, those of several over its NICs by TCP.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

from commsim.topology.cluster import Cluster, Fabric
from commsim.topology.node import Cpu, Gpu, Nic, NodeLink, NodeTopology
from commsim.topology.parts import GpuPart
from commsim.topology.spec import ClusterSpec, FabricSpec, NodeSpec
from commsim.units import BytesPerSecond

CPU = "CPU"
KEYS = ("gpu", "gpus", "nics")
NIC_KEYS = ("count", "rate")
LIBRARIES = ("gloo", "mpi")


def on_cpus(node: NodeSpec) -> bool:
    """Whether a cluster file asks for ranks that are processes on CPUs."""
    return (node.gpu or "").strip().upper() == CPU


def problems(spec: ClusterSpec) -> Iterator[tuple[str, str]]:
    """(key, problem) of a file that asks for ranks on CPUs."""
    node, nics = spec.node, spec.node.nics
    if node.gpus is None:
        yield "node.gpus", "missing, expected how many ranks a machine runs, such as 8"
    for key in sorted(node.model_fields_set - set(KEYS)):
        yield f"node.{key}", f'says nothing of ranks on CPUs (node.gpu = "{CPU}"); leave it out'
    if nics is not None:
        for key in sorted(nics.model_fields_set - set(NIC_KEYS)):
            yield f"node.nics.{key}", "says nothing of ranks on CPUs; leave it out"
        if nics.rate is None:
            yield "node.nics.rate", 'missing, expected a rate such as "25Gbit/s"'
    elif spec.nodes > 1:
        yield (
            "node.nics",
            'missing, expected count and rate of each machine, such as 1 and "25Gbit/s"',
        )
    if spec.fabric and spec.fabric.kind == "cabled":
        yield "fabric.kind", 'expected a fabric such as "fat-tree" for ranks on CPUs, got "cabled"'
    if spec.library is not None and spec.library.partition("@")[0] not in LIBRARIES:
        yield "library", f'expected "gloo" or "mpi" for ranks on CPUs, got "{spec.library}"'


def cluster(spec: ClusterSpec) -> Cluster:
    """The cluster of a checked file; what it leaves open is in the notes."""
    stated = spec.fabric or FabricSpec.model_validate({})
    given = stated.model_fields_set
    notes = [] if spec.library else ["library: not stated, gloo taken"]
    kind = stated.kind if "kind" in given else "single-switch"
    transport = stated.transport if "transport" in given else "tcp"
    if spec.nodes > 1:
        taken = {"kind": kind, "transport": transport}
        notes += [
            f'fabric.{k}: not stated, "{v}" taken' for k, v in taken.items() if k not in given
        ]
    nics = spec.node.nics
    rates = (nics.rate or 0.0,) * nics.count if nics else ()
    return Cluster(
        name=spec.name, nodes=spec.nodes, node=machine(spec.node.gpus or 1, rates),
        fabric=Fabric(kind=kind, transport=transport, oversubscription=stated.oversubscription),
        gpu=GpuPart(name=CPU, vendor="none"), interconnect="pcie-host",
        default_library=spec.library or "gloo", notes=tuple(notes),
        price_per_gpu_hour=spec.price_per_gpu_hour,
    )  # fmt: skip


@lru_cache(maxsize=256)
def machine(n_ranks: int, nics: tuple[BytesPerSecond, ...] = ()) -> NodeTopology:
    """A machine of `n_ranks` processes, with NICs of these rates. Its memory is no link: what a
    process copies is its own time."""
    ranks = [f"rank{i}" for i in range(n_ranks)]
    cards = [f"nic{i}" for i in range(len(nics))]
    return NodeTopology(
        gpus=tuple(Gpu(name=name, index=i, part=CPU) for i, name in enumerate(ranks)),
        cpus=(Cpu(name="cpu", numa=0, arch="", vendor="other"),),
        nics=tuple(
            Nic(name=name, index=i, card=name, rate=rate, gpudirect=False)
            for i, (name, rate) in enumerate(zip(cards, nics, strict=True))
        ),
        links=tuple(NodeLink(source=name, target="cpu", kind="pcie", bandwidth=math.inf)
                    for name in (*ranks, *cards)),
    )  # fmt: skip


@lru_cache(maxsize=256)
def loopback(n_ranks: int, library: str) -> Cluster:
    """One machine of `n_ranks` processes; `library` ("gloo", "mpi") is its own."""
    return Cluster(
        name="this machine", nodes=1, fabric=Fabric(kind="single-switch", transport="tcp"),
        node=machine(n_ranks), gpu=GpuPart(name=CPU, vendor="none"), interconnect="pcie-host",
        default_library=library,
    )  # fmt: skip
