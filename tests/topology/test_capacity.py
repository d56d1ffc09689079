"""What machines can carry, against numbers worked out from their links by hand."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from commsim.topology import capacity
from commsim.topology.flow import INFINITE, maximum_flow
from commsim.topology.node import Gpu, Nic, NodeTopology, PcieSwitch
from commsim.topology.node_paths import host_links, through_host
from tests.topology.machines import GB, cpus, desktop, gpus, hgx, link, nics

EVERY = tuple(range(8))


def test_flow_of_a_textbook_network() -> None:
    # Cormen et al., Introduction to Algorithms, figure 26.1: the largest flow is 23.
    edges = [
        ("s", "v1", 16.0), ("s", "v2", 13.0), ("v1", "v3", 12.0), ("v2", "v1", 4.0),
        ("v3", "v2", 9.0), ("v2", "v4", 14.0), ("v4", "v3", 7.0), ("v3", "t", 20.0),
        ("v4", "t", 4.0),
    ]  # fmt: skip
    assert maximum_flow(edges, "s", "t") == 23


def test_flow_without_a_limit_or_a_way() -> None:
    assert maximum_flow([("s", "a", INFINITE), ("a", "t", INFINITE)], "s", "t") == INFINITE
    assert maximum_flow([("s", "a", 1.0), ("t", "a", 1.0)], "s", "t") == 0
    assert maximum_flow([("s", "a", INFINITE), ("a", "t", 2.0), ("a", "t", 3.0)], "s", "t") == 5


def test_scale_up() -> None:
    node = hgx()
    assert capacity.scale_up_bandwidth(node, EVERY) == 450 * GB
    assert capacity.scale_up_bandwidth(node, (2, 5)) == 450 * GB
    assert capacity.scale_up_islands(node, (1, 3, 6)) == ((1, 3, 6),)
    assert capacity.scale_up_bandwidth(desktop(), (0, 1)) == 0
    assert capacity.scale_up_islands(desktop(), (0, 1)) == ((0,), (1,))


def test_scale_up_of_a_mesh_counts_links_to_members_only() -> None:
    # A100 board of four: 4 links of 25 GB/s between every two.
    links = tuple(
        link(f"gpu{a}", f"gpu{b}", "nvlink", 100) for a in range(4) for b in range(a + 1, 4)
    )
    node = NodeTopology(
        gpus=tuple(Gpu(name=f"gpu{i}", index=i, part="") for i in range(4)), links=links
    )
    assert capacity.scale_up_bandwidth(node, (0, 1, 2, 3)) == 300 * GB
    assert capacity.scale_up_bandwidth(node, (0, 3)) == 100 * GB


def test_a_relay_that_takes_no_part_joins_nobody() -> None:
    node = NodeTopology(
        gpus=tuple(Gpu(name=f"gpu{i}", index=i, part="") for i in range(3)),
        links=(link("gpu0", "gpu1", "nvlink", 50), link("gpu1", "gpu2", "nvlink", 50)),
    )
    assert capacity.scale_up_islands(node, (0, 1, 2)) == ((0, 1, 2),)
    assert capacity.scale_up_islands(node, (0, 2)) == ((0,), (2,))


def test_pcie_shares() -> None:
    node = desktop()
    assert capacity.pcie_bandwidth(node, (0, 1, 2, 3)) == 32 * GB
    assert capacity.host_share(node, (0, 1, 2, 3)) == 8 * GB
    # Every hop goes up and down the one uplink: 4 uses in each direction.
    assert capacity.host_ring_bandwidth(node, (0, 1, 2, 3)) == 8 * GB


def test_ring_over_pcie_with_peer_access_stays_under_the_switch() -> None:
    node = hgx()
    # sw0 .. sw7 are apart: each hop uses its own uplink once, the socket link carries one hop
    # each way.
    assert capacity.host_ring_bandwidth(node, EVERY) == 40 * GB
    assert capacity.host_ring_bandwidth(node, (0, 1, 2, 3)) == 64 * GB


def test_rings_from_nic_to_nic_share_the_ways_inside() -> None:
    # Under one uplink of 32 GB/s every hop between GPUs goes up and down: a chain of four takes it
    # three times each way, and once more from and to the NIC at the CPU: 32 GB/s over four.
    node = desktop()
    assert capacity.chains_bandwidth(node, ((0, (0, 1, 2, 3), 0),)) == 8 * GB
    assert capacity.chains_bandwidth(node, ((0, (0, 1, 2, 3), 0), (0, (3, 2, 1, 0), 0))) == 8 * GB
    # Switches of their own: a chain uses each uplink once, into and out of its switch, and the
    # socket link once; eight rings over eight NICs share every uplink.
    node = hgx()
    assert capacity.chains_bandwidth(node, ((0, (0, 1, 2, 3), 3),)) == 64 * GB
    assert capacity.chains_bandwidth(node, ((0, (0, 1, 2, 3, 4, 5, 6, 7), 7),)) == 40 * GB
    assert capacity.chains_bandwidth(node, ()) == 0


def test_each_gpu_has_its_own_nic() -> None:
    node = hgx()
    assert [capacity.own_nics(node, g, EVERY) for g in range(8)] == [(g,) for g in range(8)]
    assert capacity.used_nics(node, (3, 4)) == (3, 4)
    assert capacity.network_bandwidth(node, EVERY) == 400 * GB
    assert capacity.network_bandwidth(node, (3, 4)) == 100 * GB


def test_a_nic_is_no_faster_than_its_slot() -> None:
    assert capacity.network_bandwidth(hgx(nic_rate=100.0, pcie=64.0), EVERY) == 8 * 64 * GB


def test_ports_of_one_card_share_its_slot() -> None:
    node = NodeTopology(
        gpus=(Gpu(name="gpu0", index=0, part=""),),
        nics=tuple(Nic(name=f"nic{i}", index=i, card="card", rate=25 * GB) for i in range(2)),
        cpus=cpus(1),
        links=(link("gpu0", "cpu0", "pcie", 64), link("card", "cpu0", "pcie", 32)),
    )
    assert capacity.network_cut(node, (0,)) == 32 * GB


def test_without_gpudirect_the_shared_uplink_carries_each_byte_twice() -> None:
    # GPU and NIC below one x16 uplink of 64 GB/s: 32 in and 32 out at once, less than the 50.
    assert capacity.network_bandwidth(hgx(gpudirect=False), (0,)) == 32 * GB
    assert capacity.network_bandwidth(hgx(gpudirect=False), EVERY) == 8 * 32 * GB
    # A slow NIC is not hurt.
    assert capacity.network_bandwidth(hgx(gpudirect=False, nic_rate=25.0), EVERY) == 200 * GB


def test_without_gpudirect_but_on_its_own_root_port_a_nic_keeps_its_rate() -> None:
    node = desktop(n_nics=2, gpudirect=False)
    assert capacity.network_cut(node, (0, 1, 2, 3)) == 25 * GB


def test_four_gpus_share_one_switch_uplink_to_their_nics() -> None:
    node = desktop(n_nics=3)
    assert capacity.network_cut(node, (0, 1, 2, 3)) == 32 * GB


def test_nics_of_a_lone_gpu() -> None:
    # DGX A100: two GPUs and two NICs below each switch.
    links = [link(f"gpu{i}", "sw0", "pcie", 32) for i in range(2)]
    links += [link(f"nic{i}", "sw0", "pcie", 32) for i in range(2)]
    links += [link("sw0", "cpu0", "pcie", 32)]
    node = NodeTopology(
        gpus=tuple(Gpu(name=f"gpu{i}", index=i, part="") for i in range(2)),
        nics=tuple(Nic(name=f"nic{i}", index=i, card=f"nic{i}", rate=25 * GB) for i in range(2)),
        cpus=cpus(1),
        switches=(PcieSwitch(name="sw0"),),
        links=tuple(links),
    )
    assert capacity.own_nics(node, 0, (0, 1)) == (0,)
    assert capacity.own_nics(node, 1, (0, 1)) == (1,)
    assert set(capacity.own_nics(node, 1, (1,))) == {0, 1}
    # Alone, its own slot of 32 is the limit and not the two NICs' 50.
    assert capacity.network_bandwidth(node, (1,)) == 32 * GB
    assert capacity.network_bandwidth(node, (0, 1)) == 50 * GB


def test_no_network() -> None:
    node = desktop(n_nics=0)
    assert capacity.nearest_nics(node, 0) == ()
    assert capacity.network_bandwidth(node, (0, 1)) == 0


def test_asking_again_is_free() -> None:
    node = hgx()
    capacity.network_bandwidth(node, EVERY)
    start = time.process_time()
    for _ in range(1000):
        capacity.network_bandwidth(node, EVERY)
    assert time.process_time() - start < 0.05


@pytest.mark.parametrize("gpudirect", [True, False])
def test_more_bandwidth_never_carries_less(gpudirect: bool) -> None:
    slow = capacity.network_cut(hgx(pcie=32.0, gpudirect=gpudirect), EVERY)
    fast = capacity.network_cut(hgx(pcie=64.0, gpudirect=gpudirect), EVERY)
    assert 0 < slow <= fast <= 400 * GB


@st.composite
def machines(draw: st.DrawFn) -> NodeTopology:
    """1 or 2 sockets, up to 3 switches, GPUs and NICs anywhere; no GPUDirect."""
    n_cpus = draw(st.integers(1, 2))
    n_switches = draw(st.integers(1, 3))
    rate = st.sampled_from([8, 16, 32, 64])
    links = [link("cpu0", "cpu1", "socket", draw(st.sampled_from([5, 20, 100])))]
    links = links if n_cpus == 2 else []
    links += [
        link(f"sw{s}", f"cpu{draw(st.integers(0, n_cpus - 1))}", "pcie", draw(rate))
        for s in range(n_switches)
    ]
    places = [f"sw{s}" for s in range(n_switches)] + [f"cpu{c}" for c in range(n_cpus)]
    n, k = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    for name in [f"gpu{i}" for i in range(n)] + [f"nic{i}" for i in range(k)]:
        links.append(link(name, draw(st.sampled_from(places)), "pcie", draw(rate)))
    return NodeTopology(
        gpus=gpus(n),
        nics=nics(k, draw(st.sampled_from([10.0, 25.0, 50.0])), gpudirect=False),
        cpus=cpus(n_cpus),
        switches=tuple(PcieSwitch(name=f"sw{s}") for s in range(n_switches)),
        links=tuple(links),
    )


def by_linear_program(node: NodeTopology) -> float:
    """The most that all GPUs can send and receive through host memory at once, bytes/s.

    A variable for each way GPU - CPU memory - NIC; a directed link carries what is sent over it
    and, mirrored, what is received.
    """
    links = host_links(node)
    rows: dict[tuple[str, str], dict[int, float]] = {}
    variables = 0
    for gpu in node.gpus:
        for nic in node.nics:
            way = through_host(node, gpu.name, nic.name)
            for a, b in pairwise(way):
                for edge in ((a, b), (b, a)):
                    row = rows.setdefault(edge, {})
                    row[variables] = row.get(variables, 0.0) + 1.0
            row = rows.setdefault((nic.name, "wire"), {})
            row[variables] = 1.0
            variables += 1
    matrix = [[row.get(v, 0.0) for v in range(variables)] for row in rows.values()]
    rates = {n.name: n.rate for n in node.nics}
    limits = [rates[a] if b == "wire" else links[a][b] for a, b in rows]
    best = linprog([-1.0] * variables, A_ub=matrix, b_ub=[limit / GB for limit in limits])
    return float(-best.fun * GB)


@given(machines())
@settings(max_examples=80, deadline=None)
def test_staging_through_host_memory_is_the_best_schedule(node: NodeTopology) -> None:
    every = tuple(range(len(node.gpus)))
    found, best = capacity.network_cut(node, every), by_linear_program(node)
    if len(node.cpus) == 1:
        assert found == pytest.approx(best, rel=1e-6)
    else:  # with sockets between, a bound
        assert found >= best * (1 - 1e-6)
