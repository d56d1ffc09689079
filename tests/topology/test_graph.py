"""The cluster's graph and the routes on it."""

from __future__ import annotations

import subprocess
import sys
import time

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commsim.errors import CollectiveError, UnreachableError
from commsim.topology import capacity
from commsim.topology.cluster import Cluster
from commsim.topology.load import load_cluster
from commsim.topology.node import NodeTopology, PcieSwitch
from commsim.topology.routing import MOST_ROUTES
from commsim.topology.wiring import fabric_kinds
from tests.topology.machines import GB, cluster, cpus, desktop, gpus, hgx, link, mesh, nics


def test_vertices_and_edges_of_two_machines() -> None:
    graph = cluster(hgx(), 2).graph
    kinds = nx.get_node_attributes(graph, "kind")
    # Per machine 8 GPUs, 8 NICs, 8 PCIe switches, 2 CPUs, 1 NVSwitch; 8 rails, and spines.
    assert {k: list(kinds.values()).count(k) for k in sorted(set(kinds.values()))} == {
        "cpu": 4, "gpu": 16, "leaf": 8, "nic": 16, "nvswitch": 2, "pcie-switch": 16, "spine": 1,
    }  # fmt: skip
    assert graph.nodes["node1/gpu5"] == {"kind": "gpu", "part": "H100-SXM5-80GB", "node": 1}
    assert graph.edges["node1/gpu5", "node1/nvswitch"]["bandwidth"] == 450 * GB
    assert graph.edges["node0/nic3", "leaf3"]["bandwidth"] == 50 * GB
    assert graph.edges["node0/gpu3", "node0/sw3"]["kind"] == "pcie"
    assert all(graph.has_edge(b, a) for a, b in graph.edges)
    assert all({"bandwidth", "latency", "kind"} == set(d) for _, _, d in graph.edges(data=True))
    # Three edges leave a switch between NICs on different rails, at 130 ns each.
    way = ["node0/nic0", "leaf0", "spine0", "leaf1", "node1/nic1"]
    assert sum(graph.edges[e]["latency"] for e in nx.utils.pairwise(way)) == pytest.approx(390e-9)


def test_a_domain_of_several_machines_shares_its_switch() -> None:
    # 5 machines of 4 GPUs, NVLink domains of 8 GPUs: two whole domains and a half.
    graph = cluster(hgx(4), 5, domain=8).graph
    switches = [v for v, kind in graph.nodes(data="kind") if kind == "nvswitch"]
    assert switches == ["domain0/nvswitch", "domain1/nvswitch", "domain2/nvswitch"]
    assert graph.in_degree("domain0/nvswitch") == 8
    assert graph.in_degree("domain2/nvswitch") == 4
    assert cluster(hgx(4), 5, domain=8).routes(0, 7) == (
        ("node0/gpu0", "domain0/nvswitch", "node1/gpu3"),
    )
    assert "leaf0" in cluster(hgx(4), 5, domain=8).routes(0, 8)[0]


def test_ports_of_one_card_meet_there() -> None:
    node = NodeTopology(
        gpus=gpus(1),
        nics=tuple(
            type(n)(name=n.name, index=n.index, card="card0", rate=n.rate) for n in nics(2, 25)
        ),
        cpus=cpus(1),
        links=(link("gpu0", "cpu0", "pcie", 64), link("card0", "cpu0", "pcie", 32)),
    )
    graph = cluster(node, 1).graph
    assert graph.nodes["node0/card0"]["kind"] == "card"
    assert graph.edges["node0/nic1", "node0/card0"]["bandwidth"] == 25 * GB


def test_mig_slices_share_the_link_of_their_gpu() -> None:
    node = NodeTopology(
        gpus=gpus(2),
        cpus=cpus(1),
        switches=(PcieSwitch(name="die0"),),
        links=(
            link("gpu0", "die0", "pcie", 32),
            link("gpu1", "die0", "pcie", 32),
            link("die0", "cpu0", "pcie", 32),
        ),
        gpu_peer_access=False,
    )
    assert cluster(node, 1).routes(0, 1) == (
        ("node0/gpu0", "node0/die0", "node0/cpu0", "node0/die0", "node0/gpu1"),
    )
    assert capacity.host_share(node, (0, 1)) == 16 * GB


