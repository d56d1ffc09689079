"""The form of NCCL's messages: figures worked out from its rules by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from commsim.libraries.nccl.constants import Version
from commsim.libraries.nccl.environment import freeze, read
from commsim.libraries.nccl.graph import Communicator
from commsim.libraries.nccl.point_to_point import (
    PointToPoint,
    part_channel,
    peer_distances,
    plan,
)
from tests.libraries.nccl.vectors import oracle

KIB = 1024
V227: Version = (2, 27, 7)
V230: Version = (2, 30, 7)


def form(
    c: Communicator, version: Version, operation: str, nbytes: int, **env: str
) -> PointToPoint:
    settings = read(freeze({f"NCCL_{k}": v for k, v in env.items()}), version)
    return plan(c, version, settings, operation, nbytes)


def h100(nodes: int) -> Communicator:
    return oracle("dgx_h100", str(nodes))


def test_low_latency_up_to_16_kib_times_channels_until_2_28() -> None:
    # 8 H100: 32 channels a peer, so LL up to 512 KiB a peer.
    assert form(h100(1), V227, "all_to_all", 8 * 512 * KIB).protocol == "LL"
    assert form(h100(1), V227, "all_to_all", 8 * 513 * KIB).protocol == "Simple"


def test_low_latency_up_to_16_kib_a_part_from_2_29() -> None:
    # 16 KiB fit one part (64 KiB at least); 32 KiB are one part too and too long for LL.
    assert form(h100(1), V230, "all_to_all", 8 * 16 * KIB).protocol == "LL"
    assert form(h100(1), V230, "all_to_all", 8 * 32 * KIB).protocol == "Simple"


def test_older_releases_compare_each_part() -> None:
    # 2.21: 8 x 4 parts of 32 channels, parts of at least 64 KiB: 64 KiB is one part, above 16 KiB.
    assert form(h100(1), (2, 21, 5), "all_to_all", 8 * 16 * KIB).protocol == "LL"
    assert form(h100(1), (2, 21, 5), "all_to_all", 8 * 64 * KIB).protocol == "Simple"


def test_the_threshold_variable() -> None:
    small = form(h100(1), V230, "send_recv", 1 * KIB)
    assert small.protocol == "LL"
    assert form(h100(1), V230, "send_recv", 1 * KIB, P2P_LL_THRESHOLD="0").protocol == "Simple"


def test_network_peers_have_no_ll_buffer() -> None:
    two = form(h100(2), V230, "all_to_all", 16 * KIB)
    assert (two.protocol, two.remote_protocol) == ("LL", "Simple")
    allowed = form(h100(2), V230, "all_to_all", 16 * KIB, ALLOC_P2P_NET_LL_BUFFERS="1")
    assert allowed.remote_protocol == "LL"


def test_parts_within_a_node() -> None:
    # 512 KiB steps over NVLink; 32 channels a peer, halved to 4 so that 8 peers share 32 channels;
    # parts of at least 64 KiB, doubled while above 16 MiB.
    sizes = (64 * KIB, 256 * KIB, 64 << 20, 256 << 20)
    got = [form(h100(1), V230, "all_to_all", 8 * m).parts for m in sizes]
    assert got == [1, 4, 4, 16]
    assert form(h100(1), V230, "all_to_all", 8 << 20).chunk == 512 * KIB
    assert form(h100(1), V230, "all_to_all", 8 << 20).channels == 28  # 7 peers x 4 parts


def test_parts_and_chunks_over_the_network() -> None:
    # 128 KiB steps; 4 channels a peer, halved to 1 for 16 ranks on 16 channels; parts of at most
    # one step, up to 4 of them. Chunks: a quarter below a step, half below 8 steps, then whole.
    def over(message: int) -> tuple[int, int]:
        got = form(h100(2), V230, "all_to_all", 16 * message)
        return got.remote_parts, got.remote_chunk

    assert over(64 * KIB) == (1, 32 * KIB)
    assert over(256 * KIB) == (2, 64 * KIB)
    assert over(1024 * KIB) == (4, 128 * KIB)


def test_pcie_uses_smaller_steps() -> None:
    c = oracle("rtx4090_8x_intel", "1")
    assert form(c, V230, "all_to_all", 1 << 30).chunk == 128 * KIB


def test_one_message_per_rank_in_send_recv() -> None:
    got = form(h100(1), V230, "send_recv", 1 << 20)
    assert got.message == 1 << 20
    assert got.channels == got.parts == 4
    assert form(h100(1), V230, "gather", 1 << 20).message == 128 * KIB


@pytest.mark.parametrize("nodes", [1, 2, 16, 128])
@pytest.mark.parametrize("version", [(2, 18, 6), (2, 20, 5), (2, 22, 3), V230])
def test_channels_never_exceed_what_there_is(nodes: int, version: Version) -> None:
    c = replace(h100(nodes))
    for operation in ("all_to_all", "gather", "scatter", "send_recv"):
        for k in range(0, 34):
            got = form(c, version, operation, 1 << k)
            assert 1 <= got.parts <= got.most_parts
            assert 1 <= got.channels <= c.p2p_channels


def test_order_of_peers() -> None:
    # 0, 1, 1+2, 1+2+3, ... modulo 16, and modulo 8 without 6 and 7
    assert peer_distances(16) == (0, 1, 3, 6, 10, 15, 5, 12, 4, 13, 7, 2, 14, 11, 9, 8)
    assert peer_distances(6) == (0, 1, 3, 2, 5, 4)


def test_parts_lie_far_apart() -> None:
    assert [part_channel(0, part, 16) for part in range(4)] == [0, 8, 4, 12]
    assert part_channel(5, 3, 16) == 1
    assert part_channel(3, 0, 1) == 0
