"""Fabrics: counts from papers and reference designs, and bisection against the largest flow."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import combinations
from math import ceil

import networkx as nx
import pytest

from commsim.errors import SpecError, UnknownNameError
from commsim.topology.fabrics import torus
from commsim.topology.flow import Edge, maximum_flow
from commsim.topology.wiring import (
    Site,
    Wiring,
    fabric_kinds,
    fabric_module,
    switch_latency,
    switch_ports,
)

RATE = 50e9
LAID = [kind for kind in fabric_kinds() if kind != "cabled"]  # by a rule, not by a list of cables
SWITCHED = [kind for kind in LAID if kind != "direct"]


def site(nodes: int, nics: int = 2, *, ports: int = 64, o: float = 1.0) -> Site:
    return Site(
        nodes=nodes,
        nics=tuple(f"nic{i}" for i in range(nics)),
        rates=(RATE,) * nics,
        oversubscription=o,
        ports=ports,
    )


def wire(kind: str, of: Site) -> Wiring:
    return fabric_module(kind).wire(of)


def count(wiring: Wiring) -> dict[str, int]:
    return dict(Counter(s.kind for s in wiring.switches))


def flow(wiring: Wiring, of: Site, senders: tuple[int, ...], receivers: tuple[int, ...]) -> float:
    """Largest flow between whole machines, each joined to its NICs without a limit."""
    edges: list[Edge] = []
    for cable in wiring.cables:
        edges += [
            (cable.source, cable.target, cable.bandwidth),
            (cable.target, cable.source, cable.bandwidth),
        ]
    for host in range(of.nodes):
        inside = f"host{host}"
        for i in range(len(of.nics)):
            out, into = host in senders or wiring.forwarding, host in receivers or wiring.forwarding
            edges += [(inside, of.nic(host, i), float("inf"))] if out else []
            edges += [(of.nic(host, i), inside, float("inf"))] if into else []
    edges += [("source", f"host{h}", float("inf")) for h in senders]
    edges += [(f"host{h}", "target", float("inf")) for h in receivers]
    return maximum_flow(edges, "source", "target")


def worst_half(kind: str, of: Site) -> float:
    """The least share of their NICs that any half of the machines can send to the rest."""
    wiring, half = wire(kind, of), of.nodes // 2
    everyone = range(of.nodes)
    return min(
        flow(wiring, of, some, tuple(h for h in everyone if h not in some))
        for some in combinations(everyone, half)
    ) / (half * len(of.nics) * RATE)


def test_kinds() -> None:
    assert set(fabric_kinds()) == {
        "cabled", "direct", "dragonfly", "fat-tree", "rail-optimized", "single-switch", "torus",
    }  # fmt: skip
    with pytest.raises(UnknownNameError, match="did you mean 'fat-tree'"):
        fabric_module("fattree")


def test_radix() -> None:
    assert [switch_ports("infiniband", gbit * 1e9 / 8) for gbit in (100, 200, 400, 800)] == [
        36, 40, 64, 144,
    ]  # fmt: skip
    assert switch_ports("slingshot", 25e9) == 64
    assert switch_latency("infiniband") < switch_latency("slingshot") < switch_latency("roce")


@pytest.mark.parametrize("kind", SWITCHED)
@pytest.mark.parametrize("nodes", [1, 2, 5, 9])
@pytest.mark.parametrize("ports", [4, 8, 64])
def test_every_nic_has_its_rate_and_reaches_every_other(kind: str, nodes: int, ports: int) -> None:
    of = site(nodes, ports=ports)
    wiring = wire(kind, of)
    graph = nx.Graph((c.source, c.target) for c in wiring.cables)
    assert nx.is_connected(graph)
    assert {s.name for s in wiring.switches} <= set(graph)
    for host in range(nodes):
        for i in range(2):
            mine = [c for c in wiring.cables if of.nic(host, i) in (c.source, c.target)]
            assert [c.bandwidth for c in mine] == [RATE]


@pytest.mark.parametrize("kind", ["rail-optimized", "fat-tree"])
@pytest.mark.parametrize("o", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("nodes", [6, 30, 64])
def test_leaves_pass_up_what_oversubscription_leaves(kind: str, o: float, nodes: int) -> None:
    wiring = wire(kind, site(nodes, 4, ports=8, o=o))
    down: dict[str, float] = defaultdict(float)
    up: dict[str, float] = defaultdict(float)
    for cable in wiring.cables:
        if cable.target.startswith("leaf"):
            down[cable.target] += cable.bandwidth
        elif cable.source.startswith("leaf"):
            up[cable.source] += cable.bandwidth
    assert len(down) > 1
    for leaf, bandwidth in down.items():
        assert up[leaf] == pytest.approx(bandwidth / o)


@pytest.mark.parametrize("nodes", [3, 8, 20, 40])
@pytest.mark.parametrize("o", [1.0, 2.0])
def test_switches_have_the_ports_they_need(nodes: int, o: float) -> None:
    ports = 8
    for kind in ("rail-optimized", "fat-tree"):
        wiring = wire(kind, site(nodes, 2, ports=ports, o=o))
        used: Counter[str] = Counter()
        for cable in wiring.cables:
            for end in (cable.source, cable.target):
                used[end] += cable.bandwidth / RATE  # type: ignore[assignment]
        for switch in wiring.switches:
            assert ceil(used[switch.name] - 1e-6) <= ports, (kind, switch)


def test_superpod() -> None:
    # NVIDIA DGX SuperPOD H100 reference architecture, RA-11333-001: scalable units of 32 machines
    # with 8 leaves; 1 unit has 4 spines, 2 have 8 and 4 have 16.
    for units in (1, 2, 4):
        wiring = wire("rail-optimized", site(32 * units, 8))
        assert count(wiring) == {"leaf": 8 * units, "spine": 4 * units}
    members = [c.source for c in wire("rail-optimized", site(64, 8)).cables if c.target == "leaf11"]
    assert members == [f"node{n}/nic3" for n in range(32, 64)]


def test_one_leaf_needs_no_spine() -> None:
    assert count(wire("fat-tree", site(4, 8))) == {"leaf": 1}
    assert count(wire("fat-tree", site(5, 8))) == {"leaf": 2, "spine": 1}


def test_three_tiers_of_a_full_fat_tree() -> None:
    # Al-Fares et al., SIGCOMM 2008: k-port switches, k pods of k/2 + k/2 and (k/2)^2 cores serve
    # k^3/4 hosts. k = 4: 16 hosts on 8 edge, 8 aggregation and 4 core switches.
    wiring = wire("fat-tree", site(16, 1, ports=4))
    assert count(wiring) == {"leaf": 8, "spine": 8, "core": 4}
    assert worst_ends("fat-tree", site(16, 1, ports=4)) == pytest.approx(1.0)


def worst_ends(kind: str, of: Site) -> float:
    """The share that the first half of the machines can send to the second."""
    half = of.nodes // 2
    first, second = tuple(range(half)), tuple(range(half, of.nodes))
    return flow(wire(kind, of), of, first, second) / (half * len(of.nics) * RATE)


@pytest.mark.parametrize("o", [1.0, 2.0])
@pytest.mark.parametrize("nodes", [16, 32, 48])
@pytest.mark.parametrize("kind", ["rail-optimized", "fat-tree"])
def test_only_leaves_are_oversubscribed(kind: str, o: float, nodes: int) -> None:
    # 6-port switches: three tiers from the seventh leaf on.
    of = site(nodes, 2, ports=6, o=o)
    assert worst_ends(kind, of) >= 1 / o - 1e-9


@pytest.mark.parametrize(
    ("kind", "of"),
    [
        ("single-switch", site(6)),
        ("rail-optimized", site(4, ports=8)),
        ("rail-optimized", site(8, ports=6, o=2.0)),
        ("fat-tree", site(2, ports=8)),
        ("fat-tree", site(8, ports=8)),
        ("fat-tree", site(8, ports=12, o=2.0)),
        ("fat-tree", site(8, 1, ports=6, o=2.0)),
        ("dragonfly", site(8, 1, ports=4)),
        ("dragonfly", site(4, 1, ports=4, o=2.0)),
        ("torus", site(8)),
        ("torus", site(8, o=2.0)),
        ("torus", site(4, o=4.0)),
        ("direct", site(2)),
        ("direct", site(4, 3)),
        ("direct", site(4, 7)),
        ("direct", site(6, 2)),
        ("direct", site(8, 4)),
    ],
)
def test_bisection_is_the_worst_half(kind: str, of: Site) -> None:
    assert fabric_module(kind).bisection(of) == pytest.approx(worst_half(kind, of))


@pytest.mark.parametrize("kind", LAID)
@pytest.mark.parametrize("nodes", [2, 4, 6])
@pytest.mark.parametrize("ports", [4, 6, 64])
@pytest.mark.parametrize("o", [1.0, 2.0])
def test_bisection_promises_no_more_than_there_is(
    kind: str, nodes: int, ports: int, o: float
) -> None:
    of = site(nodes, ports=ports, o=o)
    assert 0 < fabric_module(kind).bisection(of) <= worst_half(kind, of) + 1e-9


@pytest.mark.parametrize(
    ("nodes", "shape"),
    [(1, (1,)), (2, (2,)), (7, (7,)), (8, (4, 2)), (16, (4, 4)), (27, (3, 3, 3)), (64, (4, 4, 4)),
     (512, (8, 8, 8)), (1000, (10, 10, 10))],
)  # fmt: skip
def test_torus_shape(nodes: int, shape: tuple[int, ...]) -> None:
    assert torus.shape(nodes) == shape


def test_torus_links() -> None:
    # 4 x 4: each router has four neighbours, each cable carries what a machine sends.
    wiring = wire("torus", site(16))
    between = [c for c in wiring.cables if c.source.startswith("router")]
    assert len(between) == 2 * 16
    assert {c.bandwidth for c in between} == {2 * RATE}
    near = {c.target for c in between if c.source == "router5"}
    near |= {c.source for c in between if c.target == "router5"}
    assert near == {"router1", "router9", "router4", "router6"}


def test_dragonfly_groups() -> None:
    # 64 ports: 16 NICs a router, 32 routers a group (Kim et al., a = 2p = 2h); 3 groups of 512.
    of = site(1536, 1)
    wiring = wire("dragonfly", of)
    assert count(wiring) == {"router": 96}
    group = {f"router{r}": r // 32 for r in range(96)}
    across: dict[tuple[int, int], float] = defaultdict(float)
    local = 0
    for cable in wiring.cables:
        if cable.source in group:
            pair = (group[cable.source], group[cable.target])
            local += pair[0] == pair[1]
            across[pair] += cable.bandwidth * (pair[0] != pair[1])
    assert local == 3 * 32 * 31 / 2
    # Each group sends 512 rates, half of them to either of the others.
    assert across[0, 1] == pytest.approx(256 * RATE)
    assert across[1, 2] == pytest.approx(256 * RATE)


def test_direct() -> None:
    pair = wire("direct", site(2, 4))
    assert {(c.source, c.target) for c in pair.cables} == {
        (f"node0/nic{i}", f"node1/nic{i}") for i in range(4)
    }
    mesh = wire("direct", site(4, 3))
    assert len(mesh.cables) == 6
    ends = [end for c in mesh.cables for end in (c.source, c.target)]
    assert len(set(ends)) == len(ends) == 12
    ring = wire("direct", site(5, 2))
    assert len(ring.cables) == 5
    assert ring.forwarding
    assert not mesh.forwarding
    assert wire("direct", site(1, 2)).cables == ()
    with pytest.raises(SpecError, match=r"direct joins 3 nodes with at least 2 NICs each, found 1"):
        wire("direct", site(3, 1))
    with pytest.raises(SpecError, match=r"direct joins 3 nodes with at least 2 NICs each, found 1"):
        fabric_module("direct").bisection(site(3, 1))
    assert fabric_module("direct").bisection(site(2, 1)) == 1.0
