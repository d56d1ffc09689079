"""A group of ranks as Gloo's and MPI's algorithms see it, what they move, and shares of both.

Formulas count the busiest process, the busiest machine and the middle of the cluster, for a group
of n ranks, `near` of them in a row on each of `hosts` machines. Sizes are nccl-tests' (see
Collective).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A group of n ranks: per_host on the fullest of `hosts` machines; near: how many neighbours in
    rank order share a machine (1 where ranks are scattered); crossings: ring connections that leave
    the busiest machine."""

    n: int
    hosts: int
    per_host: int
    near: int
    crossings: int
    segment: int = 0
    itemsize: int = 4
    one_way: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What an algorithm moves. All counts are for one operation.

    rounds: messages that wait for one another, end to end. messages, handled: sends plus receives
    of the process that is busy longest, and their bytes; mean_*: averaged over the processes.
    node: bytes through the network port of the busiest machine in its busier direction. cut: bytes
    between the halves of the cluster, one direction. own: as node, if every rank were a machine of
    its own: what passes the busiest rank's own link. duplex: share of these bytes that comes in
    while they go out, and is acknowledged the same way. peers: connections of a process with a port
    of its own that carry bulk data in both directions at once (0: none). ahead: bytes that a
    process sends before the word that it is ready to receive.
    copied: bytes a process moves in its own memory before or after all else, `copiers` processes
    at once (0: all, or one a machine where ranks behind one port end one after the other).
    prepared: bytes every process moves in its own memory before its first send.
    reduced: bytes it adds up meanwhile.
    far, far_rounds: share of handled bytes, and of rounds, that cross the network.
    """

    rounds: float
    messages: float
    handled: float
    mean_messages: float
    mean_handled: float
    node: float = 0.0
    cut: float = 0.0
    own: float = 0.0
    duplex: float = 0.0
    copied: float = 0.0
    copiers: float = 0.0
    prepared: float = 0.0
    reduced: float = 0.0
    peers: int = 0
    ahead: float = 0.0
    far: float = 0.0
    far_rounds: float = 0.0


@lru_cache(maxsize=1 << 16)
def log2_up(n: int) -> int:
    """ceil(log2 n): rounds of a doubling algorithm."""
    return max(0, (n - 1).bit_length())


def even(rounds: float, messages: float, sent: float, **rest: float) -> Traffic:
    """Traffic in which every process sends and receives the same."""
    return Traffic(
        rounds=rounds, messages=2 * messages, handled=2 * sent,
        mean_messages=2 * messages, mean_handled=2 * sent, duplex=1.0, **rest,  # type: ignore[arg-type]
    )  # fmt: skip


def spread(at: Layout) -> float:
    """Share of a rank's peers that sit on other machines."""
    return (at.n - at.per_host) / (at.n - 1)


def log_share(at: Layout) -> float:
    """Share of the doubling distances that leave the machine."""
    return far_rounds(at) / max(1, log2_up(at.n))


def far_rounds(at: Layout) -> int:
    return 0 if at.hosts == 1 else log2_up(-(-at.n // at.near))


def per_host(at: Layout, size: float) -> float:
    """Bytes a machine sends where every rank sends size/n to each rank of the other machines."""
    return at.per_host * (at.n - at.per_host) / at.n * size


def middle(at: Layout, size: float) -> float:
    """Bytes across the middle where every rank sends size/n to every other rank."""
    return 0.0 if at.hosts == 1 else at.n / 4 * size


def then(first: Traffic, second: Traffic) -> Traffic:
    """One phase after the other."""
    handled, rounds = first.handled + second.handled, first.rounds + second.rounds
    far_rounds = first.far_rounds * first.rounds + second.far_rounds * second.rounds
    return Traffic(
        rounds=rounds, messages=first.messages + second.messages, handled=handled,
        mean_messages=first.mean_messages + second.mean_messages,
        mean_handled=first.mean_handled + second.mean_handled,
        node=first.node + second.node, cut=first.cut + second.cut,
        copied=first.copied + second.copied, prepared=first.prepared,
        reduced=first.reduced + second.reduced,
        far=(first.far * first.handled + second.far * second.handled) / handled if handled else 0.0,
        far_rounds=far_rounds / max(1, rounds),
    )  # fmt: skip
