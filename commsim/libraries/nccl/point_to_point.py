"""How NCCL sends a message between two ranks: protocol, chunk (bytes), channels.

all_to_all, gather, scatter and send_recv are made of such messages.
A message of m bytes is cut into parts, each on its own channel; a part moves chunk by chunk. There
is no estimate: the form follows from the size alone. Source: NVIDIA NCCL, src/enqueue.cc
(addP2pToPlan, scheduleP2pTasksToPlan), releases 2.18 to 2.30.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from commsim.libraries.nccl.constants import STEPS, Version
from commsim.libraries.nccl.environment import Settings
from commsim.libraries.nccl.graph import Communicator
from commsim.units import Bytes

OPERATIONS: Final = frozenset(("all_to_all", "gather", "scatter", "send_recv"))
CONCURRENT_PEERS: Final = 8  # sends (and as many receives) that one block works on at once
THREADS: Final = 640
_LL_BUFFER: Final = 512 << 10
_SIMPLE_BUFFER: Final = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PointToPoint:
    """The form of one message. message: bytes to each peer. protocol, parts (channels that the
    message is cut over) and chunk (bytes of data moved at once): inside a node; remote_...: over
    the network. most_parts: the cap of both. channels: launched in all."""

    message: Bytes
    protocol: str
    remote_protocol: str
    parts: int
    remote_parts: int
    most_parts: int
    channels: int
    chunk: Bytes
    remote_chunk: Bytes


def message_bytes(operation: str, nbytes: Bytes, n: int) -> Bytes:
    """Bytes that go to one peer."""
    return nbytes if operation == "send_recv" else nbytes // n


def step_bytes(c: Communicator, settings: Settings) -> Bytes:
    """Slot of a Simple point-to-point connection: by the slowest kind of peer in the group."""
    if c.nodes > 1:
        size = settings.p2p_net_chunk
    else:
        size = settings.p2p_nvlink_chunk if c.all_nvlink else settings.p2p_pci_chunk
    return min(size, (settings.buffers[2] or _SIMPLE_BUFFER) // STEPS)


def plan(
    c: Communicator, version: Version, settings: Settings, operation: str, nbytes: Bytes
) -> PointToPoint:
    """The form NCCL gives to the messages of an operation of `nbytes` (nccl-tests' size)."""
    message = message_bytes(operation, nbytes, c.n)
    most = max(1, c.p2p_channels_per_peer)
    step = step_bytes(c, settings)
    parts = remote_parts = _parts(c, version, message, step, most)
    if version < (2, 22, 0):
        measured, allowed = -(-message // parts), settings.p2p_ll_threshold
    else:
        wide = most if version < (2, 29, 0) else parts
        measured, allowed = message, settings.p2p_ll_threshold * wide
    low_latency = measured <= allowed
    protocol = "LL" if low_latency else "Simple"
    if low_latency:  # LL has its own, smaller slots
        ll_step = (settings.buffers[0] or _LL_BUFFER) // STEPS
        parts = _parts(c, version, message, ll_step, most)
        chunk = ll_step // 2
    else:
        chunk = step
    remote_protocol = protocol if settings.p2p_net_ll else "Simple"
    remote_chunk = step
    if version >= (2, 22, 0):
        if message < step:
            remote_chunk = step // 4
        elif message < 8 * step:
            remote_chunk = step // 2
    widest = parts if c.nodes == 1 else remote_parts if c.n == c.nodes else max(parts, remote_parts)
    channels = min(max(1, c.p2p_channels), widest * _peers(operation, c.n))
    return PointToPoint(
        message=message, protocol=protocol if c.n > c.nodes else remote_protocol,
        remote_protocol=remote_protocol, parts=parts, remote_parts=remote_parts, most_parts=most,
        channels=channels, chunk=chunk, remote_chunk=remote_chunk,
    )  # fmt: skip


def peer_distances(count: int) -> tuple[int, ...]:
    """In which order a rank turns to the others of a circle of `count`, 2.22+: 0, 1, 3, 6 ...

    Triangular numbers modulo the next power of two, so that neighbouring rounds take other paths.
    """
    size = 1 << (count - 1).bit_length()
    walk = (step * (step + 1) // 2 % size for step in range(size))
    return tuple(distance for distance in walk if distance < count)


def part_channel(base: int, part: int, channels: int) -> int:
    """Channel of a message's part: parts spread bit-reversed over p2p channels (a power of two)."""
    bits = channels.bit_length() - 1
    reversed_part = int(f"{part:0{bits}b}"[::-1], 2) if bits else 0
    return (base + reversed_part) % channels


def _peers(operation: str, n: int) -> int:
    """Messages of the busiest rank that do not go to itself."""
    return 1 if operation == "send_recv" else n - 1


def _parts(c: Communicator, version: Version, message: Bytes, step: Bytes, most: int) -> int:
    """Channels one message is cut over."""
    least = most
    if version >= (2, 20, 0) or c.nodes == 1:
        while least * c.n > c.p2p_channels and least > 1:
            least //= 2
    if version < (2, 20, 0) and c.nodes == 1:
        while most * c.n > 4 * c.p2p_channels and most > 1:
            most //= 2
    small, large = step // 8, 32 * step
    if c.nodes > 1:
        small, large = (step // 2 if version >= (2, 20, 0) else step // 8), step
    parts = max(1, min(least, -(-message // max(1, small))))
    part = max(small, -(-message // parts))
    while part > large and parts <= most // 2:
        parts *= 2
        part = -(-message // parts)
    return parts
