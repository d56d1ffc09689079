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
from commsim.collectives.builder import NONE, Builder
from commsim.collectives.chunks import Chunks, cut
from commsim.collectives.collective import Collective
from commsim.collectives.schedule import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain(Algorithm):
    """A chain from the root in the order of the positions; each channel sends `pieces` pieces."""

    pieces: int = 4
    operations: ClassVar[frozenset[str]] = frozenset({"broadcast", "reduce"})

    def schedule(self, collective: Collective, n: int, channels: int = 1) -> Schedule:
        chunks = self._chunks(collective, n, channels)
        assert chunks.root is not None
        builder = Builder(chunks)
        channel = np.arange(channels)
        summing = collective.operation == "reduce"
        hops = n - 1
        sent = np.full((hops, self.pieces, channels), NONE)
        for piece in range(self.pieces):
            for hop in range(hops):
                # Hops count from where the data starts: the root, or the rank farthest from it.
                near = chunks.root + (hops - hop if summing else hop)
                far = near + (-1 if summing else 1)
                sent[hop, piece] = builder.append(
                    near % n,
                    far % n,
                    channel * self.pieces + piece,
                    reduces=summing,
                    after=(
                        sent[hop - 1, piece] if hop else NONE,
                        sent[hop, piece - 1] if piece else NONE,
                    ),
                    channel=channel,
                    round=hop + piece,
                )
        return builder.build()

    def cost(self, collective: Collective, n: int, channels: int = 1) -> Cost:
        """n - 2 + pieces rounds of a piece each: the first piece leads all others by one hop."""
        chunks = self._chunks(collective, n, channels)
        piece = chunks.nbytes.reshape(channels, self.pieces).sum(axis=0)
        rounds = n - 2 + self.pieces
        # In round t the pieces t - (n - 2) to t are under way.
        moving = [piece[max(0, t - n + 2) : t + 1].max() for t in range(rounds)]
        return Cost(rounds=rounds, nbytes=float(sum(moving)))

    def _chunks(self, collective: Collective, n: int, channels: int) -> Chunks:
        self.check(collective)
        return cut(collective, n, channels * self.pieces)
