"""The contract of a network: directed links, and what a message between two vertices crosses.

A schedule speaks of vertices (ranks and switches) and channels only; a network knows over which
links each of them sends. `cluster_network.py` lays schedules on a real cluster, `ideal.py` on the
networks for which algorithms have closed forms.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from commsim.collectives.chunks import Ints
from commsim.collectives.schedule import Schedule

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


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


def cable(number: int) -> str:
    """What follows the name of the link "a -> b" that is one of several cables."""
    return f" #{number}"


def ends_of(link: str) -> tuple[str, str]:
    """The two vertices that a link's name names."""
    source, _, rest = link.partition(" -> ")
    return source, rest.partition(" #")[0]


def blend(parts: Sequence[Ways]) -> Ways:
    """Ways each of which goes evenly over the same way of every part; at the slowest latency."""
    if len(parts) == 1:
        return parts[0]
    return replace(
        _together(parts, 1 / len(parts)),
        latency=np.max([p.latency for p in parts], axis=0),
        overhead=np.max([p.overhead for p in parts], axis=0),
        limit=np.min([p.limit for p in parts], axis=0),
    )


def follow(first: Ways, second: Ways) -> Ways:
    """Ways each of which goes all along the same way of both."""
    return replace(
        _together((first, second), 1.0),
        latency=first.latency + second.latency,
        overhead=first.overhead + second.overhead,
        limit=np.minimum(first.limit, second.limit),
    )


def put(ways: Ways, at: Ints, others: Ways) -> Ways:
    """The ways with those at some places replaced, in the order of `at`."""
    source = np.arange(len(ways))
    source[at] = len(ways) + np.arange(len(at))
    size = np.concatenate([np.diff(ways.start), np.diff(others.start)])
    begin = np.concatenate([ways.start[:-1], others.start[:-1] + ways.start[-1]])
    start = np.concatenate([[0], np.cumsum(size[source])])
    inside = np.arange(start[-1]) - np.repeat(start[:-1], size[source])
    taken = np.repeat(begin[source], size[source]) + inside
    return Ways(
        start=start,
        crossing=np.concatenate([ways.crossing, others.crossing])[taken],
        weight=np.concatenate([ways.weight, others.weight])[taken],
        latency=np.concatenate([ways.latency, others.latency])[source],
        overhead=np.concatenate([ways.overhead, others.overhead])[source],
        limit=np.concatenate([ways.limit, others.limit])[source],
    )


def only(ways: Ways, crossing: Ints) -> Ways:
    """The ways over other links, entry by entry; -1: over none there."""
    kept = crossing >= 0
    ends = np.concatenate([[0], np.cumsum(kept)])
    return replace(
        ways,
        start=ends[ways.start].astype(np.int64),
        crossing=crossing[kept].astype(np.int32),
        weight=ways.weight[kept],
    )


def _together(parts: Sequence[Ways], share: float) -> Ways:
    """The links of all parts, way by way, each link once; the rest is the first part's."""
    count = len(parts[0])
    owner = np.concatenate([np.repeat(np.arange(count), np.diff(p.start)) for p in parts])
    crossing = np.concatenate([p.crossing for p in parts])
    weight = np.concatenate([p.weight for p in parts]) * share
    order = np.lexsort((crossing, owner))
    owner, crossing, weight = owner[order], crossing[order], weight[order]
    new = np.ones(len(owner), dtype=np.bool_)
    new[1:] = (owner[1:] != owner[:-1]) | (crossing[1:] != crossing[:-1])
    first = np.flatnonzero(new)
    sizes = np.bincount(owner[first], minlength=count)
    return replace(
        parts[0],
        start=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        crossing=crossing[first],
        weight=np.add.reduceat(weight, first) if len(first) else weight,
    )


class Network(ABC):
    """Directed links with their capacity in bytes/s, and the ways over them."""

    @property
    @abstractmethod
    def links(self) -> tuple[str, ...]:
        """Every link's name, "from -> to"; of one of several cables with its number."""

    @property
    @abstractmethod
    def capacity(self) -> Floats:
        """Every link's bytes/s in its direction."""

    @property
    def over_network(self) -> Flags:
        """Which links are cables of a fabric between machines; none unless it says so."""
        return np.zeros(len(self.capacity), dtype=np.bool_)

    @property
    def between_switches(self) -> Flags:
        """Which of these cables end at no NIC; none unless it says so."""
        return np.zeros(len(self.capacity), dtype=np.bool_)

    @abstractmethod
    def ways(
        self, schedule: Schedule, source: Ints, destination: Ints, channel: Ints, reduces: Ints
    ) -> Ways:
        """One way for each (source, destination, channel, reduces or not) of a schedule's ops.

        The latency may not depend on `reduces`: over one connection ops arrive in their order.
        """


class SameLinks(Network):
    """A network with the links of another, `base`, and ways of its own."""

    base: Network

    @property
    def links(self) -> tuple[str, ...]:
        """Those of the base."""
        return self.base.links

    @property
    def capacity(self) -> Floats:
        """That of the base."""
        return self.base.capacity

    @property
    def over_network(self) -> Flags:
        """As in the base."""
        return self.base.over_network

    @property
    def between_switches(self) -> Flags:
        """As in the base."""
        return self.base.between_switches


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
