"""What an operation costs: the contract of every cost model."""

from __future__ import annotations

import math
from dataclasses import dataclass

from commsim.collectives.collective import Collective
from commsim.units import BytesPerSecond, Seconds, format_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """A duration in s and where it goes.

    breakdown: named parts that sum to the duration (launch, latency, transfer, ...). bottleneck:
    the resource that binds, in words with its rate. spread: (ln low, ln high), the 10 % and 90 %
    quantiles of ln(measured / predicted): the interval is duration x e^low to duration x e^high.
    extrapolated: why the constants are used outside what they were fitted on, one sentence each;
    the interval widens for each. notes: other assumptions, one sentence each.
    """

    duration: Seconds
    breakdown: tuple[tuple[str, Seconds], ...]
    bottleneck: str
    spread: tuple[float, float]
    extrapolated: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """What software takes and leaves, for playing an operation transfer by transfer.

    launch: s before the first transfer of a rank may begin. duration: s that the whole takes alone.
    transfer: s of it that the bytes need by themselves (0: no bytes). local_hop, net_hop: s that a
    message takes from rank to rank, inside a node and over the network. local_share, net_share: of
    a link's rate, what data gets. channel: bytes/s, the most that one of the library's channels
    moves (inf: what links give).
    """

    launch: Seconds
    duration: Seconds
    transfer: Seconds
    local_hop: Seconds
    net_hop: Seconds
    local_share: float
    net_share: float
    channel: BytesPerSecond = math.inf


def assumed(collective: Collective) -> tuple[str, ...]:
    """What every closed form takes for granted about the operation, one sentence each."""
    if collective.splits is None:
        return ()
    return (
        f"uneven all_to_all: taken as if every rank moved the busiest one's "
        f"{format_size(collective.nbytes)}, evenly spread over the others",
    )
