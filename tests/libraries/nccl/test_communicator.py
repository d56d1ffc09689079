"""Channel counts against NCCL's own; alignment over unequal nodes; NCCL_* variables."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from commsim.errors import LibraryError
from commsim.libraries.nccl.communicator import communicator, layout
from commsim.libraries.nccl.graph import Communicator, PathType, Pattern
from tests.libraries.nccl import machines
from tests.libraries.nccl.machines import computed, group

EIGHT = (tuple(range(8)),)


def _h100(nodes: int = 2, version: tuple[int, ...] = (2, 27, 7), **env: str) -> Communicator:
    return communicator(
        machines.dgx_h100(),
        domains=((EIGHT, nodes),),
        version=version,
        env=tuple(sorted(env.items())),
    )


@pytest.mark.parametrize(
    "row", computed("nccl_communicators.csv"), ids=lambda r: f"{r['machine']}-{r['nodes']}"
)
def test_channel_counts_are_nccls(row: dict[str, str]) -> None:
    c = group(row["machine"], int(row["nodes"]))
    chunks = (c.nvls_chunk, c.nvls_tree_max_chunk) if c.nvls_support else (0, 0)
    got = {
        "ranks": c.n,
        "channels": c.channels,
        "coll_channels": c.coll_channels,
        "nvls_channels": c.nvls_channels,
        "p2p_channels": c.p2p_channels,
        "p2p_channels_per_peer": c.p2p_channels_per_peer,
        "nvls_support": c.nvls_support,
        "mnnvl": c.mnnvl,
        "max_bw": c.max_bw,
        "total_bw": c.total_bw,
        "all_nvlink": c.all_nvlink,
        "all_direct_p2p": c.all_direct_p2p,
        "min_net_bw": c.min_net_bandwidth,
        "nvls_chunk": chunks[0],
        "nvls_tree_max_chunk": chunks[1],
    }
    for key, value in got.items():
        assert float(value) == pytest.approx(float(row[key]), rel=1e-6), key


def test_many_equal_nodes_cost_as_much_as_two() -> None:
    _h100(2)
    start = time.process_time()
    c = _h100(2048)
    assert time.process_time() - start < 0.05
    assert (c.n, c.nodes) == (16384, 2048)
    assert c.ring == _h100(2).ring


def test_unequal_nodes_take_the_least_of_each() -> None:
    node = machines.dgx_h100()
    whole = communicator(node, domains=((EIGHT, 2),), version=(2, 27, 7))
    half = communicator(node, domains=((((0, 1),), 2),), version=(2, 27, 7))
    mixed = communicator(node, domains=((EIGHT, 1), (((0, 1),), 1)), version=(2, 27, 7))
    assert mixed.ring.channels == min(whole.ring.channels, half.ring.channels)
    assert mixed.ring.bw_inter == min(whole.ring.bw_inter, half.ring.bw_inter)
    assert mixed.ring.type_inter == max(whole.ring.type_inter, half.ring.type_inter)
    assert (mixed.n, mixed.min_local_ranks, mixed.max_local_ranks) == (10, 2, 8)


def test_layout_of_ranks() -> None:
    assert layout(range(16), 8) == ((EIGHT, 2),)
    assert layout([0, 1, 8, 16], 8) == ((((0, 1),), 1), (((0,),), 2))
    rack = layout(range(144), 4, 18)
    assert rack == ((((0, 1, 2, 3),) * 18, 2),)


def test_versions_outside_the_model_are_taken_as_the_nearest() -> None:
    assert _h100(2, (2, 4, 8)).ring == _h100(2, (2, 18, 0)).ring
    assert _h100(2, (2, 14, 3)).channels == _h100(2, (2, 18, 0)).channels
    assert _h100(2, (2, 31, 2)).ring == _h100(2, (2, 30, 7)).ring


def test_channel_variables() -> None:
    assert _h100(1).coll_channels == 24
    assert _h100(1, NCCL_MAX_NCHANNELS="8").coll_channels == 8
    assert _h100(1, NCCL_MIN_NCHANNELS="32").coll_channels == 32
    assert _h100(1, NCCL_MAX_CTAS="4").coll_channels == 4
    assert _h100(2, NCCL_MIN_NRINGS="20").coll_channels == 20
    # the ring bandwidth of the search is what it was: only the count of channels changes
    assert _h100(1, NCCL_MAX_NCHANNELS="8").ring == _h100(1).ring


def test_nvls_variables() -> None:
    assert _h100(1).nvls_support
    assert not _h100(1, NCCL_NVLS_ENABLE="0").nvls_support
    assert _h100(1, NCCL_NVLS_NCHANNELS="8").nvls_channels == 8
    refused = communicator(
        machines.dgx_h100(), domains=((EIGHT, 1),), version=(2, 27, 7), multicast=False
    )
    assert not refused.nvls_support


def test_nvls_needs_three_ranks_up_to_2_27() -> None:
    node = machines.dgx_h100()
    for version, supported in (((2, 27, 7), False), ((2, 28, 9), True)):
        c = communicator(node, domains=((((0, 1),), 1),), version=version)
        assert c.nvls_support is supported


def test_raised_channels_of_blackwell_in_2_25_to_2_27() -> None:
    node = machines.hgx_b200()
    for version, total in (((2, 27, 7), 32), ((2, 28, 9), 16)):
        c = communicator(node, domains=((EIGHT, 2),), version=version)
        assert (c.coll_channels, c.channels) == (16, total)


def test_peer_to_peer_variables_move_the_paths() -> None:
    node = machines.pair(machines.AMD_ROME, 80, where="switch")

    def ring(**env: str) -> PathType:
        return communicator(
            node, domains=((((0, 1),), 1),), version=(2, 27, 7), env=tuple(env.items())
        ).ring.type_intra

    assert ring() == PathType.PIX
    assert ring(NCCL_P2P_DISABLE="1") == PathType.PHB
    assert ring(NCCL_P2P_LEVEL="LOC") == PathType.PHB
    assert ring(NCCL_P2P_LEVEL="SYS") == PathType.PIX


def test_cross_nic_zero_keeps_every_ring_on_its_nic() -> None:
    assert _h100(2).ring.cross_nic == 2
    kept = _h100(2, NCCL_CROSS_NIC="0")
    assert kept.ring.cross_nic == 0
    assert all(a == b for a, b in kept.ring.nets)


def test_nics_can_be_hidden() -> None:
    one = _h100(2, NCCL_IB_HCA="mlx5_0")
    assert one.nic_count == 1
    assert one.ring.channels * one.ring.bw_inter <= 50
    assert _h100(2, NCCL_IB_HCA="^mlx5_7").nic_count == 7


def test_gpudirect_level_forces_the_host_path() -> None:
    far = _h100(2, NCCL_NET_GDR_LEVEL="LOC")
    assert far.ring.type_inter >= PathType.PHB


def test_network_peers_variable() -> None:
    assert _h100(2, NCCL_NCHANNELS_PER_NET_PEER="8").p2p_channels_per_peer == 8
    assert _h100(2, NCCL_MAX_P2P_NCHANNELS="4").p2p_channels == 4


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NCCL_MIN_NCHANNELS", "many"),
        ("NCCL_P2P_LEVEL", "FAR"),
        ("NCCL_CROSS_NIC", "7"),
        ("NCCL_NET_GDR_LEVEL", "near"),
    ],
)
def test_values_nccl_could_not_use_are_refused_in_one_line(name: str, value: str) -> None:
    with pytest.raises(LibraryError, match=name) as caught:
        _h100(2, (2, 27, 7), **{name: value})
    assert "\n" not in str(caught.value)
    assert value in str(caught.value)


def test_collnet_graphs_only_with_collnet() -> None:
    assert _h100(2).collnet_chain is None
    node = machines.dgx_h100()
    node = replace(node, nics=tuple(replace(n, collnet=True) for n in node.nics))
    c = communicator(node, domains=((EIGHT, 2),), version=(2, 27, 7), collnet=True)
    assert c.collnet_chain is not None
    assert c.collnet_chain.pattern == Pattern.TREE
    assert c.collnet_direct is not None
    assert c.collnet_direct.channels == 8


def test_hosts_that_the_network_splits_count_as_more_nodes() -> None:
    groups = [machines.Group(i // 2, (2 * i, 2 * i + 1), (i,)) for i in range(4)]
    node = machines.machine(groups, 89, machines.INTEL_ICELAKE, gen=16.0, rate_gbit=200)
    c = communicator(node, domains=((EIGHT, 1),), version=(2, 30, 7))
    assert (c.n, c.nodes, c.max_local_ranks) == (8, 2, 4)
    assert [n.ranks for n in c.domains[0].nodes] == [(0, 1, 2, 3), (4, 5, 6, 7)]


def test_a_rack_is_one_node_only_from_2_21() -> None:
    tray = machines.gb200_tray()
    rack = ((((0, 1, 2, 3),) * 2, 1),)
    for version, nodes in (((2, 20, 5), 2), ((2, 21, 5), 1)):
        c = communicator(tray, domains=rack, version=version)
        assert (c.n, c.nodes) == (8, nodes)
