"""Direct: every rank deals with every other at once: one round, or two for all_reduce.

Wins for small buffers wherever all pairs are joined (NVSwitch, an NVLink mesh). all_reduce is the
two-shot kind: each rank's share is summed at that rank, then the sums go out, for 2 (n-1)/n of the
buffer. all_to_all, gather and scatter are what a group of sends and receives does. Source: Chan,
Heimlich, Purkayastha and van de Geijn, "Collective communication: theory, practice, and
experience", CCPE 19(13), 2007, doi:10.1002/cpe.1206 (all_reduce as reduce-scatter and all-gather).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from commsim.collectives.algorithm import Algorithm, Cost
from commsim.collectives.builder import Builder
from commsim.collectives.chunks import Chunks, cut
from commsim.collectives.collective import Collective
from commsim.collectives.schedule import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Direct(Algorithm):
    """All pairs at once; rank p gives first to p + 1, then to p + 2, and so on."""

    operations: ClassVar[frozenset[str]] = frozenset(
        {"all_gather", "all_reduce", "all_to_all", "barrier", "gather", "reduce_scatter", "scatter"}
    )

    def schedule(self, collective: Collective, n: int, channels: int = 1) -> Schedule:
        chunks = self._chunks(collective, n, channels)
        builder = Builder(chunks)
        apart = collective.operation == "all_to_all"  # there a rank's own block moves too
        shape = (n if apart else n - 1, n, channels)
        step, giver, channel = (a.ravel() for a in np.indices(shape))
        taker = (giver + step + (0 if apart else 1)) % n
        given = giver * channels + channel
        taken = taker * channels + channel
        match collective.operation:
            case "all_gather":
                builder.append(giver, taker, given, channel=channel)
            case "all_to_all":
                builder.append(giver, taker, taken, chunks.output + given, channel=channel)
            case "gather":
                to = taker == chunks.root
                builder.append(giver[to], taker[to], given[to], channel=channel[to])
            case "scatter":
                of = giver == chunks.root
                builder.append(giver[of], taker[of], taken[of], channel=channel[of])
            case _:
                sums = builder.append(giver, taker, taken, reduces=True, channel=channel)
                if collective.operation != "reduce_scatter":
                    # One op without data per rank and channel joins its sums: n waits, not n * n.
                    by_step = sums.reshape(shape)
                    came = [np.roll(by_step[k], k + 1, axis=0).ravel() for k in range(n - 1)]
                    rank, lane = np.divmod(np.arange(n * channels), channels)
                    whole = builder.append(
                        rank, rank, 0, length=0, after=came, channel=lane, round=1
                    )
                    builder.append(
                        giver, taker, given, after=(whole[given],), channel=channel, round=2
                    )
        return builder.build()

    def cost(self, collective: Collective, n: int, channels: int = 1) -> Cost:
        """n - 1 blocks in one round, in all_reduce twice; a root's own block stays where it is.
        Of an uneven all_to_all, the rank with the most to send or receive.
        """
        chunks = self._chunks(collective, n, channels)
        if collective.operation == "all_to_all":
            return Cost(rounds=1, nbytes=float(chunks.busiest()))
        block = chunks.nbytes.reshape(n, channels).sum(axis=1)
        if chunks.root is not None:
            return Cost(rounds=1, nbytes=float(block.sum() - block[chunks.root]))
        rounds = 2 if collective.operation in ("all_reduce", "barrier") else 1
        return Cost(rounds=rounds, nbytes=float(rounds * (n - 1) * block.max()))

    def _chunks(self, collective: Collective, n: int, channels: int) -> Chunks:
        self.check(collective)
        whole = collective.operation in ("all_reduce", "barrier")
        return cut(collective, n, channels * n if whole else channels)
