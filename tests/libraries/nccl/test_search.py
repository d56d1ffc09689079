"""NCCL's graph search against what NCCL's own code finds, over versions 2.18 to 2.30."""

from __future__ import annotations

import pytest

from commsim.libraries.nccl.communicator import communicator
from commsim.libraries.nccl.graph import Graph
from commsim.libraries.nccl.search import speeds
from commsim.topology.node import NodeTopology
from tests.libraries.nccl import machines as m
from tests.libraries.nccl.machines import COMPUTED, computed, group


def _own(name: str, nodes: int, graph: str) -> Graph:
    found = getattr(group(name, nodes).domains[0].nodes[0], graph)
    assert isinstance(found, Graph)
    return found


@pytest.mark.parametrize(
    "row", computed("nccl_graphs.csv"), ids=lambda r: "-".join(list(r.values())[:3])
)
def test_graph_is_nccls(row: dict[str, str]) -> None:
    found = _own(row["machine"], int(row["nodes"]), row["graph"])
    got = {
        "pattern": found.pattern.name.lower(),
        "cross_nic": str(found.cross_nic),
        "channels": str(found.channels),
        "bw_intra": f"{found.bw_intra:g}",
        "bw_inter": f"{found.bw_inter:g}",
        "type_intra": found.type_intra.name,
        "type_inter": found.type_inter.name,
        "same_channels": str(int(found.same_channels)),
        "hops": str(found.hops),
    }
    assert got == {k: v for k, v in row.items() if k in got}


@pytest.mark.parametrize("name", sorted(COMPUTED))
def test_orders_are_nccls(name: str) -> None:
    nics = len(COMPUTED[name][0].nics)
    for row in computed("nccl_orders.csv"):
        if row["machine"] != name:
            continue
        found = _own(name, int(row["nodes"]), row["graph"])
        ranks = group(name, int(row["nodes"])).domains[0].nodes[0].ranks
        channel = int(row["channel"])
        assert " ".join(str(ranks[p]) for p in found.orders[channel]) == row["gpus"]
        if row["net_in"]:
            nets = [f"{n // nics:x}-{n % nics:x}" for n in found.nets[channel]]
            assert nets == [row["net_in"], row["net_out"]]


