"""Chain: the buffer flows from the root from rank to rank (or back to it, summed), piece by piece.

Every link carries the buffer once, so with many pieces it takes hardly longer than one hop: it
wins for large broadcasts and reductions, and loses for small ones by its n - 1 hops.
Source: Chan, Heimlich, Purkayastha and van de Geijn, "Collective communication: theory, practice,
and experience", CCPE 19(13), 2007, doi:10.1002/cpe.1206.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from commsim.collectives.algorithm import Algorithm, Cost
from commsim.collectives.builder import NONE
from commsim.collectives.chunks import Chunks, cut
from commsim.collectives.collective import Collective
from commsim.collectives.schedule import Schedule
from commsim.collectives.trees import tree_schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain(Algorithm):
    """A chain from the root in the order of the positions; each channel sends `pieces` pieces, of
    which a connection holds `slots` (None: any number).
    """

    pieces: int = 4
    slots: int | None = None
    operations: ClassVar[frozenset[str]] = frozenset({"broadcast", "reduce"})

    def schedule(self, collective: Collective, n: int, channels: int = 1) -> Schedule:
        chunks = self._chunks(collective, n, channels)
        parents = (np.arange(n) - 1) % n
        parents[chunks.root] = NONE
        return tree_schedule(chunks, np.tile(parents, (channels, 1)), self.slots)

    def cost(self, collective: Collective, n: int, channels: int = 1) -> Cost:
        """n - 1 hops of the first piece, and the other pieces right behind it; neglects the wait
        for slots.
        """
        piece = self._chunks(collective, n, channels).nbytes.reshape(channels, -1).sum(axis=0)
        return Cost(
            rounds=n - 1,
            nbytes=float((n - 2) * piece[0] + piece.sum()),
            exact=self.slots is None,
        )

    def _chunks(self, collective: Collective, n: int, channels: int) -> Chunks:
        self.check(collective)
        return cut(collective, n, channels * self.pieces)