def test_nvlink_before_pcie_before_network() -> None:
    assert cluster(hgx(), 2).routes(2, 7) == (("node0/gpu2", "node0/nvswitch", "node0/gpu7"),)
    assert cluster(mesh(), 2).routes(1, 3) == (("node0/gpu1", "node0/gpu3"),)
    assert cluster(desktop(peers=None), 2).routes(0, 1) == (
        ("node0/gpu0", "node0/sw0", "node0/gpu1"),
    )


def test_refused_peer_access_goes_through_the_cpu() -> None:
    assert cluster(desktop(), 1).routes(0, 1) == (
        ("node0/gpu0", "node0/sw0", "node0/cpu0", "node0/sw0", "node0/gpu1"),
    )


def test_one_gpu_with_links_to_both_passes_on_two_do_not() -> None:
    """A row of four: 0 reaches 2 through 1 (NCCL's NVB), but 3 over PCIe."""
    row = NodeTopology(
        gpus=gpus(4),
        cpus=cpus(1),
        links=(
            *(link(f"gpu{i}", f"gpu{i + 1}", "nvlink", 50) for i in range(3)),
            *(link(f"gpu{i}", "cpu0", "pcie", 16) for i in range(4)),
        ),
    )
    assert cluster(row, 1).routes(0, 2) == (("node0/gpu0", "node0/gpu1", "node0/gpu2"),)
    assert cluster(row, 1).routes(0, 3) == (("node0/gpu0", "node0/cpu0", "node0/gpu3"),)


def test_same_rail_and_other_rail() -> None:
    both = cluster(hgx(), 2)
    assert both.routes(3, 11) == (
        ("node0/gpu3", "node0/sw3", "node0/nic3", "leaf3", "node1/nic3", "node1/sw3", "node1/gpu3"),
    )
    assert [route[3:6] for route in both.routes(3, 12)] == [("leaf3", "spine0", "leaf4")]


def test_without_gpudirect_data_stops_at_the_cpu() -> None:
    route = cluster(hgx(gpudirect=False), 2).routes(0, 8)
    assert route == (
        (
            "node0/gpu0", "node0/sw0", "node0/cpu0", "node0/sw0", "node0/nic0", "leaf0",
            "node1/nic0", "node1/sw0", "node1/cpu0", "node1/sw0", "node1/gpu0",
        ),
    )  # fmt: skip


def test_equal_cost_routes() -> None:
    # 4 machines of 8 NICs a leaf (64 ports): 5 machines have 2 leaves and 1 spine, 32 have 8 and 4.
    assert len(cluster(hgx(), 5, kind="fat-tree").routes(0, 32)) == 1
    routes = cluster(hgx(), 32, kind="fat-tree").routes(0, 8 * 31)
    assert {route[4] for route in routes} == {"spine0", "spine1", "spine2", "spine3"}
    assert len(routes) == 4
    # Two nearest NICs at both ends, one switch: 2 x 2.
    assert len(cluster(mesh(), 2, kind="single-switch").routes(0, 4)) == 4


def test_torus_takes_both_ways_round() -> None:
    # 16 machines: 4 x 4. Router 10 is two steps away in both dimensions, and either way round is as
    # short: 4 choices of direction x 6 orders of the steps.
    routes = cluster(hgx(4), 16, kind="torus").routes(0, 40)
    assert {len([v for v in route if v.startswith("router")]) for route in routes} == {5}
    assert len(routes) == 24


def test_direct_ring_and_mesh() -> None:
    # 5 machines, 2 NICs: NIC 0 to the next machine, NIC 1 to the one before.
    ring = cluster(mesh(), 5, kind="direct")
    assert {route[2:4] for route in ring.routes(0, 4)} == {("node0/nic0", "node1/nic1")}
    (route,) = ring.routes(0, 8)
    assert route == (
        "node0/gpu0", "node0/cpu0", "node0/nic0", "node1/nic1", "node1/cpu0", "node1/nic0",
        "node2/nic1", "node2/cpu0", "node2/gpu0",
    )  # fmt: skip
    # 3 machines, 2 NICs: a cable to each; node0 and node2 use NIC 1 and NIC 0.
    assert [route[2:4] for route in cluster(mesh(), 3, kind="direct").routes(0, 8)] == [
        ("node0/nic1", "node2/nic0")
    ]


def test_a_gpu_uses_the_cabled_nic_even_if_it_is_far() -> None:
    # 9 machines of 8 GPUs with a NIC each, fully meshed: only one NIC leads to a given machine.
    far = cluster(hgx(), 9, kind="direct")
    (route,) = far.routes(0, 8 * 8)
    assert "node0/nic7" in route
    assert "node8/nic0" in route


