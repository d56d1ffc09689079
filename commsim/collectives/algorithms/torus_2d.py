"""2-D torus: rings along the rows of a grid, then along its columns, then along the rows again.

A square grid has 4 (sqrt(n) - 1) rounds in place of a ring's 2 (n - 1), for the same bytes per
rank, and only neighbours in the grid talk: it wins on tori and meshes, and for medium sizes on
anything where a ring's latency counts. Source: Mikami, Suganuma, U-chupala, Tanaka and Kageyama,
"Massively distributed SGD: ImageNet/ResNet-50 training in a flash", 2018, arXiv:1811.05233.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt
from typing import ClassVar

from commsim.collectives.algorithm import Algorithm, Cost
from commsim.collectives.collective import Collective
from commsim.collectives.schedule import Schedule
from commsim.collectives.two_level import OPERATIONS, TwoLevel, divisor, named
from commsim.errors import CollectiveError


@dataclass(frozen=True, slots=True, kw_only=True)
class Torus2D(Algorithm):
    """A grid of `rows` rows, filled row by row; None: as near to square as n divides."""

    rows: int | None = None
    operations: ClassVar[frozenset[str]] = OPERATIONS

    def schedule(self, collective: Collective, n: int, channels: int = 1) -> Schedule:
        self.check(collective)
        return self._levels(n).schedule(collective, n, channels)

    def cost(self, collective: Collective, n: int, channels: int = 1) -> Cost:
        """With R rows of C: 2 (C-1) + 2 (R-1) rounds and 2 (n-1)/n of the buffer for all_reduce;
        half of both for all_gather and reduce_scatter.
        """
        self.check(collective)
        return self._levels(n).cost(collective, n)

    def _levels(self, n: int) -> TwoLevel:
        rows = divisor(n, isqrt(n)) if self.rows is None else self.rows
        if rows < 1 or n % rows:
            raise CollectiveError(f"Torus2D: rows: expected a divisor of {n} ranks, got {rows}")
        ring = named("ring")
        return TwoLevel(size=n // rows, inside=ring, across=ring)
