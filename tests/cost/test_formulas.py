"""Formulas against numbers worked out by hand, with round constants."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from commsim.cost.formulas import nvls, overlap, point_to_point, ring, tree

US = 1e-6
ROUND: dict[str, Any] = {
    "base": 10 * US, "speed": 1.0, "net.speed": 1.0, "simple.speed": 1.0, "remote": 1.0,
    "hop.ll": 1 * US, "hop.ll.tiny": 0.0, "hop.simple": 10 * US, "net.ll": 5 * US,
    "net.simple": 20 * US, "wire": 0.5, "rendezvous": 0.0, "link": 1.0,
    "share.ll": 0.5, "share.simple": 1.0, "ring.copy.ll": 0.5, "ring.copy.simple": 0.5,
    "ring.start": 1.0, "ring.reduce": 0.1, "ring.fill": 0.0,
    "ring.store": 0.5, "net.message": 4 * US, "net.ll.message": 1 * US, "net.match": 3 * US,
    "net.inject": 12 * US, "net.flush": 3 * US, "tree.ll": 1 * US,
    "overlap.ll": 1.0, "overlap.simple": 1.0,
    "overlap.net": 1.0, "overlap.nvls": 1.0, "overlap.p2p": 1.0, "overlap.p2p.net": 1.0,
    "channel.ll": 2.0, "channel.simple": 2.0, "int8": 0.0, "nic": 0.9, "nic.ll": 0.5,
    "nic.simple": 1.0, "nic.p2p": 0.9,
    "nic.shift": 0.8, "tree.simple": 4 * US, "net.tree.simple": 20 * US,
    "tree.link": 0.8, "tree.cap": 1.0, "tree.fill": 0.0, "nvls.link": 0.9, "nvls.one_way": 1.0,
    "nvls.tree": 1.0, "nvls.chunk": 1 * US, "nvls.start": 20 * US, "nvls.net": 10 * US,
    "p2p.start": 2 * US, "p2p.peer": 1 * US, "p2p.simple": 3 * US, "p2p.net": 5 * US,
    "p2p.remote": 4 * US, "p2p.link": 1.0, "p2p.self": 0.25, "p2p.channel": 1.0,
    "p2p.channel.ll": 1.0, "p2p.block": 10e9, "socket": 4e9, "share.p2p.ll": 0.5,
}  # fmt: skip


def features(**given: Any) -> SimpleNamespace:
    usual = {
        "n": 8.0, "nodes": 1.0, "local_ranks": 8.0, "nbytes": float(1 << 30), "crosses": 0.0,
        "link": 240e9, "net": 1e18, "channels": 24.0, "protocol_name": "simple",
        "algorithm_name": "ring", "channel_share": 1.0, "rendezvous": 0.0, "narrow_reduction": 0.0,
        "clock": 1.0, "host": 1.0, "latency": 2e-6, "steps": 14.0, "copies": 1.0, "hops_net": 0.0,
        "hops_local": 14.0,
        "piece_per_channel": 0.0, "reduces": 0.0, "sockets": 1e18,
        "messages": 60.0, "threads": 1.0, "round_bytes": 0.0, "software": 0.0, "injected": 0.0,
        "queued": 0.0, "flushes": 0.0,
    }  # fmt: skip
    return SimpleNamespace(**(usual | given))


def total(parts: dict[str, Any]) -> float:
    return float(sum(parts.values()))


def test_ring_on_one_node() -> None:
    # 10 us launch + (1 + 14) hops x 10 us + 14.5 pieces of 128 MiB at 240 GB/s (docs/models.md)
    expected = (10 + 15 * 10) * US + 14.5 * (1 << 27) / 240e9
    assert total(ring(features(), ROUND)) == pytest.approx(expected)
    assert expected == pytest.approx(8269 * US, rel=1e-4)


def test_a_reduce_scatter_ends_with_a_costlier_copy() -> None:
    f = features(steps=7.0, hops_local=7.0, reduces=1.0)
    # 7 pieces over the link, the last copy half a step and a tenth more
    expected = (10 + 8 * 10) * US + 7.6 * (1 << 27) / 240e9
    assert total(ring(f, ROUND)) == pytest.approx(expected)


def test_ring_over_the_network_is_bound_by_the_nics() -> None:
    # two nodes: 4 of 30 hops over the network at 20 + 1 us and half of what 16 channels move
    # in a round, one to open;
    # 30/16 GiB over 400 GB/s x 0.9
    f = features(
        n=16.0, nodes=2.0, crosses=1.0, link=1e18, net=400e9, steps=30.0, hops_net=4.0,
        hops_local=26.0, round_bytes=float(32 << 20),
    )  # fmt: skip
    expected = (10 + 27 * 10 + 4 * 21) * US + (30 / 16 * (1 << 30) + 4 * 0.5 * (32 << 20)) / 360e9
    assert total(ring(f, ROUND)) == pytest.approx(expected)


def test_messages_of_one_nic_follow_each_other() -> None:
    # 4 nodes of 4 GPUs, 24 channels on 4 NICs: 6 messages of 43 KiB a step and NIC, 4 us each;
    # their bytes would take 10.5 us / 0.9
    f = features(
        n=16.0, nodes=4.0, crosses=1.0, link=1e18, net=100e9, steps=30.0, hops_net=8.0,
        hops_local=22.0, nbytes=float(16 << 20), messages=30 * 6.0, round_bytes=float(1 << 20),
    )  # fmt: skip
    wire = (1 << 20) / 90e9
    assert wire < 6 * 4 * US
    expected = (10 + 23 * 10 + 8 * 21) * US + 8 * 0.5 * wire + 30 * 6 * 4 * US
    assert total(ring(f, ROUND)) == pytest.approx(expected)


def test_what_has_arrived_is_flushed_into_older_gpus() -> None:
    # 2 nodes of 4 GPUs, 14 steps of two slices on one channel a NIC, each sent for 4 us and flushed
    # for 3; the hops over the network are longer by as much
    f = features(
        nodes=2.0, crosses=1.0, link=1e18, net=1e18, nbytes=float(1 << 20), hops_net=4.0,
        hops_local=10.0, messages=28.0, flushes=1.0,
    )  # fmt: skip
    parts = ring(f, ROUND)
    assert parts["hops"] == pytest.approx((11 * 10 + 4 * (20 + 1 + 3)) * US)
    assert parts["transfer"] == pytest.approx(28 * (4 + 3) * US)


def test_ll_messages_queue_where_they_take_longer_than_the_hops() -> None:
    # 2 nodes of 4 GPUs, 512 KiB, 16 channels on 4 NICs: 14 steps of 4 messages; each 1 us, 8 more
    # past the threshold, 3 more matched in software
    f = features(
        protocol_name="ll", nodes=2.0, crosses=1.0, link=1e18, nbytes=float(512 << 10),
        hops_net=4.0, hops_local=10.0, messages=56.0,
    )  # fmt: skip
    slow = {**ROUND, "rendezvous": 8 * US}
    assert ring(f, ROUND)["hops"] == pytest.approx(56 * US)  # the hops alone: 10 x 1 and 4 x 6
    f.rendezvous = 1.0
    assert ring(f, slow)["hops"] == pytest.approx(56 * 9 * US)
    f.software = 1.0
    assert ring(f, slow)["hops"] == pytest.approx(56 * 12 * US)
    f.messages = 4.0
    assert ring(f, slow)["hops"] == pytest.approx((10 + 4 * (6 + 8)) * US)


def test_a_tree_of_many_channels_waits_for_the_messages_before_its_own() -> None:
    f = features(
        protocol_name="ll", nodes=4.0, crosses=1.0, net=400e9, hops_local=6.0, hops_net=4.0,
        net_passes=2.0, tree_cap=1e18, fill_bytes=0.0, queued=9.0, software=1.0,
    )  # fmt: skip
    # 9 messages of 1 us, found in software 3 us later, before the last of its own
    assert tree(f, ROUND)["hops"] == pytest.approx((6 + 4 * 6 + 9 * 4) * US)


def test_sockets_carry_what_a_thread_copies() -> None:
    f = features(n=16.0, nodes=2.0, crosses=1.0, link=1e18, net=100e9, sockets=4.0, steps=30.0)
    # 30/16 GiB over four NICs at 4 GB/s each instead of 100 GB/s x 0.9
    assert ring(f, ROUND)["transfer"] == pytest.approx(30 / 16 * (1 << 30) / 16e9)


def test_ll_uses_half_the_link_and_few_channels_only_part_of_it() -> None:
    f = features(protocol_name="ll", nbytes=8192.0, channel_share=1 / 24)
    # 14.5 KiB at 240 GB/s x 0.5 x 2/24
    expected = (10 + 14) * US + 14.5 * 1024 / (240e9 * 0.5 * 2 / 24)
    assert total(ring(f, ROUND)) == pytest.approx(expected, rel=1e-6)


def test_tree_on_four_nodes_takes_the_slowest_of_link_nics_and_branch() -> None:
    f = features(
        nodes=4.0, crosses=1.0, net=400e9, hops_local=14.0, hops_net=4.0, net_passes=2.0,
        tree_cap=100e9, fill_bytes=0.0,
    )  # fmt: skip
    # link: 2/(0.8 x 240) = 10.4, NICs: 2/360 = 5.6, branch: 1/100 = 10 ms per GB
    expected = (10 + 14 * 4 + 4 * 21) * US + 2 * (1 << 30) / (0.8 * 240e9)
    assert total(tree(f, ROUND)) == pytest.approx(expected)
    f.tree_cap = 50e9
    assert total(tree(f, ROUND)) == pytest.approx(150 * US + (1 << 30) / 50e9)


def test_nvls_moves_one_and_an_eighth_and_pays_for_its_chunks() -> None:
    f = features(
        algorithm_name="nvls", link=370.8e9, blocks=16.0, chunk=131072.0, both_ways=1.0,
        net_passes=1.0,
    )  # fmt: skip
    # 1 GiB x 1.125 at 0.9 x 370.8 GB/s, 512 chunks a block at 1 us
    expected = (10 + 20) * US + 1.125 * (1 << 30) / (0.9 * 370.8e9) + 512 * US
    assert total(nvls(f, ROUND)) == pytest.approx(expected)


def test_all_to_all_on_one_node() -> None:
    each = (1 << 30) / 8
    f = features(
        algorithm_name="p2p", peers_local=7.0, peers_remote=0.0, local_bytes=7 * each,
        self_bytes=each, memory=2000e9, largest_part=0.0, mesh=1.0, p2p_channels=32.0,
        p2p_lanes=32.0,
        net_bytes=0.0, shift=0.0, block_bytes=0.0,
    )  # fmt: skip
    # start 2 + 7 + 3 us; 7 pieces over the link, one copied at a quarter of 2 TB/s
    expected = (10 + 12) * US + 7 * each / 240e9 + each / 500e9
    assert total(point_to_point(f, ROUND)) == pytest.approx(expected)


def test_all_to_all_over_the_network_copies_first_chunks_before_the_wire() -> None:
    each = float(1 << 20)
    f = features(
        n=16.0, nodes=2.0, nbytes=16 * each, crosses=1.0, net=400e9, algorithm_name="p2p",
        peers_local=7.0, peers_remote=8.0, local_bytes=0.0, self_bytes=0.0, memory=2000e9,
        largest_part=0.0, mesh=1.0, p2p_channels=32.0,
        p2p_lanes=32.0, net_bytes=64 * each, shift=0.0,
        block_bytes=8 * 131072.0, host=1.1,
    )  # fmt: skip
    # start 2 + 7 + 3 us; 5.5 us and 8 messages of 4.4 to send, half of a latency of 2 us;
    # 64 MiB over 400 GB/s x 0.9; eight chunks of 128 KiB through one block at 10 GB/s
    expected = (10 + 12 + 5.5 + 35.2 + 1) * US + 64 * each / 360e9 + (1 << 20) / 10e9
    assert total(point_to_point(f, ROUND)) == pytest.approx(expected)
    # 8 messages that the host first reads from the GPU, and finds in software at their end
    f.injected = f.software = 1.0
    longer = 8 * (12 + 1.1 * 3) * US
    assert total(point_to_point(f, ROUND)) == pytest.approx(expected + longer)


def test_overlap_lies_between_the_larger_and_the_sum() -> None:
    assert overlap(3.0, 4.0, 1.0) == pytest.approx(7.0)
    assert overlap(3.0, 4.0, 2.0) == pytest.approx(5.0)
    assert overlap(3.0, 4.0, 200.0) == pytest.approx(4.0, rel=1e-3)


def test_arrays_and_floats_give_the_same() -> None:
    sizes = np.array([1e3, 1e6, 1e9])
    together = ring(features(nbytes=sizes), ROUND)
    for i, size in enumerate(sizes):
        assert float(sum(v[i] if np.ndim(v) else v for v in together.values())) == pytest.approx(
            total(ring(features(nbytes=float(size)), ROUND)), rel=1e-12
        )
