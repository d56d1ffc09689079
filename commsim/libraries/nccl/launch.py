"""How one operation is put on the GPU: channels, threads, and the chunks in which it moves (bytes).

The tuner allows as many channels as keep every thread busy; from 2.22 the scheduler then fills
channels with at least 16 KiB of traffic each, so short operations launch fewer. Source: NVIDIA
NCCL, src/enqueue.cc, releases 2.18 to 2.30.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from commsim.libraries.nccl.constants import STEPS, Version
from commsim.libraries.nccl.environment import Settings
from commsim.libraries.nccl.graph import Communicator
from commsim.libraries.nccl.rules import heads, searched

_WARP: Final = 32
_MOST_THREADS: Final = 640
_TRAFFIC_PER_CHANNEL: Final = (
    16 << 10
)  # bytes of traffic that make a channel worth launching, 2.22+
_PROTOCOLS: Final = {"LL": 0, "LL128": 1, "Simple": 2}
_BUFFERS: Final = (8 * 512 * 8 * 16, 8 * 640 * 120 * 8, 4 << 20)  # bytes a connection, by protocol
_PAYLOAD: Final = (0.5, 15 / 16, 1.0)  # data's share of what LL, LL128, Simple store and send
_SLOW_NVLS: Final = 150.0  # GB/s of all_reduce below which NVLS over nodes begins with small chunks
_SLOW_RING: Final = 12.0  # GB/s up to which Ring Simple uses 256 threads


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """channels: launched at this size. most: the tuner's cap. threads: of each channel's block."""

    channels: int
    most: int
    threads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunking:
    """Bytes of payload: a chunk is what one operation of a channel moves, a slice what is signalled
    to the next hop, a step one slot of the connection's buffer; `loops` rounds of `loop` bytes
    cover the operation."""

    chunk: int
    slice: int
    step: int
    chunks_per_loop: int
    loop: int
    loops: int


def wire_overhead(protocol: str) -> float:
    """Bytes on the wire per byte of data: LL flags every 4 bytes, LL128 every 120."""
    return 1 / _PAYLOAD[_PROTOCOLS[protocol]]


def _clamped(value: int | None, low: int, high: int, default: int) -> int:
    """A thread count as NCCL reads it from the environment."""
    if value is None or value <= 0:
        return default
    return high if value % _WARP else min(max(value, low), high)


def _limits(c: Communicator, settings: Settings, algorithm: str, protocol: str) -> tuple[int, int]:
    """Most threads of a block, and bytes a thread should have to do."""
    threshold = {"LL": 8, "LL128": 8, "Simple": 64}[protocol]
    if algorithm in ("collnet_direct", "collnet_chain"):
        threshold = 512
    if algorithm == "ring" and protocol == "LL":
        threshold *= c.n
    if settings.thread_thresholds and algorithm in ("tree", "ring"):
        given = settings.thread_thresholds[3 * (algorithm == "ring") + _PROTOCOLS[protocol]]
        threshold = given or threshold
    if algorithm not in ("tree", "ring"):
        return _MOST_THREADS, threshold
    if protocol == "LL128":
        return _clamped(settings.ll128_threads, 160, 640, 640), threshold
    slow = algorithm == "ring" and c.ring.channels * c.ring.bw_intra <= _SLOW_RING
    default = 256 if protocol == "Simple" and slow else 512
    return _clamped(settings.threads, 64, 512, default), threshold


def launch(
    c: Communicator, version: Version, settings: Settings, operation: str, algorithm: str,
    protocol: str, nbytes: int, itemsize: int = 4,
) -> Launch:  # fmt: skip
    """Channels and threads for `nbytes` of NCCL's counting (all_gather and reduce_scatter: all
    ranks together)."""
    threads, threshold = _limits(c, settings, algorithm, protocol)
    most = c.channels
    if algorithm in ("nvls", "nvls_tree"):
        most = c.nvls_channels
        if algorithm == "nvls" and c.nodes > 1 and version >= (2, 28, 0):
            most = min(most, c.channels)
    elif algorithm == "collnet_direct":
        most = _direct_channels(c, nbytes, threads, threshold)
    else:
        most = max(1, min(most, nbytes // (threads * threshold)))
        while nbytes < most * threads * threshold and threads % 128 == 0:
            threads //= 2
    if protocol == "Simple":
        threads += {"ring": _WARP, "tree": 4 * _WARP}.get(algorithm, 0)
    threads = max(threads, 3 * _WARP)
    if algorithm == "pat" or (algorithm == "tree" and version >= (2, 22, 0)):
        threads = _MOST_THREADS
    used = most
    if version >= (2, 22, 0) and algorithm not in ("collnet_direct", "collnet_chain"):
        limit = c.nvls_channels if algorithm in ("nvls", "nvls_tree") else c.channels
        used = _spread(c.n, operation, protocol, nbytes, itemsize, most, max(limit, most))
    return Launch(channels=used, most=most, threads=threads)


def _direct_channels(c: Communicator, nbytes: int, threads: int, threshold: int) -> int:
    """CollNetDirect gives channels up in stages, asking less of a thread at each."""
    graph = searched(c, "collnet_direct")
    found = heads(graph) if graph is not None else 1
    channels, stop, short = c.channels, 16, True
    while stop >= 1 and short:
        while (short := nbytes < channels * threads * found * threshold) and channels > stop:
            if channels == stop + stop // 2:
                threshold //= 2
            channels -= 1
        stop //= 2
    return channels


def _traffic_per_byte(operation: str, n: int) -> int:
    if operation == "all_reduce":
        return 2
    return n if operation in ("all_gather", "reduce_scatter") else 1


def _spread(
    n: int, operation: str, protocol: str, nbytes: int, itemsize: int, most: int, limit: int
) -> int:
    """Channels that a lone operation touches when it is laid over `most` of them in cells of 16 KiB
    of traffic."""
    per_byte = _traffic_per_byte(operation, n) * (4 if protocol == "LL" else 1)
    size = nbytes // n if operation in ("all_gather", "reduce_scatter") else nbytes
    traffic = max(_TRAFFIC_PER_CHANNEL, size * per_byte)
    per_channel = max(_TRAFFIC_PER_CHANNEL, traffic // most)
    cell = math.ceil(math.ceil(_TRAFFIC_PER_CHANNEL / per_byte) / 16) * 16
    cells = max(1, -(-size // (cell // itemsize * itemsize)))
    in_channel = min(cells, -(-per_channel // (cell * per_byte)))
    return min(limit, -(-cells // in_channel))


def chunking(
    c: Communicator, version: Version, settings: Settings, operation: str, algorithm: str,
    protocol: str, nbytes: int, channels: int, nvls_bandwidth: float = 0.0,
) -> Chunking:  # fmt: skip
    """The pieces of an operation on `channels`. nvls_bandwidth: the model's NVLS all_reduce GB/s,
    where known."""
    p = _PROTOCOLS[protocol]
    buffer = settings.buffers[p] or _BUFFERS[p]
    if p == 2 and version < (2, 20, 0) and c.cpu_arch.startswith("arm") and not settings.buffers[p]:
        buffer = 1 << 20
    stored = buffer // STEPS
    step = int(stored * _PAYLOAD[p])
    steps, slices = 1, 1
    if (
        algorithm == "ring"
        and p == 2
        and operation in ("all_reduce", "all_gather", "reduce_scatter")
    ):
        steps, slices = 4, 2
    chunk = step * steps
    # From 2.22 each channel's own part is looked at; a part of an evenly spread operation is size /
    # channels.
    share = nbytes / max(1, channels)
    ppn = c.n // c.nodes
    depth = ppn - 1 + c.nodes.bit_length() - 1
    if algorithm == "tree" and p == 2 and version < (2, 20, 0):
        chunk = _halve(chunk, share, ((8 * depth, 128), (4 * depth, 64), (depth, 32)))
    elif algorithm == "tree" and p == 1:
        log = 1 + (c.nodes.bit_length() - 1) + 0.1 * c.n / c.nodes
        chunk = _halve(chunk, share, ((64 * log / ppn, 128), (16 * log / ppn, 32)))
    elif algorithm == "collnet_direct":
        graph = searched(c, algorithm)
        found = heads(graph) if graph is not None else 1
        depth = 2 if c.nodes > 1 else 1
        chunk = _halve(chunk, share / found, ((64 * depth, 128), (8 * depth, 64), (8 * depth, 32)))
    elif algorithm == "collnet_chain":
        chunk = _halve(min(chunk, 256 << 10), share, ((64 * ppn, 128), (8 * ppn, 64), (ppn, 32)))
    elif algorithm in ("nvls", "nvls_tree"):
        chunk = _nvls_chunk(c, settings, algorithm, nbytes, channels, nvls_bandwidth)
    elif algorithm == "pat":
        peers = 32 if operation == "all_gather" else 16
        while chunk * channels * peers > nbytes and chunk > 64 << 10:
            chunk //= 2
    graph = searched(c, algorithm)
    per_loop = 1
    if algorithm == "ring" and operation in ("all_reduce", "all_gather", "reduce_scatter"):
        per_loop = c.n
    elif algorithm in ("nvls", "nvls_tree", "collnet_direct") and graph is not None:
        per_loop = heads(graph)
    loop = channels * per_loop * chunk
    return Chunking(
        chunk=chunk, slice=min(chunk, step * slices), step=step, chunks_per_loop=per_loop,
        loop=loop, loops=max(1, -(-nbytes // loop)),
    )  # fmt: skip


def _halve(chunk: int, share: float, rules: tuple[tuple[float, int], ...]) -> int:
    """Halve a chunk until a channel's share has enough of them; each rule is (chunks, smallest
    KiB)."""
    for wanted, floor in rules:
        while share / chunk < wanted and chunk > floor << 10:
            chunk //= 2
    return chunk


def nvls_chunks(
    c: Communicator, settings: Settings, nvls_bandwidth: float = 0.0
) -> tuple[int, int]:
    """Bytes of an NVLS chunk to begin with, and the limit for NVLSTree."""
    base = c.nvls_chunk or 128 << 10
    limit = c.nvls_tree_max_chunk or (64 << 10 if c.nodes >= 4 else base)
    if c.nodes > 1 and 0 < nvls_bandwidth < _SLOW_NVLS:
        base = 32 << 10
    return settings.nvls_chunk or base, settings.nvls_tree_chunk or limit


def _nvls_chunk(
    c: Communicator, settings: Settings, algorithm: str, nbytes: int, channels: int,
    nvls_bandwidth: float,
) -> int:  # fmt: skip
    base, limit = nvls_chunks(c, settings, nvls_bandwidth)
    chunk = min(base, limit) if algorithm == "nvls_tree" else base
    at_once = channels * (heads(c.nvls) if c.nvls else 1)
    rules = ((64, 64), (8, 32), (2, 16))
    if algorithm == "nvls_tree":
        rules = ((32, 256), (16, 128), (4, 64), (1, 32))  # type: ignore[assignment]
    for many, kib in rules:
        if nbytes < many * at_once * chunk and chunk > kib << 10:
            chunk = kib << 10
    return chunk
