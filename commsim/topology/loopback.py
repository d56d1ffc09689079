"""One machine's processes on its CPUs, which talk over loopback or shared memory."""

from __future__ import annotations

import math
from functools import lru_cache

from commsim.topology.cluster import Cluster, Fabric
from commsim.topology.node import Cpu, Gpu, NodeLink, NodeTopology
from commsim.topology.parts import GpuPart


@lru_cache(maxsize=256)
def loopback(n_ranks: int, library: str) -> Cluster:
    """One machine of `n_ranks` processes without GPUs; `library` ("gloo", "mpi") is its own."""
    ranks = [f"rank{i}" for i in range(n_ranks)]
    return Cluster(
        name="this machine", nodes=1, fabric=Fabric(kind="single-switch", transport="tcp"),
        node=NodeTopology(
            gpus=tuple(Gpu(name=name, index=i, part="CPU") for i, name in enumerate(ranks)),
            cpus=(Cpu(name="cpu", numa=0, arch="", vendor="other"),),
            links=tuple(NodeLink(source=name, target="cpu", kind="pcie", bandwidth=math.inf)
                        for name in ranks),
        ),
        gpu=GpuPart(name="CPU"), interconnect="pcie-host", default_library=library,
    )  # fmt: skip
