"""Cut bandwidth: numbers worked out by hand, and networkx on the whole graph."""

from __future__ import annotations

import time
from dataclasses import replace

import networkx as nx
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from commsim.errors import CollectiveError
from commsim.topology.cluster import Cluster
from commsim.topology.node import NodeTopology, PcieSwitch
from commsim.topology.wiring import Cable, Switch, Wiring, fabric_kinds
from tests.topology.machines import GB, cluster, cpus, desktop, gpus, hgx, link, mesh, ranks

# ---- by hand ----


def test_nvswitch() -> None:
    one = cluster(hgx(), 1)
    assert one.cut_bandwidth((0, 1, 2, 3), (4, 5, 6, 7)) == 4 * 450 * GB
    assert one.cut_bandwidth((0,), (1, 2)) == 450 * GB
    assert one.cut_bandwidth((0, 1), (5,)) == 450 * GB


def test_mesh_counts_the_cables_between_the_groups() -> None:
    one = cluster(mesh(), 1)
    assert one.cut_bandwidth((0, 1), (2, 3)) == 4 * 100 * GB
    assert one.cut_bandwidth((0,), (1, 2, 3)) == 3 * 100 * GB


def test_between_machines_the_nics_bind() -> None:
    two = cluster(hgx(), 2)
    assert two.cut_bandwidth(ranks(range(8)), ranks(range(8, 16))) == 8 * 50 * GB
    # A lone GPU can feed its own NIC and, through the CPU, others, up to its slot.
    assert two.cut_bandwidth((0,), (8,)) == 64 * GB


def test_slots_bind_where_nics_are_faster() -> None:
    two = cluster(hgx(nic_rate=100.0), 2)
    assert two.cut_bandwidth(ranks(range(8)), ranks(range(8, 16))) == 8 * 64 * GB


def test_oversubscription() -> None:
    # fat-tree, 64 ports, o = 2: 42 ports down, 5 machines of 8 a leaf; 10 machines fill 2 leaves.
    ten = cluster(hgx(), 10, kind="fat-tree", oversubscription=2.0)
    assert ten.cut_bandwidth(ranks(range(40)), ranks(range(40, 80))) == pytest.approx(
        40 * 50 * GB / 2
    )
    assert ten.cut_bandwidth(ranks(range(16)), ranks(range(16, 32))) == pytest.approx(16 * 50 * GB)
    # rail-optimised: 42 machines share the leaves, and rails stay on their leaf.
    rails = cluster(hgx(), 10, oversubscription=2.0)
    assert rails.cut_bandwidth(ranks(range(40)), ranks(range(40, 80))) == pytest.approx(
        40 * 50 * GB
    )


def test_a_domain_of_several_machines() -> None:
    # 4 machines of 4 GPUs in NVLink domains of 8: machines 0 and 1 share one.
    four = cluster(hgx(4), 4, domain=8)
    assert four.cut_bandwidth(ranks(range(4)), ranks(range(4, 8))) == 4 * 450 * GB
    assert four.cut_bandwidth(ranks(range(8)), ranks(range(8, 16))) == 8 * 50 * GB
    # Both: 4 GPUs to the 4 beside them over NVLink, to the 8 others over 4 NICs.
    assert four.cut_bandwidth(ranks(range(4)), ranks(range(4, 16))) == (4 * 450 + 4 * 50) * GB


def test_pcie_with_and_without_peer_access() -> None:
    # Four GPUs under one switch: peers talk through it, others over its one uplink of 32.
    assert cluster(desktop(peers=None), 1).cut_bandwidth((0, 1), (2, 3)) == 64 * GB
    assert cluster(desktop(peers=False), 1).cut_bandwidth((0, 1), (2, 3)) == 32 * GB
    assert cluster(desktop(peers=False), 1).cut_bandwidth((0,), (1,)) == 32 * GB


def test_sockets_bind() -> None:
    node = NodeTopology(
        gpus=gpus(4),
        cpus=cpus(2),
        links=(
            *(link(f"gpu{i}", f"cpu{i // 2}", "pcie", 32) for i in range(4)),
            link("cpu0", "cpu1", "socket", 20),
        ),
    )
    assert cluster(node, 1).cut_bandwidth((0, 1), (2, 3)) == 20 * GB
    assert cluster(node, 1).cut_bandwidth((0, 2), (1, 3)) == 64 * GB


