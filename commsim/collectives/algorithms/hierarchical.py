"""Hierarchical: inside groups first, then across them on rails, then inside again.

A rank sends only 1/group of the buffer across, and only to the ranks with its own place in the
other groups: it wins wherever links inside a node are faster than the network, and its rounds are
those of a group plus those of a rail, not of all ranks. Source: Cho, Finkler, Serrano, Kung and
Hunter, "BlueConnect: Decomposing all-reduce for deep learning on heterogeneous network hierarchy",
IBM J. Res. Dev. 63(6), 2019, doi:10.1147/JRD.2019.2947013.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from commsim.collectives.algorithm import Algorithm, Cost
from commsim.collectives.collective import Collective
from commsim.collectives.schedule import Schedule
from commsim.collectives.two_level import OPERATIONS, TwoLevel, divisor, named


@dataclass(frozen=True, slots=True, kw_only=True)
class Hierarchical(Algorithm):
    """Groups of `group` neighbours (ranks of a node), or as many of them as divide all ranks
    evenly; any algorithms, by name or as such, inside and across.
    """

    group: int = 8
    inside: Algorithm | str = "ring"
    across: Algorithm | str = "ring"
    pieces: int = 1
    operations: ClassVar[frozenset[str]] = OPERATIONS

    def schedule(self, collective: Collective, n: int, channels: int = 1) -> Schedule:
        self.check(collective)
        return self._levels(n).schedule(collective, n, channels)

    def cost(self, collective: Collective, n: int, channels: int = 1) -> Cost:
        """The sum of both parts': with rings and G groups of g, 2 (g-1) + 2 (G-1) rounds and
        2 (n-1)/n of the buffer. Neglects what pieces gain by overlap.
        """
        self.check(collective)
        return self._levels(n).cost(collective, n)

    def _levels(self, n: int) -> TwoLevel:
        return TwoLevel(
            size=divisor(n, self.group),
            inside=named(self.inside),
            across=named(self.across),
            pieces=self.pieces,
        )
