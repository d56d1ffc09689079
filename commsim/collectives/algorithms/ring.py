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
from commsim.collectives.builder import NONE, Builder
from commsim.collectives.chunks import Chunks, cut
from commsim.collectives.collective import Collective
from commsim.collectives.schedule import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Ring(Algorithm):
    """`both_ways`: odd channels run backwards. orders: the positions in ring order, channel c takes
    order c modulo their number; none: the order of the positions.
    """

    both_ways: bool = False
    orders: tuple[tuple[int, ...], ...] = ()
    operations: ClassVar[frozenset[str]] = frozenset(
        {"all_reduce", "all_gather", "reduce_scatter", "barrier"}
    )

    def schedule(self, collective: Collective, n: int, channels: int = 1) -> Schedule:
        chunks = self._chunks(collective, n, channels)
        builder = Builder(chunks)
        place, channel = np.divmod(np.arange(n * channels), channels)
        orders = np.array(self.orders or (range(n),))
        which = channel % len(orders)
        way = np.where(self.both_ways & (channel % 2 == 1), -1, 1)
        source, target = orders[which, place], orders[which, (place + way) % n]
        before = (place - way) % n * channels + channel  # the same channel's op of the previous
        summing = 0 if collective.operation == "all_gather" else n - 1
        copying = 0 if collective.operation == "reduce_scatter" else n - 1
        last = np.full(n * channels, NONE)
        for step in range(summing + copying):
            # The sums travel towards their block's own rank, and from there to all others.
            behind = step + 1 if step < summing else step - summing
            block = orders[which, (place - way * behind) % n]
            last = builder.append(
                source,
                target,
                block * channels + channel,
                reduces=step < summing,
                after=(last[before], last),
                channel=channel,
                round=step,
            )
        return builder.build()

    def cost(self, collective: Collective, n: int, channels: int = 1) -> Cost:
        """(n-1) rounds of a block each, twice for all_reduce."""
        phases = 2 if collective.operation in ("all_reduce", "barrier") else 1
        block = self._chunks(collective, n, channels).nbytes.reshape(n, channels).sum(axis=1).max()
        return Cost(rounds=phases * (n - 1), nbytes=float(phases * (n - 1) * block))

    def _chunks(self, collective: Collective, n: int, channels: int) -> Chunks:
        self.check(collective)
        whole = collective.operation in ("all_reduce", "barrier")
        return cut(collective, n, channels * n if whole else channels)
