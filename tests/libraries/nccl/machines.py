"""Machines of the tests, written down as the PCIe groups, NVLinks and CPUs that make them up."""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from pathlib import Path

from commsim.libraries.nccl.communicator import Domains, communicator
from commsim.libraries.nccl.graph import Communicator
from commsim.topology.node import Cpu, Gpu, Nic, NodeLink, NodeTopology, NvSwitch, PcieSwitch

INTEL_BROADWELL = ("x86_64", "intel", 6, 79)
INTEL_ICELAKE = ("x86_64", "intel", 6, 106)
INTEL_SAPPHIRE = ("x86_64", "intel", 6, 143)
INTEL_EMERALD = ("x86_64", "intel", 6, 207)
AMD_ROME = ("x86_64", "amd", 23, 49)
GRACE = ("arm64", "arm", 0, 0)

# GPU pairs of the hybrid cube mesh and how many NVLinks join them
CUBE_MESH = {
    (0, 1): 1, (0, 2): 1, (0, 3): 2, (0, 4): 2, (1, 2): 2, (1, 3): 1, (1, 5): 2,
    (2, 3): 2, (2, 6): 1, (3, 7): 1, (4, 5): 1, (4, 6): 1, (4, 7): 2,
    (5, 6): 2, (5, 7): 1, (6, 7): 2,
}  # fmt: skip


@dataclass(frozen=True)
class Group:
    """What hangs on one CPU, under a PCIe switch of its own or (switch=False) on root ports."""

    cpu: int
    gpus: tuple[int, ...] = ()
    nics: tuple[int, ...] = ()
    switch: bool = True


def machine(
    groups: list[Group],
    capability: int,
    cpu: tuple[str, str, int, int],
    *,
    gen: float = 32.0,
    rate_gbit: float = 400,
    switched: int = 0,
    pairs: dict[tuple[int, int], int] | None = None,
    numa: list[int] | None = None,
    c2c: float = 0.0,
    nic_gen: float = 0.0,
    nic_lanes: int = 16,
    gpudirect: bool = True,
    nic_gpudirect: bool = True,
    peer_access: bool | None = None,
) -> NodeTopology:
    """gen: PCIe GT/s per lane; switched: NVLinks of each GPU to the NVSwitch; pairs: NVLinks
    between GPUs; numa: NUMA numbers of the CPUs in order; c2c: bytes/s between each GPU and its
    CPU.
    """
    count = max(g.cpu for g in groups) + 1
    names = numa or list(range(count))
    arch, vendor, family, model = cpu
    cpus = tuple(
        Cpu(name=f"cpu{n}", numa=n, arch=arch, vendor=vendor, family=family, model=model)
        for n in names
    )
    links: list[NodeLink] = []
    gpus: list[Gpu] = []
    nics: list[Nic] = []
    switches: list[PcieSwitch] = []
    per_link = 50e9 if capability >= 100 else 25e9

    def pcie(child: str, parent: str, speed: float, lanes: int = 16) -> None:
        rate = speed * 1e9 * lanes * 128 / 130 / 8
        links.append(
            NodeLink(
                source=child, target=parent, kind="pcie", bandwidth=rate, width=lanes, speed=speed
            )
        )

    for at, group in enumerate(groups):
        parent = cpus[group.cpu].name
        if group.switch:
            switches.append(PcieSwitch(name=f"switch{at}"))
            pcie(f"switch{at}", parent, gen)
            parent = f"switch{at}"
        for g in group.gpus:
            gpus.append(
                Gpu(name=f"gpu{g}", index=g, part="", capability=capability, gpudirect=gpudirect)
            )
            pcie(f"gpu{g}", parent, gen)
            if c2c:
                links.append(
                    NodeLink(
                        source=f"gpu{g}",
                        target=cpus[group.cpu].name,
                        kind="c2c",
                        bandwidth=c2c,
                        width=5,
                    )
                )
        for n in group.nics:
            nics.append(
                Nic(
                    name=f"mlx5_{n}",
                    index=n,
                    card=f"card{n}",
                    rate=rate_gbit * 1e9 / 8,
                    gpudirect=nic_gpudirect,
                )
            )
            pcie(f"card{n}", parent, nic_gen or gen, nic_lanes)
    for g in sorted(x.index for x in gpus):
        if switched:
            links.append(
                NodeLink(
                    source=f"gpu{g}",
                    target="nvswitch",
                    kind="nvlink",
                    bandwidth=switched * per_link,
                    width=switched,
                )
            )
    for (a, b), n in (pairs or {}).items():
        links.append(
            NodeLink(
                source=f"gpu{a}", target=f"gpu{b}", kind="nvlink", bandwidth=n * per_link, width=n
            )
        )
    return NodeTopology(
        gpus=tuple(sorted(gpus, key=lambda g: g.index)),
        nics=tuple(sorted(nics, key=lambda n: n.index)),
        cpus=cpus,
        switches=tuple(switches),
        nvswitch=NvSwitch() if switched else None,
        links=tuple(links),
        gpu_peer_access=peer_access,
    )