ALL = ("2.18.6", "2.21.5", "2.23.4", "2.27.7", "2.30.7")
# Results for common systems over versions: node, domains, versions, ring, tree, NVLS and
# collective channels; channels x intra/inter types, s: same channels, x: NIC crossing, p: pattern.
# Computed from NCCL's sources of these releases.
CASES: list[tuple[NodeTopology, int, tuple[str, ...], str, str, str, int]] = [
    (m.dgx_1v(), 1, ALL, "6x20 NVL s0", "6x20 NVL p1 s0", "-", 12),
    (m.dgx_1v(), 2, ALL, "4x12/12 NVL/PIX s0 x0", "4x20/12 NVL/PIX p1 s0", "-", 8),
    (m.v100_nvswitch(), 1, ALL, "6x20 NVL s1", "6x20 NVL p1 s1", "-", 12),
    (m.v100_nvswitch(), 2, ALL, "8x12/12 NVL/PIX s0 x0", "8x15/12 NVL/PIX p1 s0", "-", 16),
    (m.dgx_a100(), 1, ALL, "12x20 NVL s1", "12x20 NVL p1 s1", "-", 24),
    (m.dgx_a100(), 4, ALL, "8x24/24 NVL/PIX s0 x0", "8x30/24 NVL/PIX p1 s0", "-", 16),
    (m.dgx_h100(), 1, ALL[:1], "12x30 NVL s1", "12x30 NVL p1 s1", "8x40/40", 24),
    (m.dgx_h100(), 1, ALL[1:], "12x30 NVL s1", "12x30 NVL p1 s1", "8x40/60", 24),
    (m.dgx_h100(), 2, ALL[:1], "8x45/45 NVL/PXN s0 x0", "8x48/48 NVL/PIX p3 s0", "8x40/40", 16),
    (m.dgx_h100(), 2, ALL[1:2], "8x48/48 NVL/PIX s0 x1", "8x48/48 NVL/PIX p3 s0", "8x40/48", 16),
    (m.dgx_h100(), 2, ALL[2:], "8x48/48 NVL/PIX s0 x2", "8x48/48 NVL/PIX p3 s0", "8x40/48", 16),
    (m.h100_200g(), 2, ALL, "8x24/24 NVL/PXN s0 x0", "8x48/24 NVL/PIX p3 s0", "8x24/24", 16),
    (m.hgx_b200(), 1, ALL[3:4], "16x45 NVL s1", "16x40 NVL p1 s1", "8x80/90", 32),
    (m.hgx_b200(), 1, ALL[4:], "16x45 NVL s1", "16x45 NVL p1 s1", "8x80/90", 32),
    (m.hgx_b200(), 2, ALL[3:], "8x48/48 NVL/PXN s0 x0", "8x96/48 NVL/PIX p3 s0", "8x48/48", 16),
    (m.b300_class(), 2, ALL[3:4],
     "16x48/48 NVL/PIX s0 x2", "16x48/48 NVL/PIX p3 s0", "8x48/96", 32),
    (m.b300_class(), 2, ALL[4:],
     "16x48/48 NVL/PIX s0 x2", "16x48/48 NVL/PIX p3 s0", "8x80/96", 32),
    (m.gb200_tray(), 1, ALL[3:], "16x45 NVL s1", "16x50 NVL p3 s0", "4x90/90", 32),
    (m.gb200_tray(), 2, ALL[3:], "8x24/24 NVL/P2C s0 x0", "8x48/24 NVL/P2C p1 s0", "4x48/48", 16),
    (m.one_gpu(90, 32, 400), 2, ALL, "2x24/24 LOC/PIX s1 x0", "2x48/24 LOC/PIX p3 s1", "", 4),
    (m.one_gpu(80, 16, 200), 2, ALL, "1x24/24 LOC/PIX s1 x0", "1x48/24 LOC/PIX p3 s1", "", 2),
    (m.h100_sxm(2), 1, ALL, "12x30 NVL s1", "12x60 NVL p1 s0", "2x60/60", 24),
    (m.h100_sxm(4), 1, ALL, "12x30 NVL s1", "12x30 NVL p1 s1", "4x60/60", 24),
    (m.pcie_box(m.INTEL_ICELAKE, 2), 1, ALL, "1x10 SYS s1", "1x10 SYS p1 s1", "-", 2),
    (m.pcie_box(m.INTEL_ICELAKE, 4), 1, ALL, "1x10 SYS s1", "1x10 SYS p1 s1", "-", 2),
    (m.pcie_box(m.INTEL_SAPPHIRE, 2, 89), 1, ALL[:3], "1x10 SYS s1", "1x10 SYS p1 s1", "-", 2),
    (m.pcie_box(m.INTEL_SAPPHIRE, 2, 89), 1, ALL[3:], "1x20 SYS s1", "1x20 SYS p1 s1", "-", 2),
    (m.pcie_box(m.AMD_ROME, 0, 89), 1, ALL[:1], "2x12 SYS s1", "2x12 SYS p1 s1", "-", 4),
    (m.pcie_box(m.AMD_ROME, 0, 89), 1, ALL[1:], "1x15 SYS s1", "1x15 SYS p1 s1", "-", 2),
    (m.pcie_box(m.INTEL_ICELAKE, 0), 1, ALL, "1x10 SYS s1", "1x10 SYS p1 s1", "-", 2),
    (m.a100_bridges(m.AMD_ROME, 2), 1, ALL[:1], "4x12 SYS s0", "4x20 SYS p1 s0", "-", 8),
    (m.a100_bridges(m.AMD_ROME, 2), 1, ALL[1:3], "1x15 SYS s1", "1x15 SYS p1 s1", "-", 2),
    (m.a100_bridges(m.AMD_ROME, 2), 1, ALL[3:], "4x4 SYS s1", "4x4 SYS p1 s1", "-", 8),
    (m.a100_bridges(m.AMD_ROME, 1), 1, ALL, "4x12 PHB s0", "4x20 PHB p1 s0", "-", 8),
    (m.a100_bridges(m.INTEL_ICELAKE, 2), 1, ALL[:3], "1x10 SYS s1", "1x10 SYS p1 s1", "-", 2),
    (m.a100_bridges(m.INTEL_ICELAKE, 2), 1, ALL[3:], "2x5 SYS s1", "2x10 SYS p1 s0", "-", 4),
    (m.pair(m.AMD_ROME, 80, links=12), 1, ALL, "12x20 NVL s1", "12x40 NVL p1 s0", "-", 24),
    (m.pair(m.AMD_ROME, 80, where="switch"), 1, ALL, "2x12 PIX s1", "2x20 PIX p1 s0", "-", 4),
    (m.pair(m.AMD_ROME, 90, links=18), 1, ALL, "12x30 NVL s1", "12x60 NVL p1 s0", "-", 24),
    (m.pair(m.AMD_ROME, 86, links=4), 1, ALL, "2x20 NVL s1", "2x40 NVL p1 s0", "-", 4),
    (m.pair(m.AMD_ROME, 89), 1, ALL, "2x12 PHB s1", "2x20 PHB p1 s0", "-", 4),
    (m.pair(m.INTEL_ICELAKE, 89), 1, ALL, "1x20 PHB s1", "1x20 PHB p1 s1", "-", 2),
    (m.pair(m.INTEL_ICELAKE, 89, where="sockets"), 1, ALL, "1x10 SYS s1", "1x10 SYS p1 s1", "-", 2),
]  # fmt: skip


