"""One collective as it was played: the times of its ops, and what they say about its ranks.

All times are s from the moment at which the simulation begins.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from commsim.collectives.collective import Collective, bus_factor
from commsim.engine.network import Floats, Laid
from commsim.engine.plan import Jump, Times
from commsim.engine.unrolled import shortened, unrolled
from commsim.units import BytesPerSecond, Seconds

NONE = -1


@dataclass(frozen=True, kw_only=True, eq=False)
class Played:
    """One collective as it was played.

    asked: when its first rank may begin. joined: when each vertex really took part, after its
    delay and the launch. ranks: the global rank of each position. multiplicity: how many equal
    transfers one op stands for (1 unless folded).
    """

    collective: Collective
    ranks: tuple[int, ...]
    laid: Laid
    times: Times
    asked: Seconds
    joined: Floats
    launch: Seconds
    algorithm: str
    protocol: str
    multiplicity: int = 1
    notes: tuple[str, ...] = ()

    @property
    def repeated(self) -> tuple[str, ...]:
        """What was not played because it repeats, a sentence each."""
        found = []
        for jump in self.times.jumps:
            first = int(self.laid.schedule.round[jump.first])
            first += sum(
                j.times * j.rounds for j in self.times.jumps if j.first < jump.first < j.last
            )
            last = first + (jump.times + 1) * jump.rounds - 1
            every = f" every {jump.rounds} rounds" if jump.rounds > 1 else ""
            found.append(
                f"folded: rounds {first:,} to {last:,} repeat{every}; {jump.left_out:,} transfers "
                "are not played"
            )
        return tuple(found)

    @cached_property
    def whole(self) -> Played:
        """With every transfer that was not played because it repeats."""
        if not self.times.jumps:
            return self
        laid, times = unrolled(self.laid, self.times)
        return replace(self, laid=laid, times=times)

    @property
    def n(self) -> int:
        """Ranks in the group, folded or not."""
        return len(self.ranks)

    @cached_property
    def end(self) -> Seconds:
        """When the last byte arrived; inf if some never did."""
        arrived = self.times.arrived
        if self.times.stalled:
            return math.inf
        return float(arrived.max(initial=float(self.joined[: self.n].max(initial=self.asked))))

    @property
    def duration(self) -> Seconds:
        """s from `asked` to `end`."""
        return self.end - self.asked

    @property
    def bus_bandwidth(self) -> BytesPerSecond:
        """nccl-tests' busbw in bytes/s."""
        factor = bus_factor(self.collective.operation, self.n)
        return self.collective.nbytes * factor / self.duration if self.duration > 0 else math.inf

    @cached_property
    def finished(self) -> Floats:
        """Per vertex, when its last op was over: sent by it, or arrived there; inf if never."""
        schedule, times = self.laid.schedule, self.times
        last = self.joined.copy()
        sent = np.where(np.isnan(times.sent), np.inf, times.sent)
        arrived = np.where(np.isnan(times.arrived), np.inf, times.arrived)
        np.maximum.at(last, schedule.source, sent)
        np.maximum.at(last, schedule.destination, arrived)
        return last

    @cached_property
    def transferring(self) -> Floats:
        """Per vertex, s in which at least one of its transfers was under way, software included:
        until it has left where this sends, until it has arrived where this receives.
        """
        if self.times.jumps:
            return _repeated(self)
        schedule, times = self.laid.schedule, self.times
        moves = (schedule.source != schedule.destination) & ~np.isnan(times.begun)
        begin, begun = np.tile(times.ready[moves], 2), np.tile(times.begun[moves], 2)
        over = np.concatenate([times.sent[moves], times.arrived[moves]])
        over = np.where(np.isnan(over), begun, over)
        ends = np.concatenate([schedule.source[moves], schedule.destination[moves]])
        order = np.lexsort((begin, ends))
        ends, begin, over = ends[order], begin[order], over[order]
        busy = np.zeros(schedule.vertices)
        if len(ends):
            # Per vertex the latest end so far: what begins before it adds only what lies beyond.
            first = np.append(True, ends[1:] != ends[:-1])
            lift = np.cumsum(first) * (2 * float(over.max()))
            latest = np.maximum.accumulate(over + lift) - lift
            before = np.where(first, -np.inf, np.concatenate([[0.0], latest[:-1]]))
            np.add.at(busy, ends, np.maximum(0.0, over - np.maximum(begin, before)))
        return busy

    @cached_property
    def taking_part(self) -> NDArray[np.bool_]:
        """Per vertex, whether any op is its own; where ranks are folded, others stand for some."""
        found = np.zeros(self.laid.schedule.vertices, dtype=np.bool_)
        found[self.laid.schedule.source] = found[self.laid.schedule.destination] = True
        return found

    def name_of(self, vertex: int) -> int | str:
        """A position's rank, or a switch's name."""
        return self.ranks[vertex] if vertex < self.n else f"switch{vertex - self.n}"


def _repeated(played: Played) -> Floats:
    """`transferring`, where rounds repeat. One repetition more adds the same each time, once there
    are so many that what lies before and behind them does not meet: so few are put back, and what
    another one adds is taken for each of those that are left.
    """
    jumps = played.times.jumps
    few = [min(jump.times, _apart(played, jump)) for jump in jumps]

    def with_few(more: int) -> Floats:
        counts = [k + (i == more) for i, k in enumerate(few)]
        laid, times = unrolled(played.laid, shortened(played.times, counts))
        return replace(played, laid=laid, times=times).transferring

    found = with_few(NONE)
    for i, jump in enumerate(jumps):
        if jump.times > few[i]:
            found = found + (jump.times - few[i]) * (with_few(i) - with_few(NONE))
    return found


def _apart(played: Played, jump: Jump) -> int:
    """After how many periods a repetition cannot meet the first one, and one more."""
    ops, times = slice(jump.first, jump.first + jump.ops), played.times
    span = float(times.arrived[ops].max() - times.ready[ops].min())
    return 2 + math.ceil(span / jump.period)
