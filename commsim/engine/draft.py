"""Ways of a cluster while they are put together, in the order in which data passes: a leg in the
machine, the NIC's cable, from switch to switch, the other NIC's cable, a leg in the other machine.
"""

from __future__ import annotations

import numpy as np

from commsim.collectives.chunks import Ints
from commsim.engine.legs import Legs, Shorts, compose, join, make_legs
from commsim.engine.network import Flags, Floats, Ways


class Draft:
    """Columns of legs per way, 0 where it has none; `way` says which ways are meant.

    The legs of a machine, whose links have other numbers in each (`per_machine` further on), are
    followed by every link of the cluster as a leg. latency: of every link, s.
    """

    def __init__(self, count: int, machine: Legs, per_machine: int, latency: Floats) -> None:
        self._per_machine, self._latency, self._single = per_machine, latency, len(machine)
        self._parts, self._legs = [machine], len(machine)
        links = np.arange(len(latency))
        self._add(np.ones_like(links), links, np.ones(len(links)))
        self._start, self._end = (np.zeros((count, 2), dtype=np.int32) for _ in range(2))
        self._shift = np.zeros((count, 2), dtype=np.int32)
        self._middle: list[Shorts] = []

    def inside(self, way: Ints, first: Ints, last: Ints, hosts: tuple[Ints, Ints]) -> None:
        """Legs in the machines at both ends."""
        self._start[way, 0], self._end[way, 1] = first, last
        self._shift[way] = np.stack(hosts, axis=1) * self._per_machine

    def cables(self, way: Ints, up: Ints, down: Ints) -> None:
        """Links from a NIC to its switch and from a switch to its NIC; -1: none."""
        self._start[way, 1], self._end[way, 0] = self._leg_of(up), self._leg_of(down)

    def picked(self, way: Ints, links: Ints) -> None:
        """The links between the cables, [way, hop]; -1: none."""
        self._between(way, self._leg_of(links))

    def spread(self, way: Ints, which: Ints, legs: tuple[Ints, Ints, Floats], back: Flags) -> None:
        """Leg `which` of those with these sizes, links and weights between the cables, or the same
        leg `back`.
        """
        size, links, weight = legs
        first = self._add(size, links, weight)
        last = self._add(size[::-1], links[::-1] ^ 1, weight[::-1]) + len(size) - 1
        self._between(way, np.where(back, last - which, first + which)[:, np.newaxis])

    def ways(self, halved: Flags) -> Ways:
        """The ways; `halved` ones end in the middle: half of the latency there and back."""
        chosen = np.hstack([self._start, *self._middle, self._end])
        shift = np.zeros_like(chosen)
        shift[:, [0, -1]] = self._shift
        return compose(join(*self._parts), chosen, shift, halved)

    def _leg_of(self, links: Ints) -> Ints:
        return np.where(links < 0, 0, self._single + links)

    def _between(self, way: Ints, legs: Ints) -> None:
        column = np.zeros((len(self._start), legs.shape[1]), dtype=np.int32)
        column[way] = legs
        self._middle.append(column)

    def _add(self, size: Ints, links: Ints, weight: Floats) -> int:
        """The number of the first of these legs; links are numbered through the whole cluster."""
        first = self._legs
        there, back = self._latency[links], self._latency[links ^ 1]
        self._parts.append(make_legs(size, links, weight, there, back))
        self._legs += len(size)
        return first
