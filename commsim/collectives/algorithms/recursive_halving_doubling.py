"""Recursive halving and doubling: partners at distance n/2, ..., 2, 1 exchange and add ever smaller
halves of the buffer; then it grows back together from distance 1 to n/2.

2 log2 n rounds and the fewest bytes possible, 2 (n-1)/n of the buffer: it wins for middle sizes,
where a ring has too many rounds. Where n is no power of two, the ranks beyond the largest one below
fold into a partner first and get their result last, whole buffers both. Source: Rabenseifner,
"Optimization of collective reduction operations", ICCS 2004, doi:10.1007/978-3-540-24685-5_1;
Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH",
IJHPCA 19(1), 2005, doi:10.1177/1094342005051521.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from commsim.collectives.algorithm import Algorithm, Cost
from commsim.collectives.builder import NONE, Builder
from commsim.collectives.chunks import Chunks, Ints, cut
from commsim.collectives.collective import Collective
from commsim.collectives.schedule import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class RecursiveHalvingDoubling(Algorithm):
    """Partners differ in one bit of their number, and both are through with the round before when
    they exchange. A folded rank's block, if it has one, stays with its partner's.
    """

    operations: ClassVar[frozenset[str]] = frozenset(
        {"all_gather", "all_reduce", "barrier", "reduce_scatter"}
    )

    def schedule(self, collective: Collective, n: int, channels: int = 1) -> Schedule:
        chunks = self._chunks(collective, n, channels)
        core, extra, halves, doubles = self._shape(collective, n)
        builder = Builder(chunks)
        rank, channel = np.divmod(np.arange(core * channels), channels)
        blocks = len(chunks.nbytes) // channels

        def places(block: Ints) -> Ints:
            return block * channels + channel[: len(block), np.newaxis]

        folded = slice(0, extra * channels)
        beyond = rank[folded, np.newaxis] + core
        all_blocks = np.tile(np.arange(blocks), (len(beyond), 1))
        sent, came = np.full((2, core * channels), NONE)
        if extra:
            came[folded] = builder.append(
                beyond[:, 0],
                rank[folded],
                places(all_blocks if halves else beyond),
                reduces=halves,
                channel=channel[folded],
            )
        steps = [(bit, True) for bit in reversed(range(core.bit_length() - 1)) if halves]
        steps += [(bit, False) for bit in range(core.bit_length() - 1) if doubles]
        for step, (bit, halving) in enumerate(steps, start=int(extra > 0)):
            partner = rank ^ (1 << bit)
            # What moves: the blocks that the partner goes on with, or all that the rank has.
            first = (partner if halving else rank) >> bit << bit
            block = first[:, np.newaxis] + np.arange(1 << bit)
            if blocks > core:
                block = np.concatenate([block, block + core], axis=1)
            sent = builder.append(
                rank,
                partner,
                places(block),
                length=block < blocks,
                reduces=halving,
                after=(came, came[partner * channels + channel], sent),
                channel=channel,
                round=step,
            )
            came = sent[partner * channels + channel]
        if extra:
            builder.append(
                rank[folded],
                beyond[:, 0],
                places(all_blocks if doubles else beyond),
                length=all_blocks != beyond if doubles else 1,
                after=(came[folded], sent[folded]),
                channel=channel[folded],
                round=len(steps) + 1,
            )
        return builder.build()

    def cost(self, collective: Collective, n: int, channels: int = 1) -> Cost:
        """A round per exchange, and (n-1)/n of the buffer in each of the two phases. Unless n is a
        power of two, two rounds more, and once more the buffer for each phase; in all_gather a rank
        that sends more than it receives then hides a part of the latency, which this neglects.
        """
        chunks = self._chunks(collective, n, channels)
        core, extra, halves, doubles = self._shape(collective, n)
        blocks = len(chunks.nbytes) // channels
        power, phases = core.bit_length() - 1, halves + doubles
        doubled = min(extra, blocks - core)  # ranks with a folded rank's block beside their own
        moved = phases * sum((1 << bit) + min(doubled, 1 << bit) for bit in range(power))
        if extra:
            moved += phases * blocks + (not doubles)  # there and back: one's own block only once
        block = chunks.nbytes.reshape(blocks, channels).sum(axis=1).max()
        return Cost(
            rounds=phases * power + 2 * (extra > 0),
            nbytes=float(moved * block),
            exact=halves or not extra,
        )

    def _shape(self, collective: Collective, n: int) -> tuple[int, int, bool, bool]:
        """Ranks that exchange, ranks that fold, and whether buffers are halved and doubled."""
        core = 1 << (n.bit_length() - 1)
        operation = collective.operation
        return core, n - core, operation != "all_gather", operation != "reduce_scatter"

    def _chunks(self, collective: Collective, n: int, channels: int) -> Chunks:
        self.check(collective)
        whole = collective.operation in ("all_reduce", "barrier")
        core = 1 << (n.bit_length() - 1)
        return cut(collective, n, channels * core if whole else channels)