def _two_each(cpus: list[int]) -> list[Group]:
    """Switches with two GPUs and two NICs, on these CPUs in order; GPUs numbered as they come."""
    return [Group(c, (2 * i, 2 * i + 1), (2 * i, 2 * i + 1)) for i, c in enumerate(cpus)]


def _own_switch(count: int) -> list[Group]:
    """GPU i and NIC i under a switch of their own, the first half on CPU 0."""
    return [Group(int(i >= count / 2), (i,), (i,)) for i in range(count)]


def dgx_1v() -> NodeTopology:
    groups = [Group(i // 2, (2 * i, 2 * i + 1), (i,)) for i in range(4)]
    return machine(groups, 70, INTEL_BROADWELL, gen=8.0, rate_gbit=100, pairs=CUBE_MESH)


def v100_nvswitch() -> NodeTopology:
    return machine(
        _two_each([0, 0, 1, 1]), 70, INTEL_BROADWELL, gen=16.0, rate_gbit=100, switched=6
    )


def dgx_a100() -> NodeTopology:
    groups = [
        Group(0, (2, 3), (2, 3)),
        Group(1, (0, 1), (0, 1)),
        Group(2, (6, 7), (6, 7)),
        Group(3, (4, 5), (4, 5)),
    ]
    return machine(groups, 80, AMD_ROME, gen=16.0, rate_gbit=200, switched=12, numa=[1, 3, 5, 7])


def dgx_h100() -> NodeTopology:
    return machine(_own_switch(8), 90, INTEL_SAPPHIRE, switched=18)


def h100_200g() -> NodeTopology:
    return machine(_own_switch(8), 90, INTEL_SAPPHIRE, switched=18, rate_gbit=200)


def hgx_b200() -> NodeTopology:
    return machine(_own_switch(8), 100, INTEL_EMERALD, switched=18)


def b300_class() -> NodeTopology:
    return machine(_own_switch(8), 100, INTEL_EMERALD, switched=18, gen=64.0, rate_gbit=800)


def gb200_tray() -> NodeTopology:
    groups = [Group(i, (2 * i, 2 * i + 1), (2 * i, 2 * i + 1), switch=False) for i in range(2)]
    return machine(groups, 100, GRACE, switched=18, c2c=5 * 44.712e9)


def one_gpu(capability: int, gen: float, rate_gbit: float) -> NodeTopology:
    return machine([Group(0, (0,), (0,))], capability, INTEL_SAPPHIRE, gen=gen, rate_gbit=rate_gbit)


def h100_sxm(count: int) -> NodeTopology:
    return machine(_own_switch(count), 90, INTEL_SAPPHIRE, switched=18)


def a100_bridges(cpu: tuple[str, str, int, int], sockets: int, nics: bool = True) -> NodeTopology:
    """Four A100 PCIe on root ports, NVLink bridges between 0-1 and 2-3, one 200G NIC per socket."""
    groups = [
        Group(i * sockets // 2, (2 * i, 2 * i + 1), (i,) if nics and sockets == 2 else (), False)
        for i in range(2)
    ]
    return machine(groups, 80, cpu, gen=16.0, rate_gbit=200, pairs={(0, 1): 12, (2, 3): 12})


def rtx4090s(cpu: tuple[str, str, int, int] = INTEL_ICELAKE) -> NodeTopology:
    groups = [
        Group(0, (0, 1, 2, 3), (0,), switch=False),
        Group(1, (4, 5, 6, 7), (), switch=False),
    ]
    return machine(groups, 89, cpu, gen=16.0, rate_gbit=100, gpudirect=False, peer_access=False)


def workstation() -> NodeTopology:
    """Two RTX-class GPUs and a 10G NIC without GPUDirect on one socket."""
    return machine(
        [Group(0, (0, 1), (0,), switch=False)],
        86,
        INTEL_ICELAKE,
        gen=16.0,
        rate_gbit=10,
        nic_gen=8.0,
        nic_lanes=8,
        gpudirect=False,
        nic_gpudirect=False,
    )


def pcie_box(
    cpu: tuple[str, str, int, int], per_switch: int, capability: int = 80, gen: float = 16.0
) -> NodeTopology:
    """Eight PCIe GPUs on two sockets, `per_switch` under each switch (0: on root ports), no NIC."""
    if per_switch:
        groups = [
            Group(i * per_switch // 4, tuple(range(i * per_switch, (i + 1) * per_switch)))
            for i in range(8 // per_switch)
        ]
    else:
        groups = [Group(s, tuple(range(4 * s, 4 * s + 4)), switch=False) for s in (0, 1)]
    return machine(groups, capability, cpu, gen=gen)


def pair(
    cpu: tuple[str, str, int, int], capability: int, *, links: int = 0, where: str = "root"
) -> NodeTopology:
    """Two PCIe Gen4 GPUs: where = switch (one switch), root (one socket) or sockets (one each)."""
    groups = {
        "switch": [Group(0, (0, 1))],
        "root": [Group(0, (0, 1), switch=False)],
        "sockets": [Group(0, (0,), switch=False), Group(1, (1,), switch=False)],
    }[where]
    pairs = {(0, 1): links} if links else None
    return machine(groups, capability, cpu, gen=16.0, pairs=pairs)


def refused(node: NodeTopology) -> NodeTopology:
    """The same machine where the driver refuses peer-to-peer over PCIe."""
    return replace(node, gpu_peer_access=False)


# The machines of tests/data/nccl_*.csv: (machine, hosts per NVLink domain, GPUs used per host)
COMPUTED = {
    "dgx1v": (dgx_1v(), 1, 8),
    "dgx_a100": (dgx_a100(), 1, 8),
    "dgx_h100": (dgx_h100(), 1, 8),
    "dgx_h100_ppn2": (dgx_h100(), 1, 2),
    "hgx_b200_400g": (hgx_b200(), 1, 8),
    "a100_pcie_4x_bridge": (a100_bridges(INTEL_ICELAKE, 2), 1, 4),
    "rtx4090_8x_intel": (rtx4090s(), 1, 8),
    "pcie_2x_intel": (workstation(), 1, 2),
    "gb200_nvl72": (gb200_tray(), 18, 4),
}


def computed(name: str) -> list[dict[str, str]]:
    """The rows of a table under tests/data."""
    lines = (Path(__file__).parents[2] / "data" / name).read_text("utf-8").splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


def domains(name: str, nodes: int) -> Domains:
    """`nodes` full NVLink domains of this machine."""
    _, hosts, gpus = COMPUTED[name]
    return (((tuple(range(gpus)),) * hosts, nodes),)


def group(name: str, nodes: int, version: tuple[int, ...] = (2, 30, 7)) -> Communicator:
    """The communicator of `nodes` domains of this machine."""
    return communicator(COMPUTED[name][0], domains=domains(name, nodes), version=version)