def _text(graph: Graph, nodes: int) -> str:
    if nodes == 1:
        return f"{graph.channels}x{graph.bw_intra:g} {graph.type_intra.name}"
    return (
        f"{graph.channels}x{graph.bw_intra:g}/{graph.bw_inter:g}"
        f" {graph.type_intra.name}/{graph.type_inter.name}"
    )


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{len(c[0].gpus)}gpus-{c[1]}-{c[3]}")
def test_known_systems_over_versions(
    case: tuple[NodeTopology, int, tuple[str, ...], str, str, str, int],
) -> None:
    node, nodes, versions, ring, tree, nvls, channels = case
    for version in versions:
        c = communicator(
            node,
            domains=(((tuple(range(len(node.gpus))),), nodes),),
            version=tuple(map(int, version.split("."))),
        )
        crossing = f" x{c.ring.cross_nic}" if nodes > 1 else ""
        assert _text(c.ring, nodes) + f" s{int(c.ring.same_channels)}" + crossing == ring, version
        shape = f" p{c.tree.pattern.value} s{int(c.tree.same_channels)}"
        assert _text(c.tree, nodes) + shape == tree, version
        if nvls and c.nvls:
            assert f"{c.nvls.channels}x{c.nvls.bw_intra:g}/{c.nvls.bw_inter:g}" == nvls, version
        elif nvls:
            assert nvls == "-"
        assert c.coll_channels == channels, version


def test_a_rack_before_2_28() -> None:
    tray = m.gb200_tray()
    rack = ((((0, 1, 2, 3),) * 18, 2),)
    c = communicator(tray, domains=rack, version=(2, 27, 7))
    assert _text(c.ring, 2) == "16x45.1/45.1 NVL/P2C"
    assert _text(c.tree, 2) == "16x45.1/45.1 NVL/P2C"
    assert (c.nodes, c.n, c.mnnvl) == (2, 144, True)


def test_speeds_fall_strictly() -> None:
    for capability in (70, 80, 90, 100, 120):
        for minor in range(18, 31):
            for inter in (False, True):
                each = speeds(capability, (2, minor), inter)
                assert list(each) == sorted(each, reverse=True)
                assert len(set(each)) == len(each)


def test_links_are_never_overbooked() -> None:
    # Every NVLink hop of a ring takes its channel's bandwidth from the sender's links and from the
    # receiver's: no GPU may send or receive more than its links carry (18 x 20.6 = 370.8 GB/s).
    for nodes in (1, 2):
        ring = _own("dgx_h100", nodes, "ring")
        sent = dict.fromkeys(range(8), 0.0)
        for order in ring.orders:
            for g in order[:-1] if nodes > 1 else order:
                sent[g] += ring.bw_intra
        assert max(sent.values()) <= 370.8


def test_amd_meshes_give_usable_channels() -> None:
    pairs = {(a, b): 3 for a in range(8) for b in range(a + 1, 8)}
    groups = [m.Group(int(i > 3), (i,), (i,)) for i in range(8)]
    node = m.machine(groups, 0, m.AMD_ROME, pairs=pairs)
    two = communicator(node, domains=(((tuple(range(8)),), 2),), version=(2, 27, 7))
    # with one 400G NIC per GPU all eight NICs are used: 48 GB/s each
    assert two.ring.channels * two.ring.bw_inter >= 8 * 24
    assert two.tree.channels * two.tree.bw_inter >= 8 * 24
    assert two.ring.channels >= 8
