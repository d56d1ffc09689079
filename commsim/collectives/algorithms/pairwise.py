"""Pairwise: in round k every rank sends to the k-th rank after it, n - 1 rounds.

Each block travels once and straight to its rank, so it moves the fewest bytes of any all_to_all; no
rank ever receives from two at a time. It wins for large blocks; many small ones pay a round each.
reduce_scatter does the same, and adds what arrives.
Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in
MPICH", IJHPCA 19(1), 2005, doi:10.1177/1094342005051521.
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
class Pairwise(Algorithm):
    """A rank's next exchange waits until its last send and its last receive are done."""

    operations: ClassVar[frozenset[str]] = frozenset({"all_to_all", "reduce_scatter"})

    def schedule(self, collective: Collective, n: int, channels: int = 1) -> Schedule:
        chunks = self._chunks(collective, n, channels)
        builder = Builder(chunks)
        position, channel = np.divmod(np.arange(n * channels), channels)
        last = np.full(n * channels, NONE)
        sums = chunks.reduces
        for step in range(int(sums), n):  # a block for oneself is a local copy, in round 0
            target = (position + step) % n
            came = last[(position - max(0, step - 1)) % n * channels + channel]
            last = builder.append(
                position,
                target,
                target * channels + channel,
                chunks.output + (target if sums else position) * channels + channel,
                reduces=sums,
                after=(last, came),
                channel=channel,
                round=step,
            )
        return builder.build()

    def cost(self, collective: Collective, n: int, channels: int = 1) -> Cost:
        """n - 1 rounds of the largest block that moves in each, as if all went in step."""
        chunks = self._chunks(collective, n, channels)
        if chunks.reduces:
            block = chunks.nbytes.reshape(n, channels).sum(axis=1).max()
            return Cost(rounds=n - 1, nbytes=float((n - 1) * block))
        pairs = chunks.pairs()
        giver = np.arange(n)
        blocks = [pairs[giver, (giver + step) % n].max() for step in range(1, n)]
        return Cost(rounds=n - 1, nbytes=float(sum(blocks)))

    def _chunks(self, collective: Collective, n: int, channels: int) -> Chunks:
        self.check(collective)
        return cut(collective, n, channels)
