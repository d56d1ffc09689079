"""Machines and clusters for these tests, written out by hand."""

from __future__ import annotations

from commsim.topology.cluster import Cluster, Fabric
from commsim.topology.node import (
    Cpu,
    Gpu,
    Nic,
    NodeLink,
    NodeTopology,
    NvSwitch,
    PcieSwitch,
)
from commsim.topology.parts import GpuPart

GB = 1e9


def cpus(n: int) -> tuple[Cpu, ...]:
    return tuple(Cpu(name=f"cpu{i}", numa=i, arch="x86_64", vendor="intel") for i in range(n))


def link(source: str, target: str, kind: str, bandwidth: float) -> NodeLink:
    return NodeLink(source=source, target=target, kind=kind, bandwidth=bandwidth * GB)


def gpus(n: int) -> tuple[Gpu, ...]:
    return tuple(Gpu(name=f"gpu{i}", index=i, part="H100-SXM5-80GB") for i in range(n))


def nics(n: int, rate: float, *, gpudirect: bool = True) -> tuple[Nic, ...]:
    return tuple(
        Nic(name=f"nic{i}", index=i, card=f"nic{i}", rate=rate * GB, gpudirect=gpudirect)
        for i in range(n)
    )


def hgx(
    n: int = 8, *, nic_rate: float = 50.0, pcie: float = 64.0, gpudirect: bool = True
) -> NodeTopology:
    """GPUs on an NVSwitch (450 GB/s each), one NIC and one GPU per PCIe switch, two sockets."""
    links = [link("cpu0", "cpu1", "socket", 40)]
    for i in range(n):
        links += [
            link(f"gpu{i}", "nvswitch", "nvlink", 450),
            link(f"gpu{i}", f"sw{i}", "pcie", pcie),
            link(f"nic{i}", f"sw{i}", "pcie", pcie),
            link(f"sw{i}", f"cpu{2 * i // n}", "pcie", pcie),
        ]
    return NodeTopology(
        gpus=gpus(n),
        nics=nics(n, nic_rate, gpudirect=gpudirect),
        cpus=cpus(2),
        switches=tuple(PcieSwitch(name=f"sw{i}") for i in range(n)),
        nvswitch=NvSwitch(),
        links=tuple(links),
    )


def desktop(
    *,
    n: int = 4,
    n_nics: int = 1,
    nic_rate: float = 12.5,
    gpudirect: bool = True,
    peers: bool | None = False,
) -> NodeTopology:
    """GPUs behind one switch (x16 Gen4 each and upwards), NICs on the CPU."""
    links = [link(f"gpu{i}", "sw0", "pcie", 32) for i in range(n)]
    links += [link("sw0", "cpu0", "pcie", 32)]
    links += [link(f"nic{i}", "cpu0", "pcie", 16) for i in range(n_nics)]
    return NodeTopology(
        gpus=gpus(n),
        nics=nics(n_nics, nic_rate, gpudirect=gpudirect),
        cpus=cpus(1),
        switches=(PcieSwitch(name="sw0"),),
        links=tuple(links),
        gpu_peer_access=peers,
    )


def mesh(n: int = 4, *, nic_rate: float = 25.0) -> NodeTopology:
    """GPUs with 100 GB/s of NVLink between every two, one NIC on the CPU for every two of them."""
    links = [link(f"gpu{a}", f"gpu{b}", "nvlink", 100) for a in range(n) for b in range(a + 1, n)]
    links += [link(f"gpu{i}", "cpu0", "pcie", 32) for i in range(n)]
    links += [link(f"nic{i}", "cpu0", "pcie", 32) for i in range(n // 2)]
    return NodeTopology(gpus=gpus(n), nics=nics(n // 2, nic_rate), cpus=cpus(1), links=tuple(links))


def cluster(
    node: NodeTopology,
    nodes: int,
    *,
    kind: str = "rail-optimized",
    oversubscription: float = 1.0,
    transport: str = "infiniband",
    domain: int = 0,
) -> Cluster:
    return Cluster(
        name="test",
        nodes=nodes,
        node=node,
        fabric=Fabric(
            kind=kind,
            transport=transport,
            oversubscription=oversubscription,
            scale_up_domain=domain,
        ),
        gpu=GpuPart(name="test"),
        interconnect="nvswitch",
    )


def ranks(*parts: range) -> tuple[int, ...]:
    return tuple(r for part in parts for r in part)