def test_pairs_that_nvlink_joins_do_not_add_pcie() -> None:
    # gpu0 - gpu1 bridged at 50, gpu2 on PCIe alone: gpu1 hears over NVLink, gpu2 over PCIe.
    node = NodeTopology(
        gpus=gpus(3),
        cpus=cpus(1),
        links=(
            link("gpu0", "gpu1", "nvlink", 50),
            *(link(f"gpu{i}", "cpu0", "pcie", 16) for i in range(3)),
        ),
    )
    assert cluster(node, 1).cut_bandwidth((0,), (1,)) == 50 * GB
    assert cluster(node, 1).cut_bandwidth((0,), (2,)) == 16 * GB
    assert cluster(node, 1).cut_bandwidth((0,), (1, 2)) == 66 * GB


def test_mig_slices_share_their_gpu() -> None:
    node = NodeTopology(
        gpus=gpus(3),
        cpus=cpus(1),
        switches=(PcieSwitch(name="die0"),),
        links=(
            link("gpu0", "die0", "pcie", 32),
            link("gpu1", "die0", "pcie", 32),
            link("die0", "cpu0", "pcie", 32),
            link("gpu2", "cpu0", "pcie", 64),
        ),
    )
    assert cluster(node, 1).cut_bandwidth((0, 1), (2,)) == 32 * GB


def test_nothing_flows_without_a_way_or_a_group() -> None:
    assert cluster(desktop(n_nics=0), 2).cut_bandwidth((0,), (4,)) == 0
    assert cluster(hgx(), 2).cut_bandwidth((), (4,)) == 0


def test_wrong_ranks() -> None:
    two = cluster(hgx(), 2)
    with pytest.raises(CollectiveError, match="rank 16 does not exist"):
        two.cut_bandwidth((0,), (16,))
    with pytest.raises(CollectiveError, match="rank 3 is on both sides"):
        two.cut_bandwidth((0, 3), (3, 4))


def test_a_ring_of_cables() -> None:
    # 6 machines, 2 NICs of 25 each: any half that is an arc has two cables to the rest.
    ring = cluster(mesh(), 6, kind="direct")
    assert ring.cut_bandwidth(ranks(range(12)), ranks(range(12, 24))) == 2 * 25 * GB
    # One machine sends both ways round.
    assert ring.cut_bandwidth((0, 1, 2, 3), (12, 13, 14, 15)) == 2 * 25 * GB


def test_nics_that_lead_nowhere_do_not_help() -> None:
    # 3 machines fully meshed, NICs of 100 in slots of 64: one NIC leads to each of the others.
    three = cluster(hgx(2, nic_rate=100.0), 3, kind="direct")
    assert three.cut_bandwidth((0, 1), (2, 3)) == 64 * GB
    assert three.cut_bandwidth((0, 1), (2, 3, 4, 5)) == 128 * GB


def test_a_nic_with_a_weak_cable_does_not_lend_its_slot_to_another() -> None:
    two = cluster(hgx(2, nic_rate=100.0), 2)
    cables = (
        Cable(source="node0/nic0", target="leaf0", bandwidth=100 * GB),
        Cable(source="node0/nic1", target="leaf1", bandwidth=100 * GB),
        Cable(source="node1/nic0", target="leaf0", bandwidth=100 * GB),
        Cable(source="node1/nic1", target="leaf1", bandwidth=10 * GB),
    )
    leaves = (Switch(name="leaf0", kind="leaf"), Switch(name="leaf1", kind="leaf"))
    two.__dict__["wiring"] = Wiring(switches=leaves, cables=cables)
    assert two.cut_bandwidth((0, 1), (2, 3)) == (64 + 10) * GB


# ---- against networkx ----


def reference(one: Cluster, sources: tuple[int, ...], targets: tuple[int, ...]) -> float:
    """The documented meaning of a cut, on the whole graph with networkx."""
    graph, per_node = one.graph, one.gpus_per_node
    name = {r: f"node{r // per_node}/gpu{r % per_node}" for r in range(one.n_ranks)}
    fast = nx.DiGraph(e for e in graph.edges if graph.edges[e]["kind"] in ("nvlink", "xgmi"))
    fast.add_nodes_from(name.values())
    switches = {v for v, kind in graph.nodes(data="kind") if kind == "nvswitch"}

    def joined(a: int, b: int) -> bool:
        near = set(fast[name[a]])
        return name[b] in near or any(fast.has_edge(s, name[b]) for s in near & switches)

    total = largest(
        graph.edge_subgraph(fast.edges), {name[s] for s in sources}, {name[t] for t in targets}
    )
    senders = {name[s] for s in sources if not all(joined(s, t) for t in targets)}
    receivers = {name[t] for t in targets if not all(joined(s, t) for s in sources)}
    if not senders or not receivers:
        return total
    hosts = {v.partition("/")[0] for v in senders | receivers}
    slow = nx.DiGraph(graph.edge_subgraph(e for e in graph.edges if e not in fast.edges))
    nics = {v for v, kind in slow.nodes(data="kind") if kind == "nic"}
    for a, b in list(slow.edges):
        host = a.partition("/")[0]
        network = slow.edges[a, b]["kind"] == "network"
        sends = any(v.startswith(f"{host}/") for v in senders)
        hears = any(v.startswith(f"{host}/") for v in receivers)
        if (len(hosts) == 1 and network) or (
            not one.wiring.forwarding
            and not network
            and ((a in nics and not hears) or (b in nics and not sends))
        ):
            slow.remove_edge(a, b)
    return total + largest(slow, senders, receivers)


