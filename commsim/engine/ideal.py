"""The ideal networks on which the algorithms' closed forms hold, for checking one by the other."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from commsim.collectives.chunks import Ints
from commsim.collectives.schedule import Schedule
from commsim.engine.network import Floats, Network, Ways
from commsim.units import BytesPerSecond, Seconds


@dataclass(frozen=True, kw_only=True)
class Ports(Network):
    """n ranks with one port each, `bandwidth` out and in, at a switch that blocks nothing.

    A switch vertex of a schedule lies in the middle: half the latency and one port away.
    """

    n: int
    bandwidth: BytesPerSecond
    latency: Seconds = 0.0

    @cached_property
    def links(self) -> tuple[str, ...]:
        """Every rank's way out, then every rank's way in."""
        return (
            *(f"rank{r} -> switch" for r in range(self.n)),
            *(f"switch -> rank{r}" for r in range(self.n)),
        )

    @cached_property
    def capacity(self) -> Floats:
        """The same for all."""
        return np.full(2 * self.n, float(self.bandwidth))

    def ways(
        self, schedule: Schedule, source: Ints, destination: Ints, channel: Ints, reduces: Ints
    ) -> Ways:
        """Out of one port, into the other; nothing within one rank."""
        away = source != destination
        out, into = away & (source < self.n), away & (destination < self.n)
        crossing = np.stack([source, destination + self.n], axis=1)
        crosses = np.stack([out, into], axis=1)
        return _unlimited(crossing, crosses, (out * 0.5 + into * 0.5) * self.latency)


@dataclass(frozen=True, kw_only=True)
class Pairs(Network):
    """A link of its own with `bandwidth` for every ordered pair of `vertices`."""

    vertices: int
    bandwidth: BytesPerSecond
    latency: Seconds = 0.0

    @cached_property
    def links(self) -> tuple[str, ...]:
        """By source, then destination."""
        every = range(self.vertices)
        return tuple(f"{a} -> {b}" for a in every for b in every)

    @cached_property
    def capacity(self) -> Floats:
        """The same for all."""
        return np.full(self.vertices**2, float(self.bandwidth))

    def ways(
        self, schedule: Schedule, source: Ints, destination: Ints, channel: Ints, reduces: Ints
    ) -> Ways:
        """The pair's own link; nothing within one rank."""
        away = source != destination
        return _unlimited(
            (source * self.vertices + destination)[:, np.newaxis],
            away[:, np.newaxis],
            away * self.latency,
        )


def _unlimited(crossing: Ints, crosses: Ints, latency: Floats) -> Ways:
    """Ways over the links marked in `crosses`, one row each, every byte counted once."""
    count = len(latency)
    return Ways(
        start=np.concatenate([[0], np.cumsum(crosses.sum(axis=1))]).astype(np.int64),
        crossing=crossing[crosses].astype(np.int32),
        weight=np.ones(int(crosses.sum())),
        latency=latency,
        overhead=np.zeros(count),
        limit=np.full(count, np.inf),
    )