def test_a_rank_and_itself() -> None:
    assert cluster(hgx(), 2).routes(9, 9) == (("node1/gpu1",),)


@pytest.mark.parametrize("rank", [-1, 16])
def test_a_rank_that_does_not_exist(rank: int) -> None:
    with pytest.raises(CollectiveError, match=rf"rank {rank} does not exist, expected 0 .. 15"):
        cluster(hgx(), 2).routes(0, rank)


def test_unreachable_says_what_to_do() -> None:
    with pytest.raises(UnreachableError, match=r"rank 0 .* rank 4 .*no NICs; add \[node.nics\]"):
        cluster(desktop(n_nics=0), 2).routes(0, 4)
    apart = NodeTopology(gpus=gpus(2), cpus=cpus(1), links=(link("gpu0", "cpu0", "pcie", 16),))
    with pytest.raises(UnreachableError, match="no link leads from one to the other"):
        cluster(apart, 1).routes(0, 1)
    loose = NodeTopology(gpus=gpus(1), nics=nics(1, 25), cpus=cpus(1))
    with pytest.raises(UnreachableError, match="no path leads from gpu0 to a NIC"):
        cluster(loose, 2).routes(0, 1)


def clusters() -> st.SearchStrategy[Cluster]:
    machines = st.sampled_from([hgx(4), hgx(2, gpudirect=False), desktop(n_nics=2), mesh()])
    return st.builds(
        lambda node, nodes, kind, domain: cluster(node, nodes, kind=kind, domain=domain),
        machines,
        st.integers(1, 6),
        st.sampled_from([k for k in fabric_kinds() if k != "cabled"]),
        st.sampled_from([0, 8]),
    )


@given(clusters(), st.data())
@settings(max_examples=80, deadline=None)
def test_routes_are_walks_of_equal_length_and_the_same_back(
    one: Cluster, data: st.DataObject
) -> None:
    a = data.draw(st.integers(0, one.n_ranks - 1))
    b = data.draw(st.integers(0, one.n_ranks - 1))
    routes = one.routes(a, b)
    assert len(set(routes)) == len(routes) > 0
    assert len({len(route) for route in routes}) == 1
    per_node = one.gpus_per_node
    for route in routes:
        assert route[0] == f"node{a // per_node}/gpu{a % per_node}"
        assert route[-1] == f"node{b // per_node}/gpu{b % per_node}"
        assert all(one.graph.has_edge(*edge) for edge in nx.utils.pairwise(route))
        assert all(one.graph.nodes[v]["kind"] != "gpu" for v in route[1:-1])
    assert {route[::-1] for route in one.routes(b, a)} == set(routes)


def test_a_ring_of_cables_leads_straight_to_the_next_machine() -> None:
    # NICs 0 and 1 of a machine lead on, 2 and 3 back: machine 0's NIC 0 to machine 1's NIC 2.
    one = cluster(hgx(4), 6, kind="direct")
    cable = ("node0/gpu0", "node0/sw0", "node0/nic0", "node1/nic2", "node1/sw2")
    across = ("node1/cpu1", "node1/cpu0", "node1/sw0", "node1/gpu0")
    assert one.routes(0, 6) == ((*cable, "node1/gpu2"),)
    assert one.routes(0, 4) == ((*cable, *across),)
    assert one.routes(4, 0) == ((*cable, *across)[::-1],)


def test_sixteen_thousand_gpus_take_seconds() -> None:
    start = time.process_time()
    big = cluster(hgx(), 2048)
    assert sum(1 for _, kind in big.graph.nodes(data="kind") if kind == "gpu") == 16384
    assert time.process_time() - start < 10
    start = time.process_time()
    assert len(big.routes(0, 16380)[0]) == 11
    assert time.process_time() - start < 1


def test_networkx_is_not_imported_before_the_graph_is_asked_for() -> None:
    script = "import sys, commsim.topology.cluster as c; sys.exit('networkx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=60).returncode == 0


def test_of_very_many_routes_the_first_are_listed() -> None:
    """Around a ring of 16 machines with two cables from one to the next, eight hops away: 2^15 and
    more routes, all equally long.
    """
    ring = load_cluster("dgx-h100", nodes=16, **{"fabric.kind": "direct"})
    routes = ring.routes(0, 64)
    assert len(set(routes)) == len(routes) == MOST_ROUTES
    assert len({len(route) for route in routes}) == 1
    assert {route[0] for route in routes} == {"node0/gpu0"}
    assert {route[-1] for route in routes} == {"node8/gpu0"}
