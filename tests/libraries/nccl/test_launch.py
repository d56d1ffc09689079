"""Channels, threads and chunks of one operation: figures worked out from NCCL's rules by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from commsim.libraries.nccl.constants import Version
from commsim.libraries.nccl.environment import freeze, read
from commsim.libraries.nccl.graph import Communicator
from commsim.libraries.nccl.launch import Chunking, Launch, chunking, launch, wire_overhead
from tests.libraries.nccl.vectors import nominal, oracle

KIB, MIB = 1 << 10, 1 << 20
V230: Version = (2, 30, 7)


def on(
    c: Communicator, operation: str, algorithm: str, protocol: str, nbytes: int,
    version: Version = V230, **env: str,
) -> Launch:  # fmt: skip
    settings = read(freeze({f"NCCL_{k}": v for k, v in env.items()}), version)
    return launch(c, version, settings, operation, algorithm, protocol, nbytes)


def pieces(
    c: Communicator, operation: str, algorithm: str, protocol: str, nbytes: int, channels: int,
    version: Version = V230, **env: str,
) -> Chunking:  # fmt: skip
    settings = read(freeze({f"NCCL_{k}": v for k, v in env.items()}), version)
    return chunking(c, version, settings, operation, algorithm, protocol, nbytes, channels)


def test_ring_ll_gives_each_thread_eight_bytes_a_rank() -> None:
    # 8 ranks: a channel per 512 x 64 = 32 KiB; below that threads halve, down to 96.
    c = oracle("dgx_h100", "1")
    got = [on(c, "all_reduce", "ring", "LL", n) for n in (8, 16 * KIB, 32 * KIB, 96 * KIB, MIB)]
    assert [(g.most, g.threads) for g in got] == [(1, 96), (1, 256), (1, 512), (3, 512), (24, 512)]


def test_simple_adds_warps() -> None:
    c = oracle("dgx_h100", "1")
    assert on(c, "all_reduce", "ring", "Simple", 64 * MIB).threads == 512 + 32
    assert on(c, "all_reduce", "tree", "Simple", 64 * MIB).threads == 640
    assert on(c, "all_reduce", "tree", "Simple", 64 * MIB, (2, 21, 5)).threads == 512 + 128
    slow = oracle("rtx4090_8x_intel", "1")  # 1 channel of 10 GB/s: 256 threads
    assert on(slow, "all_reduce", "ring", "Simple", 64 * MIB).threads == 256 + 32


def test_thread_variables() -> None:
    c = oracle("dgx_h100", "1")
    assert on(c, "all_reduce", "ring", "LL", MIB, NTHREADS="128").threads == 128
    assert on(c, "all_reduce", "ring", "LL", MIB, NTHREADS="100").threads == 512  # not of 32
    assert on(c, "all_reduce", "ring", "LL128", MIB, LL128_NTHREADS="160").threads == 160
    many = on(c, "all_reduce", "ring", "LL", 8 * KIB, THREAD_THRESHOLDS="0 0 0 1 0 0")
    assert many.most == 16  # 512 threads x 1 byte


def test_the_scheduler_fills_channels_with_16_kib_of_traffic() -> None:
    # 80 KiB all_reduce by LL128: the tuner allows 80 KiB / (640 x 8) = 16 channels, but 160 KiB of
    # traffic fill 10; up to 2.21 all 16 run.
    c = oracle("dgx_h100", "2")
    new = on(c, "all_reduce", "ring", "LL128", 80 * KIB)
    assert (new.most, new.channels) == (16, 10)
    assert on(c, "all_reduce", "ring", "LL128", 80 * KIB, (2, 21, 5)).channels == 16


def test_nvls_has_channels_of_its_own() -> None:
    c = oracle("hgx_b200_400g", "2")  # 16 channels, 32 for NVLS
    assert on(c, "all_reduce", "nvls_tree", "Simple", 1 << 30).most == 32
    assert on(replace(c, collnet=True), "all_reduce", "nvls", "Simple", 1 << 30).most == 16
    assert on(c, "all_reduce", "nvls", "Simple", 1 << 30, (2, 27, 7)).most == 32


def test_one_loop_of_ring_simple() -> None:
    # 24 channels x 8 ranks x 2 MiB = 384 MiB
    got = pieces(oracle("dgx_h100", "1"), "all_reduce", "ring", "Simple", 1 << 30, 24)
    assert (got.chunk, got.slice, got.step) == (2 * MIB, MIB, 512 * KIB)
    assert (got.loop, got.loops) == (384 * MIB, 3)


@pytest.mark.parametrize(
    ("operation", "protocol", "chunk"),
    [
        ("all_reduce", "LL", 32 * KIB),  # half of a 64 KiB slot is data
        ("all_reduce", "LL128", 576_000),  # 120 of 128 bytes of 614,400
        ("broadcast", "Simple", 512 * KIB),
    ],
)
def test_steps(operation: str, protocol: str, chunk: int) -> None:
    got = pieces(oracle("dgx_h100", "1"), operation, "ring", protocol, 1 << 30, 24)
    assert got.chunk == got.step == chunk


def test_buffer_variables() -> None:
    c = oracle("dgx_h100", "1")
    got = pieces(c, "all_reduce", "ring", "Simple", 1 << 30, 24, BUFFSIZE=str(8 * MIB))
    assert got.chunk == 4 * MIB


def test_nvls_chunks_shrink_with_size() -> None:
    # 16 channels x 8 heads: 128 KiB from 64 x 128 x 128 KiB = 1 GiB, 64 KiB from 64 MiB,
    # 32 KiB from 8 MiB, below that 16 KiB
    c = oracle("dgx_h100", "1")
    sizes = (4 * MIB, 8 * MIB, 64 * MIB, 1 << 30)
    got = [pieces(c, "all_reduce", "nvls", "Simple", n, 16).chunk for n in sizes]
    assert got == [16 * KIB, 32 * KIB, 64 * KIB, 128 * KIB]
    forced = pieces(c, "all_reduce", "nvls", "Simple", 1 << 30, 16, NVLS_CHUNKSIZE="65536")
    assert forced.chunk == 64 * KIB


def test_nvls_tree_is_limited_to_64_kib_from_four_nodes() -> None:
    for nodes, chunk in (("3", 128 * KIB), ("4", 64 * KIB)):
        c = replace(oracle("dgx_h100", nodes), nvls_chunk=0, nvls_tree_max_chunk=0)
        assert pieces(c, "all_reduce", "nvls_tree", "Simple", 1 << 34, 16).chunk == chunk


def test_old_trees_cut_short_operations_finer() -> None:
    # 2 nodes of 8: depth 8. 16 MiB on 16 channels is 1 MiB a channel: below 64 chunks at 512 KiB
    # down to 128 KiB, below 32 down to 64 KiB, at least 8 from there.
    c = nominal("A100x8", 2, "2.18.6")[0]
    old = pieces(c, "all_reduce", "tree", "Simple", 16 * MIB, 16, (2, 18, 6))
    assert old.chunk == 64 * KIB
    assert pieces(c, "all_reduce", "tree", "Simple", 16 * MIB, 16).chunk == 512 * KIB


def test_pat_halves_until_every_peer_has_a_chunk() -> None:
    # all_gather: 512 KiB x 4 channels x 32 > 16 MiB; halved to 128 KiB
    c = nominal("H100x1", 16, "2.30.7")[0]
    assert pieces(c, "all_gather", "pat", "Simple", 16 * MIB, 4).chunk == 128 * KIB
    assert pieces(c, "reduce_scatter", "pat", "Simple", 16 * MIB, 4).chunk == 256 * KIB


def test_flags_on_the_wire() -> None:
    assert wire_overhead("LL") == 2
    assert wire_overhead("LL128") == pytest.approx(128 / 120)
    assert wire_overhead("Simple") == 1
