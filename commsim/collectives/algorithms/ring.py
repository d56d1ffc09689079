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
from commsim.collectives.schedule import WHOLE, Repeat, Schedule, Window
from commsim.errors import CollectiveError

BATCH = 1 << 16  # ops made at a time: few calls, and little memory beside the schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Ring(Algorithm):
    """`both_ways`: odd channels run backwards. orders: the positions in ring order, channel c takes
    order c modulo their number; none: the order of the positions. pieces: how many parts of a block
    follow each other from rank to rank. slots: how many of them a rank may be ahead of what the
    next has passed on; more than `pieces`; None: any number.

    period: only the first `period` places of every ring are built, and stand for all others, which
    do the same `period` places further on. window: how many rounds are built of those that are
    alike, all sums or all copies of equal blocks. Such schedules can be played, not proved.
    """

    both_ways: bool = False
    orders: tuple[tuple[int, ...], ...] = ()
    pieces: int = 1
    slots: int | None = None
    period: int = 0
    window: Window = WHOLE
    operations: ClassVar[frozenset[str]] = frozenset(
        {"all_reduce", "all_gather", "reduce_scatter", "barrier"}
    )

    def __post_init__(self) -> None:
        if self.pieces < 1 or (self.slots is not None and self.slots <= self.pieces):
            raise CollectiveError(
                f"Ring: expected at least 1 piece and more slots than pieces, got {self.pieces} "
                f"pieces and {self.slots} slots"
            )

    def schedule(self, collective: Collective, n: int, channels: int = 1) -> Schedule:
        chunks = self._chunks(collective, n, channels)
        builder = Builder(chunks)
        built, pieces = self._built(n), self.pieces
        lanes = built * channels  # the ops of one piece of one round: a place and a channel each
        summing = 0 if collective.operation == "all_gather" else n - 1
        copying = 0 if collective.operation == "reduce_scatter" else n - 1
        orders = np.array(self.orders or (range(n),))
        equal = chunks.nbytes.min() == chunks.nbytes.max()
        steps: list[int] = []
        repeats = []
        for first, rounds in ((0, summing), (summing, copying)):
            kept = self.window.built(rounds, lanes * pieces) if equal else rounds
            if kept < rounds:
                at = len(steps) * lanes * pieces
                repeats.append(
                    Repeat(first=at, ops=lanes * pieces, rounds=kept, missing=rounds - kept)
                )
            steps += range(first, first + kept)
        batch = max(1, BATCH // (lanes * pieces))
        for first in range(0, len(steps), batch):
            these = np.array(steps[first : first + batch])
            position, piece, lane = (
                a.ravel() for a in np.indices((len(these), pieces, lanes), dtype=np.int64)
            )
            step = these[position]
            position += first
            place, channel = np.divmod(lane, channels)
            which = channel % len(orders)
            way = np.where(self.both_ways & (channel % 2 == 1), -1, 1)
            # The sums travel towards their block's own rank, and from there to all others.
            behind = np.where(step < summing, step + 1, step - summing)
            block = orders[which, (place - way * behind) % n]
            turn = position * pieces + piece
            before, after = (
                (place + by) % built * channels + channel for by in (-way, way)
            )  # the same channel's lane of the previous and of the next
            waits = [
                np.where(position > 0, (turn - pieces) * lanes + before, NONE),
                np.where(turn > 0, (turn - 1) * lanes + lane, NONE),
            ]
            if self.slots is not None:
                passed = (turn - self.slots + pieces) * lanes + after
                waits.append(np.where(turn >= self.slots, passed, NONE))
            builder.append(
                orders[which, place],
                orders[which, (place + way) % n],
                (block * channels + channel) * pieces + piece,
                reduces=step < summing,
                after=waits,
                channel=channel,
                round=step,
            )
        return builder.build(repeats)

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
