"""What an operation costs: the contract of every cost model."""

from __future__ import annotations

from dataclasses import dataclass

from commsim.units import Seconds


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
