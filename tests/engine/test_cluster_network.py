"""The ways of a cluster against its router, its graph, and ways written out by hand."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
from numpy.typing import ArrayLike

from commsim.collectives.catalogue import algorithm
from commsim.collectives.collective import Collective
from commsim.collectives.schedule import Schedule
from commsim.engine.cluster_network import ClusterNetwork
from commsim.engine.conditions import LinkFault
from commsim.engine.network import Ways, ends_of, lay
from commsim.errors import CollectiveError, UnknownNameError, UnreachableError
from commsim.topology.capacity import own_nics
from commsim.topology.cluster import Cluster
from commsim.topology.load import load_cluster, presets
from commsim.topology.node import NodeTopology, PcieSwitch
from tests.topology.machines import cluster, cpus, desktop, gpus, hgx, link, mesh, nics

GB = 1e9
Edge = tuple[str, str]
Walk = tuple[str, ...]


@lru_cache
def schedule(n: int) -> Schedule:
    """Any schedule of n ranks: its own ops are not asked about."""
    return algorithm("send_recv").schedule(Collective("send_recv", 64), n)


@dataclass(frozen=True)
class Found:
    """One way, readable: its links in order with their weights, and its latency in s."""

    edges: tuple[Edge, ...]
    weight: dict[Edge, float]
    latency: float

    @property
    def walk(self) -> Walk:
        """The vertices one after another, of a way that is not spread."""
        assert set(self.weight.values()) <= {1.0}
        for (_, b), (c, _) in pairwise(self.edges):
            assert b == c
        return (self.edges[0][0], *(b for _, b in self.edges))


def found(network: ClusterNetwork, ways: Ways) -> list[Found]:
    for start, end in pairwise(ways.start.tolist()):
        assert len(set(ways.crossing[start:end].tolist())) == end - start
    names = [ends_of(name) for name in network.links]
    return [
        Found(
            edges=(edges := tuple((a, b) for a, b in (names[i] for i in ways.crossing[x:y]))),
            weight=dict(zip(edges, ways.weight[x:y].tolist(), strict=True)),
            latency=float(ways.latency[w]),
        )
        for w, (x, y) in enumerate(pairwise(ways.start.tolist()))
    ]


def ask(
    network: ClusterNetwork,
    source: ArrayLike,
    target: ArrayLike,
    channel: ArrayLike = 0,
    plan: Schedule | None = None,
) -> Ways:
    """The ways between positions."""
    a, b, c = np.broadcast_arrays(*(np.atleast_1d(x) for x in (source, target, channel)))
    n = len(network.ranks or range(network.cluster.n_ranks))
    return network.ways(plan or schedule(n), a, b, c, np.zeros_like(a))


def one(network: ClusterNetwork, source: int, target: int, channel: int = 0) -> Found:
    return found(network, ask(network, source, target, channel))[0]


# ---- against the router and the graph ----


def chosen_nics(of: Cluster, a: int, b: int, channel: int) -> tuple[str, str] | None:
    """The NICs of a channel when every rank takes part."""
    every, names = tuple(range(of.gpus_per_node)), []
    for host, gpu in (divmod(a, of.gpus_per_node), divmod(b, of.gpus_per_node)):
        own = own_nics(of.node, gpu, every)
        if not own:
            return None
        names.append(of.site.nic(host, own[channel % len(own)]))
    return names[0], names[1]


def allowed(of: Cluster, a: int, b: int, channel: int) -> list[Walk]:
    """The routes that a channel may take: with its own NICs where these can be used at all."""
    routes = list(of.routes(a, b))
    names = set(of.site.nics)
    used = [[v for v in route if v.partition("/")[2] in names] for route in routes]
    nics = chosen_nics(of, a, b, channel)
    if not used[0] or nics is None:
        return routes
    with_own = [r for r, u in zip(routes, used, strict=True) if (u[0], u[-1]) == nics]
    if with_own or of.fabric.kind == "direct":
        return with_own or routes
    # Other NICs of the same GPUs are nearer to each other: through this pair by the graph alone.
    middles = nx.all_shortest_paths(of.graph.subgraph({*nics, *switches(of)}), *nics)
    head, tail = (
        list(nx.all_shortest_paths(of.graph.subgraph(inner(of, gpu, nic)), gpu, nic))
        for gpu, nic in ((routes[0][0], nics[0]), (routes[0][-1], nics[1]))
    )
    return [(*h[:-1], *m, *t[-2::-1]) for m in middles for h in head for t in tail]


def switches(of: Cluster) -> set[str]:
    return {s.name for s in of.wiring.switches}


def inner(of: Cluster, gpu: str, nic: str) -> set[str]:
    """A GPU, a NIC and all of their machine that passes data on."""
    host = gpu.partition("/")[0]
    passing = ("cpu", "pcie-switch", "card")
    kinds = of.graph.nodes(data="kind")
    return {gpu, nic} | {v for v, kind in kinds if kind in passing and v.startswith(f"{host}/")}


def spread(walks: list[Walk]) -> dict[Edge, float]:
    """The share of these walks over each edge."""
    count = Counter(edge for walk in walks for edge in pairwise(walk))
    return {edge: passing / len(walks) for edge, passing in count.items()}


def check(of: Cluster, pairs: list[tuple[int, int]]) -> None:
    """Both routings against every route that may be taken."""
    adaptive = ClusterNetwork(cluster=of)
    ecmp = ClusterNetwork(cluster=of, routing="ecmp", seed=7)
    graph = of.graph
    asked = [(a, b, channel) for a, b in pairs for channel in (0, 1)]
    source, target, channels = (np.array(column) for column in zip(*asked, strict=True))
    both = [found(each, ask(each, source, target, channels)) for each in (adaptive, ecmp)]
    names = set(of.site.nics)
    for (a, b, channel), spray, single in zip(asked, *both, strict=True):
        routes = allowed(of, a, b, channel)
        assert single.walk in routes
        latency = sum(graph.edges[edge]["latency"] for edge in single.edges)
        assert single.latency == pytest.approx(latency, abs=1e-15)
        assert spray.latency == pytest.approx(latency, abs=1e-15)
        # One way inside each machine; all ways between the same two NICs.
        at = [i for i, v in enumerate(single.walk) if v.partition("/")[2] in names] or [0]
        ends = single.walk[: at[0] + 1], single.walk[at[-1] :]
        alike = [r for r in routes if (r[: len(ends[0])], r[len(r) - len(ends[1]) :]) == ends]
        expected = spread(alike if len(at) > 1 else [single.walk])
        assert spray.weight == pytest.approx(expected)
    for name, capacity in zip(adaptive.links, adaptive.capacity, strict=True):
        a, b = name.split(" -> ")
        assert capacity == pytest.approx(graph.edges[a, b]["bandwidth"] or np.inf)
    assert len(set(adaptive.links)) == len(adaptive.links) == graph.number_of_edges()


@pytest.mark.parametrize("name", presets())
def test_presets_go_as_the_router_says(name: str) -> None:
    for nodes in (1, 3):
        of = load_cluster(name, nodes=nodes)
        per, n = of.gpus_per_node, of.n_ranks
        pairs = {(0, 1), (1, 0), (0, n - 1), (per - 1, per % n), (n // 2, per // 2), (n - 1, 0)}
        if n > 1:
            check(of, [(a, b) for a, b in sorted(pairs) if a != b])


MACHINES: dict[str, NodeTopology] = {
    "hgx": hgx(4),
    "staged": hgx(4, gpudirect=False),
    "desktop": desktop(n_nics=2),
    "mesh": mesh(),
}


@pytest.mark.parametrize("nodes", [2, 5, 25])
@pytest.mark.parametrize(
    "kind", ["single-switch", "rail-optimized", "fat-tree", "torus", "dragonfly", "direct"]
)
@pytest.mark.parametrize("machine", MACHINES)
def test_fabrics_go_as_the_router_says(machine: str, kind: str, nodes: int) -> None:
    if kind == "direct":
        nodes = min(nodes, 7)  # the router lists every way: four times as many with each machine
    domain = 8 if machine == "hgx" and nodes == 5 else 0
    of = cluster(MACHINES[machine], nodes, kind=kind, domain=domain)
    random = np.random.default_rng(3)
    pairs = random.integers(of.n_ranks, size=(12, 2)).tolist()
    check(of, [(a, b) for a, b in pairs if a != b])


def test_three_tiers_go_as_the_router_says() -> None:
    # 2048 machines: pods of 32 leaves with 8 machines each (4 NICs, 32 ports down), so machine 0
    # and machine 300 are in different pods.
    of = cluster(hgx(4), 2048, kind="fat-tree")
    for a, b in ((0, 4 * 300 + 1), (3, 4 * 20)):
        expected = of.routes(a, b)
        assert one(ClusterNetwork(cluster=of), a, b).weight == pytest.approx(spread([*expected]))
        assert one(ClusterNetwork(cluster=of, routing="ecmp"), a, b).walk in expected


def test_two_islands_of_pcie_meet_at_a_switch_of_the_network() -> None:
    links = [
        link(f"{device}{i}", f"cpu{i}", "pcie", 32) for i in range(2) for device in ("gpu", "nic")
    ]
    node = NodeTopology(gpus=gpus(2), nics=nics(2, 25.0), links=tuple(links))
    assert one(ClusterNetwork(cluster=cluster(node, 1, kind="single-switch")), 0, 1).walk == (
        "node0/gpu0", "node0/cpu0", "node0/nic0", "leaf0", "node0/nic1", "node0/cpu1", "node0/gpu1",
    )  # fmt: skip


def test_a_link_of_unknown_bandwidth_has_no_limit() -> None:
    links = (link("gpu0", "cpu0", "pcie", 0), link("gpu1", "cpu0", "pcie", 32))
    network = ClusterNetwork(cluster=cluster(NodeTopology(gpus=gpus(2), links=links), 1))
    capacity = dict(zip(network.links, network.capacity.tolist(), strict=True))
    assert capacity["node0/gpu0 -> node0/cpu0"] == np.inf
    assert capacity["node0/cpu0 -> node0/gpu1"] == 32 * GB


# ---- by hand ----


def test_over_nvlink_and_over_the_network() -> None:
    network = ClusterNetwork(cluster=cluster(hgx(), 2))
    assert one(network, 2, 7).walk == ("node0/gpu2", "node0/nvswitch", "node0/gpu7")
    far = one(network, 3, 12)
    assert far.walk == (
        "node0/gpu3", "node0/sw3", "node0/nic3", "leaf3", "spine0", "leaf4",
        "node1/nic4", "node1/sw4", "node1/gpu4",
    )  # fmt: skip
    assert far.latency == pytest.approx(3 * 130e-9)  # leaf, spine, leaf
    kinds = {name: network.over_network[i] for i, name in enumerate(network.links)}
    assert [kinds[f"{a} -> {b}"] for a, b in far.edges] == [False] * 2 + [True] * 4 + [False] * 2
    assert network.capacity[network.links.index("node1/nic4 -> leaf4")] == 50 * GB
    assert network.capacity[network.links.index("node1/gpu4 -> node1/nvswitch")] == 450 * GB


def test_a_domain_of_several_machines() -> None:
    network = ClusterNetwork(cluster=cluster(hgx(4), 4, domain=8))
    assert one(network, 9, 14).walk == ("node2/gpu1", "domain1/nvswitch", "node3/gpu2")
    assert "leaf1" in one(network, 7, 9).walk


def test_a_rank_reaches_itself_over_nothing_at_once() -> None:
    ways = ask(ClusterNetwork(cluster=cluster(hgx(), 2)), [3, 0, 5], [3, 8, 5])
    assert np.diff(ways.start).tolist() == [0, 6, 0]  # gpu0, sw0, nic0, leaf0, nic0, sw0, gpu0
    assert ways.latency.tolist() == [0.0, 130e-9, 0.0]
    assert set(ways.overhead) == {0.0}
    assert set(ways.limit) == {np.inf}


def test_channels_take_the_nics_of_a_rank_in_turn() -> None:
    # One GPU of each machine takes part, so that all nearest NICs are its own.
    of = load_cluster("aws-p5", nodes=2)  # 32 NICs for 8 GPUs
    network = ClusterNetwork(cluster=of, ranks=(0, 9))
    for source, target, gpus_there in ((0, 1, (0, 1)), (1, 0, (1, 0))):
        first, last = (own_nics(of.node, gpu, (gpu,)) for gpu in gpus_there)
        assert len(first) == len(last) == 4
        for channel in range(9):
            walk = one(network, source, target, channel).walk
            used = [v.partition("/")[2] for v in walk if "/nic" in v]
            assert used == [f"nic{own[channel % 4]}" for own in (first, last)]


def test_positions_are_ranks_of_the_group() -> None:
    of = cluster(hgx(), 4)
    group = ClusterNetwork(cluster=of, ranks=(25, 3, 9, 1))
    whole = ClusterNetwork(cluster=of)
    assert group.links == whole.links
    assert one(group, 0, 2).walk == one(whole, 25, 9).walk
    assert one(group, 3, 1).walk == one(whole, 1, 3).walk


def test_every_way_over_a_torus_has_an_equal_part() -> None:
    # 5 x 5, from router 0 to router 11: two steps along one axis, one along the other, 3 orders.
    weight = one(ClusterNetwork(cluster=cluster(hgx(4), 25, kind="torus")), 0, 44).weight
    routers = {(a, b): w for (a, b), w in weight.items() if "/" not in a + b}
    assert routers == pytest.approx(
        {
            ("router0", "router5"): 2 / 3,
            ("router0", "router1"): 1 / 3,
            ("router5", "router10"): 1 / 3,
            ("router5", "router6"): 1 / 3,
            ("router1", "router6"): 1 / 3,
            ("router10", "router11"): 1 / 3,
            ("router6", "router11"): 2 / 3,
        }
    )


def test_a_ring_of_cables_passes_through_machines() -> None:
    for routing in ("adaptive", "ecmp"):
        network = ClusterNetwork(cluster=cluster(mesh(), 5, kind="direct"), routing=routing)
        assert one(network, 0, 8).walk == (
            "node0/gpu0", "node0/cpu0", "node0/nic0",
            "node1/nic1", "node1/cpu0", "node1/nic0",
            "node2/nic1", "node2/cpu0", "node2/gpu0",
        )  # fmt: skip


def test_a_long_ring_of_many_cables() -> None:
    # 4 cables to each neighbour: far too many ways to list them. All of it passes each of the ten.
    network = ClusterNetwork(cluster=cluster(hgx(), 40, kind="direct"))
    far = one(network, 0, 80)
    hops = dict.fromkeys((f"node{i}" for i in range(1, 11)), 0.0)
    for (a, b), weight in far.weight.items():
        if "/nic" in a and "/nic" in b:
            hops[b.partition("/")[0]] += weight
    assert list(hops.values()) == pytest.approx([1.0] * 10)


def test_cables_between_two_machines_are_taken_in_turn() -> None:
    # GPU 0 to GPU 1 of the other machine: no cable joins their own NICs; over NIC 0 or 1, in turn.
    network = ClusterNetwork(cluster=cluster(hgx(), 2, kind="direct"))
    walks = [one(network, 0, 9, channel).walk for channel in (0, 1, 2)]
    assert walks[0] == walks[2] != walks[1]
    used = [{v.partition("/")[2] for v in walk if "/nic" in v} for walk in walks]
    assert used == [{"nic0"}, {"nic1"}, {"nic0"}]
    assert one(network, 5, 13).walk[2:4] == ("node0/nic5", "node1/nic5")


def test_a_wider_nic_comes_before_a_nearer_one() -> None:
    links = (
        link("gpu0", "sw0", "pcie", 32), link("nic0", "sw0", "pcie", 4),
        link("sw0", "cpu0", "pcie", 32), link("nic1", "cpu0", "pcie", 32),
    )  # fmt: skip
    node = NodeTopology(
        gpus=gpus(1), nics=nics(2, 25.0), cpus=cpus(1), switches=(PcieSwitch(name="sw0"),),
        links=links,
    )  # fmt: skip
    for kind in ("direct", "single-switch"):
        walk = one(ClusterNetwork(cluster=cluster(node, 2, kind=kind)), 0, 1).walk
        assert [v for v in walk if "/nic" in v] == ["node0/nic1", "node1/nic1"]


def test_latencies_add_up_and_the_top_is_half_way() -> None:
    links = (
        replace(link("gpu0", "cpu0", "pcie", 32), latency=9e-6),
        replace(link("gpu0", "cpu0", "c2c", 100), latency=2e-7),  # the wider one is taken
        replace(link("nic0", "cpu0", "pcie", 32), latency=5e-7),
    )
    node = NodeTopology(
        gpus=gpus(1), nics=(replace(nics(1, 25.0)[0], latency=1e-6),), cpus=cpus(1), links=links
    )
    network = ClusterNetwork(cluster=cluster(node, 2, kind="single-switch"))
    # GPU, CPU, NIC; the NIC itself; the switch; NIC, CPU, GPU.
    whole = 2e-7 + 5e-7 + 1e-6 + 130e-9 + 5e-7 + 2e-7
    assert one(network, 0, 1).latency == pytest.approx(whole)
    up, down = found(network, ask(network, [0, 2], [2, 1]))
    assert up.latency == down.latency == pytest.approx(whole / 2)


# ---- ECMP ----


def test_ecmp_uses_every_spine_and_none_too_often() -> None:
    # 64 leaves of 4 machines with 32 ports up each: 32 spines.
    of = cluster(hgx(), 256, kind="fat-tree")
    random = np.random.default_rng(1)
    source = random.integers(1024, size=6400)
    target = random.integers(1024, size=6400) + 1024  # never on the same leaf
    network = ClusterNetwork(cluster=of, routing="ecmp", seed=5)
    ways = ask(network, source, target)
    names = np.array(network.links)[ways.crossing]
    spines = Counter(ends_of(name)[1] for name in names if "-> spine" in name)
    assert len(spines) == 32
    assert sum(spines.values()) == 6400
    # 200 each on average; 5 standard deviations of a fair draw are 5 sqrt(200) = 71.
    assert 129 < min(spines.values()) <= max(spines.values()) < 271


def test_ecmp_draws_one_of_parallel_cables() -> None:
    """16 machines of 8 NICs on 4 leaves: 32 NICs of 50 GB/s each, which 2 spines of 64 ports join
    by 16 cables of 50 GB/s to each leaf. A flow has one of them; spread, all are one link.
    """
    of = cluster(hgx(), 16, kind="fat-tree")
    hashed, spread = (ClusterNetwork(cluster=of, routing=r) for r in ("ecmp", "adaptive"))
    cables = [i for i, name in enumerate(hashed.links) if name.startswith("leaf0 -> spine0")]
    assert [hashed.links[i] for i in cables] == [f"leaf0 -> spine0 #{k}" for k in range(1, 17)]
    assert set(hashed.capacity[cables]) == {50e9}
    assert spread.capacity[spread.links.index("leaf0 -> spine0")] == 16 * 50e9
    # 3200 flows over 32 cables: 100 on each, and 5 standard deviations of a fair draw are 50.
    channels = np.arange(3200)
    ways = ask(hashed, np.zeros_like(channels), np.full_like(channels, 127), channels)
    count = Counter(
        hashed.links[i] for i in ways.crossing if hashed.links[i].startswith("leaf0 ->")
    )
    up = {name: k for name, k in count.items() if "spine" in name}
    assert len(up) == 32
    assert 50 < min(up.values()) <= max(up.values()) < 150
    # A fault means one of them by its number, or all by their ends.
    assert len(LinkFault(link="leaf0 -> spine0 #3").changes(hashed)) == 1
    assert len(LinkFault(link="leaf0 -> spine0").changes(hashed)) == 16
    assert len(LinkFault(link="spine0").changes(hashed)) == 2 * 4 * 16


def test_ecmp_is_the_same_again_and_another_with_another_seed_or_channel() -> None:
    of = cluster(hgx(), 32, kind="fat-tree")  # 4 spines
    source, target = np.arange(64), np.arange(64) + 128
    asked = [(0, 0), (0, 0), (1, 0), (0, 1), (-1, 0), (2**70, 0)]
    drawn = [
        ask(ClusterNetwork(cluster=of, routing="ecmp", seed=seed), source, target, c).crossing
        for seed, c in asked
    ]
    assert (drawn[0] == drawn[1]).all()
    for other in drawn[2:4]:
        assert 0.5 < (drawn[0] != other)[3::8].mean() < 1  # leaf -> spine: 3 of 4 change
    group = ClusterNetwork(cluster=of, ranks=(0, 128), routing="ecmp", seed=0)
    assert ask(group, 0, 1).crossing.tolist() == drawn[0][:8].tolist()


def test_every_way_over_a_torus_is_equally_likely() -> None:
    # The same 3 ways, each drawn 1 time in 3: 5 standard deviations are 5 sqrt(4800 2/9) = 163.
    network = ClusterNetwork(cluster=cluster(hgx(4), 25, kind="torus"), routing="ecmp")
    ways = found(network, ask(network, [0] * 4800, [44] * 4800, np.arange(4800)))
    count = Counter(way.walk for way in ways)
    assert len(count) == 3
    assert 1600 - 163 < min(count.values()) <= max(count.values()) < 1600 + 163


# ---- switches as vertices ----


def test_nvls_uses_the_nvswitch() -> None:
    network = ClusterNetwork(cluster=cluster(hgx(), 2), ranks=tuple(range(8, 16)))
    up, down = found(network, ask(network, [3, 8], [8, 3]))
    assert up.walk == ("node1/gpu3", "node1/nvswitch")
    assert down.walk == ("node1/nvswitch", "node1/gpu3")


def test_each_domain_has_its_nvswitch_and_all_share_the_top() -> None:
    network = ClusterNetwork(cluster=cluster(hgx(4), 4, domain=8))
    source = np.array([0, 7, 8, 15, 0, 15, 18])
    target = np.array([16, 16, 17, 17, 18, 18, 8])
    ways = found(network, ask(network, source, target))
    assert [way.walk[-1] for way in ways[:4]] == ["domain0/nvswitch"] * 2 + ["domain1/nvswitch"] * 2
    # Ranks 0, 15 and 8 lie on leaves 0, 3 and 0 of one group; 4 leaves of 4 ports need 1 spine.
    assert ways[4].walk == ("node0/gpu0", "node0/sw0", "node0/nic0", "leaf0", "spine0")
    assert ways[5].walk == ("node3/gpu3", "node3/sw3", "node3/nic3", "leaf3", "spine0")
    assert ways[6].walk == ("spine0", "leaf0", "node2/nic0", "node2/sw0", "node2/gpu0")
    for way in ways[4:]:
        assert way.latency == pytest.approx(1.5 * 130e-9)  # half of leaf, spine, leaf


def test_the_top_is_the_leaf_that_all_share() -> None:
    network = ClusterNetwork(cluster=cluster(hgx(), 4))
    (up, _, other, _) = found(network, ask(network, [5, 13, 4, 28], [33, 33, 32, 32]))
    assert up.walk == ("node0/gpu5", "node0/sw5", "node0/nic5", "leaf5")
    assert up.latency == pytest.approx(65e-9)
    assert other.walk[-1] == "leaf4"


@pytest.mark.parametrize("routing", ["adaptive", "ecmp"])
def test_spines_share_what_goes_to_the_top(routing: str) -> None:
    of = cluster(hgx(), 32, kind="fat-tree")  # 8 leaves, 4 spines
    network = ClusterNetwork(cluster=of, routing=routing)
    ranks, channel = np.arange(256), np.arange(256) % 8
    channels = channel.tolist()
    up = found(network, ask(network, ranks, 256, channel))
    down = found(network, ask(network, 256, ranks, channel))
    used = {
        (c, b): w for c, way in zip(channels, up, strict=True) for (_, b), w in way.weight.items()
    }
    spines = {(c, b): w for (c, b), w in used.items() if b.startswith("spine")}
    if routing == "adaptive":
        assert spines == {(c, f"spine{s}"): 0.25 for c in range(8) for s in range(4)}
    else:  # one switch adds up a channel; the eight channels do not all have the same
        assert set(spines.values()) == {1.0}
        assert sorted(c for c, _ in spines) == list(range(8))
        assert len({spine for _, spine in spines}) > 1
    for out, back in zip(up, down, strict=True):
        assert back.edges == tuple((b, a) for a, b in reversed(out.edges))
        assert back.weight == {(b, a): w for (a, b), w in out.weight.items()}
        assert out.latency == back.latency == pytest.approx(195e-9)


def test_pods_meet_at_the_cores() -> None:
    of = cluster(hgx(4), 2048, kind="fat-tree")  # three tiers, as above
    network = ClusterNetwork(cluster=of, ranks=(0, 4 * 300))
    way = found(network, ask(network, [0, 1], [2, 2]))[0]
    cores = [weight for (_, b), weight in way.weight.items() if b.startswith("core")]
    assert len(cores) == len([s for s in of.wiring.switches if s.kind == "core"])
    assert cores == pytest.approx([1 / len(cores)] * len(cores))


def test_collnet_meets_at_the_leaf_of_each_rail() -> None:
    of = cluster(hgx(), 4)
    plan = algorithm("collnet").schedule(Collective("all_reduce", 1 << 20), 32)
    network = ClusterNetwork(cluster=of)
    laid = lay(plan, network)
    ways, up = found(network, laid.ways), (plan.destination >= 32) & (plan.source < 32)
    tops = {ways[w].walk[-1] for w in laid.way[up]}
    assert tops == {f"leaf{i}" for i in range(8)}


# ---- what cannot be ----


def test_dead_ends_raise_as_the_router_does() -> None:
    of = cluster(desktop(n_nics=0), 2)
    with pytest.raises(UnreachableError, match=r"rank 0 .* rank 4 .* no NICs"):
        ask(ClusterNetwork(cluster=of), [0, 0], [1, 4])
    loose = NodeTopology(
        gpus=gpus(2), nics=nics(1, 25.0), links=(link("nic0", "cpu0", "pcie", 32),)
    )
    with pytest.raises(UnreachableError, match="no path leads from gpu0 to a NIC"):
        ask(ClusterNetwork(cluster=cluster(loose, 2)), 0, 2)


def test_a_switch_that_is_not_there() -> None:
    with pytest.raises(
        CollectiveError, match=r"switch 0 .* node0/gpu1 has no NVLink to an NVSwitch"
    ):
        ask(ClusterNetwork(cluster=cluster(mesh(), 1)), 1, 4)
    for kind in ("torus", "direct"):
        with pytest.raises(CollectiveError, match="node0/gpu1 has no NIC on a leaf switch"):
            ask(ClusterNetwork(cluster=cluster(mesh(), 2, kind=kind)), [1, 5], [8, 8])
    with pytest.raises(CollectiveError, match="from switch to switch"):
        ask(ClusterNetwork(cluster=cluster(hgx(), 2)), 16, 17)


def test_what_is_asked_wrongly() -> None:
    of = cluster(hgx(), 2)
    with pytest.raises(UnknownNameError, match="adaptive, ecmp"):
        ClusterNetwork(cluster=of, routing="static")
    with pytest.raises(CollectiveError, match="rank 16 does not exist"):
        ClusterNetwork(cluster=of, ranks=(0, 16))
    with pytest.raises(CollectiveError, match="the group has 16 ranks, its schedule 8"):
        ask(ClusterNetwork(cluster=of), 0, 1, plan=schedule(8))


def test_a_switch_that_passes_on_less_than_its_links_bring_has_a_crossbar() -> None:
    """DGX H100: 8 x 450 GB/s of NVLink are 3.6 TB/s. A chip has 64 ports of 25 GB/s, so four carry
    6.4 TB/s and block nothing; two carry 3.2, which all ways through them share.
    """
    whole = ClusterNetwork(cluster=load_cluster("dgx-h100"))
    half = ClusterNetwork(cluster=load_cluster("dgx-h100", **{"node.nvswitches": 2}))
    assert not any("crossbar" in name for name in whole.links)
    switch, inside = "node0/nvswitch", "node0/nvswitch/crossbar"
    assert one(half, 0, 5).walk == ("node0/gpu0", switch, inside, switch, "node0/gpu5")
    for name in (f"{switch} -> {inside}", f"{inside} -> {switch}"):
        assert half.capacity[half.links.index(name)] == 3.2e12


def test_so_has_a_pcie_switch() -> None:
    """Two GPUs and a way up of 8 GB/s each at one that passes on 12: three links bring 24."""
    spec = {
        "device": [
            {"name": "cpu0", "kind": "cpu"},
            {"name": "plx", "kind": "pcie-switch", "rate": "12GB/s"},
            *({"name": f"gpu{i}", "kind": "gpu", "part": "L40S", "index": i} for i in range(3)),
        ],
        "link": [
            {"source": child, "target": parent, "kind": "pcie", "bandwidth": "8GB/s"}
            for child, parent in (
                ("plx", "cpu0"),
                ("gpu0", "plx"),
                ("gpu1", "plx"),
                ("gpu2", "cpu0"),
            )
        ],
    }
    network = ClusterNetwork(cluster=load_cluster(spec))
    through = ("node0/plx", "node0/plx/crossbar", "node0/plx")
    assert one(network, 0, 1).walk == ("node0/gpu0", *through, "node0/gpu1")
    assert one(network, 0, 2).walk == ("node0/gpu0", *through, "node0/cpu0", "node0/gpu2")
