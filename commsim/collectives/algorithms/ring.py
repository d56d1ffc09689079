"""Ring: every rank sends to the next, n - 1 rounds to reduce and n - 1 to gather.

Moves the fewest bytes possible, 2 (n-1)/n of the buffer per rank in all_reduce, and uses each link
in one direction only; so it wins for large buffers, and loses for small ones by its 2 (n-1) rounds.
Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations",
JPDC 69(2), 2009, doi:10.1016/j.jpdc.2008.09.002.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from commsim.collectives.algorithm import Algorithm, Cost
from commsim.collectives.builder import Builder
from commsim.collectives.chunks import Chunks, Ints, cut
from commsim.collectives.collective import Collective
from commsim.collectives.schedule import Schedule
from commsim.errors import CollectiveError


@dataclass(frozen=True, slots=True, kw_only=True)
class Ring(Algorithm):
    """`both_ways`: odd channels run backwards. orders: the positions in ring order, channel c takes
    order c modulo their number; none: the order of the positions. pieces: how many parts of a block
    follow each other from rank to rank. slots: how many of them a rank may be ahead of what the
    next has passed on; more than `pieces`; 0: any number.

    period: only the first `period` places of every ring are built, and stand for all others, which
    do the same `period` places further on. Such a schedule can be played, not proved.
    """

    both_ways: bool = False
    orders: tuple[tuple[int, ...], ...] = ()
    pieces: int = 1
    slots: int = 0
    period: int = 0
    operations: ClassVar[frozenset[str]] = frozenset(
        {"all_reduce", "all_gather", "reduce_scatter", "barrier"}
    )

    def __post_init__(self) -> None:
        if self.pieces < 1 or (self.slots and self.slots <= self.pieces):
            raise CollectiveError(
                f"Ring: expected at least 1 piece and more slots than pieces, got {self.pieces} "
                f"pieces and {self.slots} slots"
            )

    def schedule(self, collective: Collective, n: int, channels: int = 1) -> Schedule:
        chunks = self._chunks(collective, n, channels)
        builder = Builder(chunks)
        built = self._built(n)
        place, channel = np.divmod(np.arange(built * channels), channels)
        orders = np.array(self.orders or (range(n),))
        which = channel % len(orders)
        way = np.where(self.both_ways & (channel % 2 == 1), -1, 1)
        source, target = orders[which, place], orders[which, (place + way) % n]
        before, after = (
            (place + step) % built * channels + channel for step in (-way, way)
        )  # the same channel's op of the previous and of the next
        summing = 0 if collective.operation == "all_gather" else n - 1
        copying = 0 if collective.operation == "reduce_scatter" else n - 1
        sent: list[Ints] = []  # per piece sent so far, by place and channel
        for step in range(summing + copying):
            # The sums travel towards their block's own rank, and from there to all others.
            behind = step + 1 if step < summing else step - summing
            block = orders[which, (place - way * behind) % n]
            for piece in range(self.pieces):
                waits = [sent[-self.pieces][before]] if step else []
                waits += [sent[-1]] if sent else []
                if self.slots and len(sent) >= self.slots:
                    waits.append(sent[self.pieces - self.slots][after])
                new = builder.append(
                    source,
                    target,
                    (block * channels + channel) * self.pieces + piece,
                    reduces=step < summing,
                    after=waits,
                    channel=channel,
                    round=step,
                )
                sent = [*sent[-self.slots - self.pieces :], new]
        return builder.build()

    def cost(self, collective: Collective, n: int, channels: int = 1) -> Cost:
        """(n-1) rounds of a block each, twice for all_reduce. Neglected with several pieces: all
        but the first of a round hide the latency.
        """
        phases = 2 if collective.operation in ("all_reduce", "barrier") else 1
        block = self._chunks(collective, n, channels).nbytes.reshape(n, -1).sum(axis=1).max()
        rounds = phases * (n - 1)
        return Cost(rounds=rounds, nbytes=float(rounds * block), exact=self.pieces == 1)

    def _built(self, n: int) -> int:
        """Places of a ring that are built."""
        if self.period and (self.period < 2 or n % self.period):
            raise CollectiveError(
                f"Ring: period: expected a divisor of {n} ranks and at least 2, got {self.period}"
            )
        return self.period or n

    def _chunks(self, collective: Collective, n: int, channels: int) -> Chunks:
        self.check(collective)
        whole = collective.operation in ("all_reduce", "barrier")
        return cut(collective, n, channels * self.pieces * (n if whole else 1))
