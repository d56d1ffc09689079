"""What an operation costs: the contract of every cost model."""

from __future__ import annotations

from dataclasses import dataclass

from commsim.collectives.collective import Collective
from commsim.units import Seconds, format_size


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


def assumed(collective: Collective) -> tuple[str, ...]:
    """What every closed form takes for granted about the operation, one sentence each."""
    if collective.splits is None:
        return ()
    return (
        f"uneven all_to_all: taken as if every rank moved the busiest one's "
        f"{format_size(collective.nbytes)}, evenly spread over the others",
    )