def largest(graph: nx.DiGraph, senders: set[str], receivers: set[str]) -> float:
    """networkx's maximum flow, in whole bytes/s so that it is exact."""
    flow = nx.DiGraph()
    flow.add_nodes_from(["source", "target"])
    for a, b, data in graph.edges(data=True):
        passed_by = [v for v in (a, b) if graph.nodes[v].get("kind") == "gpu"]
        used = all(v in senders | receivers for v in passed_by)
        if used and b not in senders and a not in receivers:
            flow.add_edge(a, b, capacity=round(data["bandwidth"]))
    flow.add_edges_from(("source", v) for v in senders)
    flow.add_edges_from((v, "target") for v in receivers)
    return float(nx.maximum_flow_value(flow, "source", "target"))


@st.composite
def cuts(draw: st.DrawFn) -> tuple[Cluster, tuple[int, ...], tuple[int, ...]]:
    node = draw(
        st.sampled_from(
            [hgx(4), hgx(2, nic_rate=100.0), desktop(peers=None, n_nics=2, nic_rate=20.0), mesh()]
        )
    )
    kind = draw(st.sampled_from([k for k in fabric_kinds() if k != "cabled"]))
    nodes = draw(st.integers(1, 6))
    assume(kind != "direct" or nodes < 3 or len(node.nics) > 1)
    one = cluster(
        node,
        nodes,
        kind=kind,
        oversubscription=draw(st.sampled_from([1.0, 2.0, 4.0])),
        domain=draw(st.sampled_from([0, 2 * len(node.gpus)])),
    )
    # Few ports, so that few machines already need several leaves, pods and groups.
    one.__dict__["site"] = replace(one.site, ports=draw(st.sampled_from([4, 8, 64])))
    side = draw(
        st.lists(st.sampled_from("st-"), min_size=one.n_ranks, max_size=one.n_ranks)
        | st.lists(st.sampled_from("st-"), min_size=nodes, max_size=nodes).map(
            lambda hosts: [h for h in hosts for _ in range(one.gpus_per_node)]
        )
    )
    sources = tuple(r for r, s in enumerate(side) if s == "s")
    targets = tuple(r for r, s in enumerate(side) if s == "t")
    assume(sources and targets)
    return one, sources, targets


@given(cuts())
@settings(max_examples=150, deadline=None)
def test_the_quotient_is_the_largest_flow(
    cut: tuple[Cluster, tuple[int, ...], tuple[int, ...]],
) -> None:
    one, sources, targets = cut
    found = one.cut_bandwidth(sources, targets)
    assert found == pytest.approx(reference(one, sources, targets), rel=1e-6)
    # Links carry the same both ways.
    assert one.cut_bandwidth(targets, sources) == pytest.approx(found, rel=1e-9)


@given(cuts())
@settings(max_examples=40, deadline=None)
def test_a_smaller_group_gets_no_more(
    cut: tuple[Cluster, tuple[int, ...], tuple[int, ...]],
) -> None:
    one, sources, targets = cut
    assume(len(sources) > 1)
    assert one.cut_bandwidth(sources[1:], targets) <= one.cut_bandwidth(sources, targets) + 1


@pytest.mark.parametrize("kind", ["rail-optimized", "fat-tree", "single-switch", "dragonfly"])
def test_sixteen_thousand_ranks(kind: str) -> None:
    big = cluster(hgx(), 2048, kind=kind)
    half = 8 * 1024
    start = time.process_time()
    across = big.cut_bandwidth(ranks(range(half)), ranks(range(half, 2 * half)))
    assert time.process_time() - start < 3
    assert across <= half * 50 * GB * (1 + 1e-9)
    # Dragonfly: 32 groups, those of one half have 16 / 31 of their cables to the other.
    share = 16 / 31 if kind == "dragonfly" else 1.0
    assert across == pytest.approx(half * 50 * GB * share)
