"""Bruck: log2 n rounds of all_gather and all_to_all on any number of ranks, 2^k ranks away in round
k.

In all_gather every rank passes on all that it has, in all_to_all each block takes the hops of its
distance's one bits; so all_gather moves the fewest bytes possible, all_to_all log2 n / 2 times as
many. Wins for small blocks on many ranks. Source: Bruck, Ho, Kipnis, Upfal and Weathersby,
"Efficient algorithms for all-to-all communications in multiport message-passing systems", IEEE
TPDS 8(11), 1997, doi:10.1109/71.642949.
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
class Bruck(Algorithm):
    """A rank's next round waits for what its last one sent and received."""

    operations: ClassVar[frozenset[str]] = frozenset({"all_gather", "all_to_all"})

    def schedule(self, collective: Collective, n: int, channels: int = 1) -> Schedule:
        chunks = self._chunks(collective, n, channels)
        if collective.operation == "all_to_all":
            return _exchange(chunks)
        builder = Builder(chunks)
        rank, channel = np.divmod(np.arange(n * channels), channels)
        sent = came = np.full(n * channels, NONE)
        for step in range((n - 1).bit_length()):
            away = 1 << step
            block = (rank[:, np.newaxis] + np.arange(min(away, n - away))) % n
            sent = builder.append(
                rank,
                (rank - away) % n,
                block * channels + channel[:, np.newaxis],
                after=(sent, came),
                channel=channel,
                round=step,
            )
            came = sent[(rank + away) % n * channels + channel]
        return builder.build()

    def cost(self, collective: Collective, n: int, channels: int = 1) -> Cost:
        """ceil(log2 n) rounds; n - 1 blocks in all_gather, in all_to_all one per one bit of each
        distance; where blocks differ, as if all ranks went in step.
        """
        chunks = self._chunks(collective, n, channels)
        rounds = (n - 1).bit_length()
        if collective.operation == "all_gather":
            block = chunks.nbytes.reshape(n, channels).sum(axis=1).max()
            return Cost(rounds=rounds, nbytes=float((n - 1) * block))
        pairs, giver = chunks.pairs(), np.arange(n)
        by_step = np.zeros((rounds, n), dtype=np.int64)
        for distance in range(1, n):
            moved = pairs[giver, (giver + distance) % n]
            for step in range(rounds):
                if distance >> step & 1:
                    by_step[step] += np.roll(moved, distance % (1 << step))
        return Cost(rounds=rounds, nbytes=float(by_step.max(axis=1).sum()))

    def _chunks(self, collective: Collective, n: int, channels: int) -> Chunks:
        self.check(collective)
        return cut(collective, n, channels)


def _exchange(chunks: Chunks) -> Schedule:
    """all_to_all. A block waits in scratch between its hops, at each in a place of its own: its
    next owner may run ahead.
    """
    n, channels = chunks.n, chunks.parts
    distance = np.arange(n)
    between = sum(d.bit_count() - 1 for d in range(1, n))
    builder = Builder(chunks, scratch=between * channels)
    rank, channel = np.divmod(np.arange(n * channels), channels)
    lane = channel[:, np.newaxis]
    size = chunks.nbytes.reshape(n, n, channels)

    def place(block: Ints, start: int) -> Ints:
        return start + block * channels + lane

    own = rank * channels + channel
    builder.append(rank, rank, own, chunks.output + own, channel=channel)
    sent = came = np.full(n * channels, NONE)
    held, used = np.full(n, NONE), 0  # per distance, where in scratch its blocks are
    for step in range((n - 1).bit_length()):
        away = 1 << step
        moving = distance[distance & away > 0]
        origin = (rank[:, np.newaxis] - moving % away) % n
        goal = (origin + moving) % n
        source = np.where(held[moving] < 0, place(goal, 0), place(held[moving], chunks.places))
        stays = moving >= 2 * away  # has hops left
        held[moving[stays]] = used + np.arange(stays.sum())
        used += int(stays.sum())
        sent = builder.append(
            rank,
            (rank + away) % n,
            source,
            np.where(stays, place(held[moving], chunks.places), place(origin, chunks.output)),
            after=(sent, came),
            channel=channel,
            round=step,
            nbytes=size[origin, goal, lane].sum(axis=1),
        )
        came = sent[(rank - away) % n * channels + channel]
    return builder.build()
