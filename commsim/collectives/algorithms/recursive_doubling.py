"""Recursive doubling: partners at distance 1, 2, 4, ... exchange everything they have.

The fewest rounds possible, log2 n; all_reduce sends the whole buffer in each, so it wins for small
ones. Where n is no power of two, the ranks beyond the largest one below fold into a partner first
and get the result last. Source: Thakur, Rabenseifner and Gropp, "Optimization of collective
communication operations in MPICH", IJHPCA 19(1), 2005, doi:10.1177/1094342005051521.
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
class RecursiveDoubling(Algorithm):
    """Partners differ in one bit of their number; what arrives waits in scratch to be added. Both
    are through with the round before when they exchange, as MPI's rendezvous has it."""

    operations: ClassVar[frozenset[str]] = frozenset({"all_reduce", "barrier"})

    def schedule(self, collective: Collective, n: int, channels: int = 1) -> Schedule:
        chunks = self._chunks(collective, n, channels)
        power = n.bit_length() - 1
        core, extra = 1 << power, n - (1 << power)
        # One set of scratch places per exchange: a partner may run ahead.
        builder = Builder(chunks, scratch=power * channels)
        position, channel = np.divmod(np.arange(core * channels), channels)
        ready = np.full(core * channels, NONE)
        first = slice(0, extra * channels)
        step = 0
        if extra:
            ready[first] = builder.append(
                position[first] + core,
                position[first],
                channel[first],
                reduces=True,
                channel=channel[first],
            )
            step = 1
        sent = ready
        for bit in range(power):
            partner = position ^ (1 << bit)
            scratch = chunks.places + bit * channels + channel
            sent = builder.append(
                position,
                partner,
                channel,
                scratch,
                after=(ready, ready[partner * channels + channel]),
                channel=channel,
                round=step,
            )
            came = sent[partner * channels + channel]
            ready = builder.append(
                position,
                position,
                scratch,
                channel,
                reduces=True,
                after=(came, sent),
                channel=channel,
                round=step + 1,
            )
            step += 2
        if extra:
            builder.append(
                position[first],
                position[first] + core,
                channel[first],
                after=(ready[first],),
                channel=channel[first],
                round=step,
            )
        return builder.build()

    def cost(self, collective: Collective, n: int, channels: int = 1) -> Cost:
        """log2 n exchanges of the whole buffer; one more before and after unless n is a power of
        two. The sums in between are local and take no round.
        """
        power = n.bit_length() - 1
        rounds = power + (2 if n > 1 << power else 0)
        total = self._chunks(collective, n, channels).nbytes.sum()
        return Cost(rounds=rounds, nbytes=float(rounds * total))

    def _chunks(self, collective: Collective, n: int, channels: int) -> Chunks:
        self.check(collective)
        return cut(collective, n, channels)
