"""The contract of a network: directed links, and what a message between two vertices crosses.

A schedule speaks of vertices (ranks and switches) and channels only; a network knows over which
links each of them sends. `cluster_network.py` lays schedules on a real cluster, `ideal.py` on the
networks for which algorithms have closed forms.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from commsim.collectives.chunks import Ints
from commsim.collectives.schedule import Schedule

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ways:
    """Ways over links. Way w crosses links `crossing[start[w] : start[w + 1]]`.

    weight: bytes on that link for each byte of data (a spray over k equal ways puts 1/k on each,
    a protocol with flags puts more than 1). latency: s until the first byte arrives. overhead: s
    that software takes before the first byte leaves. limit: the most bytes/s that one transfer can
    have (inf: what the links give). A way that crosses nothing without a limit takes no time.
    """

    start: Ints
    crossing: NDArray[np.int32]
    weight: Floats
    latency: Floats
    overhead: Floats
    limit: Floats

    def __len__(self) -> int:
        return len(self.latency)


class Network(ABC):
    """Directed links with their capacity in bytes/s, and the ways over them."""

    @property
    @abstractmethod
    def links(self) -> tuple[str, ...]:
        """Every link's name, "from -> to"."""

    @property
    @abstractmethod
    def capacity(self) -> Floats:
        """Every link's bytes/s in its direction."""

    @abstractmethod
    def ways(
        self, schedule: Schedule, source: Ints, destination: Ints, channel: Ints, reduces: Ints
    ) -> Ways:
        """One way for each (source, destination, channel, reduces or not) of a schedule's ops."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Laid:
    """A schedule laid on a network: op i takes way `way[i]`."""

    schedule: Schedule
    ways: Ways
    way: NDArray[np.int32]


def lay(schedule: Schedule, network: Network) -> Laid:
    """The schedule's ops with the ways that they take; equal ops share a way."""
    vertices, channels = schedule.vertices, int(schedule.channel.max(initial=0)) + 1
    key = schedule.source.astype(np.int64) * vertices + schedule.destination
    key = (key * channels + schedule.channel) * 2 + schedule.reduces
    span = vertices * vertices * channels * 2
    if span <= 8 * len(key) + 1024:  # a table is faster than sorting
        seen = np.zeros(span, dtype=np.bool_)
        seen[key] = True
        kinds = np.flatnonzero(seen)
        number = np.cumsum(seen, dtype=np.int32) - 1
        way = number[key]
    else:
        kinds, way = np.unique(key, return_inverse=True)
    pair, rest = np.divmod(kinds, 2 * channels)
    return Laid(
        schedule=schedule,
        ways=network.ways(schedule, pair // vertices, pair % vertices, rest // 2, rest % 2),
        way=way.astype(np.int32),
    )
