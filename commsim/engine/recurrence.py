"""Rounds that repeat are played until they do so to the last bit but rounding, then skipped.

Between events an engine's future follows from its state: which ops are under way, since when, how
much of each is left, what the others still wait for. Rates follow from these. If the state of the
rounds under way has come back twice, moved by m rounds and T seconds each time, it comes back for
ever: as long as there are rounds, and until something happens that has its time of its own (a rank
that joins, a link that changes, other traffic that ends). So K periods are skipped at once: what
happens later is moved by K T, and K m rounds were never built (collectives.schedule.Window). The
rest, with the end of the operation, is played.

What this finds for arrays of max-plus recurrences is their cyclicity: Baccelli, Cohen, Olsder and
Quadrat, "Synchronization and Linearity", Wiley, 1992, section 3.7.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from commsim.collectives.chunks import Ints
from commsim.collectives.schedule import WHOLE, Window
from commsim.engine import compiled
from commsim.engine.compiled import ARRIVED, NONE, WAITING, Run, State
from commsim.engine.network import Floats
from commsim.engine.plan import Jump, Plan, Times
from commsim.units import Seconds

Watch = Callable[[int, Seconds], None]

FIRST = Window(rounds=24, least=1 << 15)
"""What is tried first: a schedule of fewer ops is played faster than it is looked at."""
WIDER = 4  # how many times more rounds are tried next
SAME = 1e-13
"""Times that differ by less than this share of the time that has passed are equal; so are amounts
that differ by less than this share of a transfer. A tenth of what is one instant (INSTANT)."""


class UnsettledError(Exception):
    """The rounds that were built ended before they repeated; or they repeat only `every` so many,
    which must divide those that are missing. alike: whether they can repeat at all.
    """

    def __init__(self, every: int = 1, alike: bool = True) -> None:
        super().__init__("the rounds that were built do not repeat yet")
        self.every = every
        self.alike = alike

    def next(self, window: Window) -> Window:
        """With what to try again."""
        if not self.alike:
            return WHOLE
        if self.every > 1 and window.multiple % self.every:
            return replace(window, multiple=math.lcm(window.multiple, self.every))
        return replace(window, rounds=WIDER * window.rounds)


class Found(NamedTuple):
    """A plan that was played: its times, and the window that sufficed."""

    plan: Plan
    times: Times
    window: Window


def play(
    build: Callable[[Window], Plan], window: Window, watch: Callable[[Plan], Watch | None]
) -> Found:
    """The times of the plan that `build` makes of a window: of the first wide enough one.

    Raises what `watch` of that plan raises.
    """
    while True:
        plan = build(window)
        try:
            return Found(plan, _play(plan, watch(plan)), window)
        except UnsettledError as unsettled:
            window = unsettled.next(window)


def _play(plan: Plan, watch: Watch | None, events: int = 1 << 18) -> Times:
    if not plan.repeats:
        return compiled.play(plan, watch, events)
    sections = [_Section.of(plan, i) for i in range(len(plan.repeats))]
    marked = np.zeros(len(plan), dtype=np.bool_)
    for section in sections:
        marked[section.first : section.end : section.ops] = True
    run = Run(plan, marked)
    search = _Search(plan=plan, sections=sections)
    while True:
        status = run.advance(events)
        if watch is not None:
            watch(run.finished, run.now)
        if status == compiled.DONE:
            if any(section.missing for section in sections):
                raise UnsettledError
            jumps = sorted(search.jumps, key=lambda jump: jump.first)
            return replace(run.times, jumps=tuple(jumps))
        if status == compiled.MARKED:
            search.look(run)


@dataclass(kw_only=True)
class _Section:
    """Rounds that are alike, from op `first` on, and how far they are.

    missing: rounds that are not built and not skipped yet. lag: over how many rounds ops wait.
    base: rounds that have wholly arrived. top: rounds of which anything has happened. since: from
    which round on another jump may begin.
    """

    first: int
    ops: int
    rounds: int
    missing: int
    lag: int
    base: int = 0
    top: int = 0
    since: int = 0

    @classmethod
    def of(cls, plan: Plan, number: int) -> _Section:
        """That of a repeat of the plan; UnsettledError if its rounds are not alike."""
        repeat = plan.repeats[number]
        first, ops, rounds = repeat.first, repeat.ops, repeat.rounds
        last = first + (rounds - 1) * ops
        waits = plan.waits[plan.wait_start[last] : plan.wait_start[last + ops]]
        lag = 1 + (last - int(waits.min(initial=last)) + ops - 1) // ops
        if rounds <= lag + 1:
            raise UnsettledError
        one, next_ = (slice(first + r * ops, last + (r - lag) * ops) for r in (lag, lag + 1))
        columns = (plan.nbytes, plan.source, plan.destination, plan.way, plan.overhead,
                   plan.streams, np.diff(plan.wait_start))  # fmt: skip
        alike = all(np.array_equal(column[one], column[next_]) for column in columns)
        a, b = (
            plan.waits[plan.wait_start[s.start] : plan.wait_start[s.stop]] for s in (one, next_)
        )
        if not alike or not np.array_equal(a + ops, b):
            raise UnsettledError(alike=False)
        return cls(first=first, ops=ops, rounds=rounds, missing=repeat.missing, lag=lag)

    @property
    def end(self) -> int:
        """The op behind the last one."""
        return self.first + self.rounds * self.ops

    def span(self, first: int, last: int) -> slice:
        """The ops of these rounds, the last one not among them."""
        return slice(self.first + first * self.ops, self.first + min(last, self.rounds) * self.ops)

    def move(self, plan: Plan, s: State, now: Seconds) -> None:
        """Find out how far it is; UnsettledError where what is missing would have to begin."""
        while (
            self.base < self.rounds
            and (s.phase[self.span(self.base, self.base + 1)] == ARRIVED).all()
        ):
            self.base += 1
        self.top = max(self.top, self.base)
        while self.top < self.rounds:
            ahead = self.span(self.top, self.top + self.lag)
            begun = s.phase[ahead] != WAITING
            begun |= s.pending[ahead] != np.diff(plan.wait_start[ahead.start : ahead.stop + 1])
            if not (begun & ~(s.ready[ahead] > now)).any():
                break
            self.top += 1
        if self.missing and self.top > self.rounds - self.lag:
            raise UnsettledError


@dataclass(frozen=True, kw_only=True, eq=False)
class _Snapshot:
    """The state between two events, as seen from `now`: of each section its first and last round
    under way, the times of these rounds and what is to come; flows with what is left; other ops.
    """

    now: Seconds
    base: tuple[int, ...]
    top: tuple[int, ...]
    times: Floats
    phase: NDArray[np.int8]
    pending: NDArray[np.int32]
    tails: NDArray[np.int32]
    flow: Ints  # which ops flow: numbered from their section's base; others as they are
    left: Floats
    rate: Floats
    nbytes: Floats
    own: NDArray[np.bool_]  # whether a flow is of a section
    others: NDArray[np.int8]  # phases of the ops outside all sections
    happened: tuple[int, int]  # changes and deaths so far

    def same(self, later: _Snapshot) -> bool:
        """Whether the later one is this one, some rounds and some time further on."""
        near = SAME * later.now
        return (
            self.happened == later.happened
            and self.phase.shape == later.phase.shape
            and all(
                b - a == d - c
                for a, b, c, d in zip(self.base, self.top, later.base, later.top, strict=True)
            )
            and np.array_equal(self.phase, later.phase)
            and np.array_equal(self.pending, later.pending)
            and np.array_equal(self.tails, later.tails)
            and np.array_equal(self.others, later.others)
            and np.array_equal(self.flow, later.flow)
            and np.allclose(self.times, later.times, rtol=0, atol=near, equal_nan=True)
            and np.allclose(self.rate, later.rate, rtol=SAME, atol=0)
            and bool(
                (np.abs(self.left - later.left)[self.own] <= SAME * self.nbytes[self.own]).all()
            )
        )


@dataclass(kw_only=True)
class _Search:
    """Looks for a state that comes back; Brent's way: compares with that of round 1, 2, 4, 8 ...
    of the leading section, then once more one period later.

    Brent, "An improved Monte Carlo factorization algorithm", BIT 20, 1980.
    """

    plan: Plan
    sections: list[_Section]
    jumps: list[Jump] = field(default_factory=list)
    count: int = 0
    marked: tuple[int, int] = (-1, 0)  # the leading section, and how many of its marks have passed
    old: _Snapshot | None = None
    old_count: int = 0
    first: _Snapshot | None = None  # the state has come back once since this one
    due: int = 0

    def look(self, run: Run) -> None:
        """One more round of some section has come to its mark."""
        s, now = run.state, run.now
        for section in self.sections:
            section.move(self.plan, s, now)
        leads = next((i for i, each in enumerate(self.sections) if each.missing and each.top), -1)
        if leads < 0:
            return
        section = self.sections[leads]
        marks = s.phase[section.first : section.end : section.ops] == ARRIVED
        seen = (leads, int(marks.sum()))
        if seen == self.marked:
            return  # the mark of another section
        if seen[0] != self.marked[0]:
            self._forget()
        self.marked = seen
        self.count += 1
        if self.first is not None:
            if self.count < self.due:
                return
            self._confirm(run)
            return
        found = self._snapshot(run)
        if self.old is not None and self.old.same(found):
            self.first, self.old, self.due = self.old, found, 2 * self.count - self.old_count
        elif self.old is None or self.count >= 2 * self.old_count:
            self.old, self.old_count = found, self.count

    def _forget(self) -> None:
        self.old = self.first = None
        self.count = self.old_count = 0

    def _confirm(self, run: Run) -> None:
        first, second, third = self.first, self.old, self._snapshot(run)
        assert first is not None
        assert second is not None
        periods = second.now - first.now, third.now - second.now
        steady = second.same(third) and abs(periods[1] - periods[0]) <= 2 * SAME * third.now
        self._forget()
        if not steady:
            return
        moved = np.subtract(second.base, first.base)
        before, fallen = (
            (first.left - second.left)[~first.own],
            (second.left - third.left)[~first.own],
        )
        if np.array_equal(moved, np.subtract(third.base, second.base)) and np.allclose(
            before, fallen, rtol=1e-9, atol=0
        ):
            self._jump(run, third, (third.now - first.now) / 2, moved, fallen)

    def _snapshot(self, run: Run) -> _Snapshot:
        s, now = run.state, run.now
        spans = [each.span(each.base, each.top) for each in self.sections]
        times = np.concatenate(
            [np.stack([t[span] for t in (s.ready, s.begun, s.sent, s.arrived)]) for span in spans],
            axis=1,
        ) - now  # fmt: skip
        slots = np.flatnonzero(s.op != NONE)
        slots = slots[np.argsort(s.op[slots])]
        op = s.op[slots].astype(np.int64)
        flow, own = op.copy(), np.zeros(len(op), dtype=np.bool_)
        for each, span in zip(self.sections, spans, strict=True):
            inside = (op >= each.first) & (op < each.end)
            flow[inside] -= span.start - each.first
            own |= inside
        outside = np.ones(len(self.plan), dtype=np.bool_)
        for each in self.sections:
            outside[each.first : each.end] = False
        return _Snapshot(
            now=now,
            base=tuple(each.base for each in self.sections),
            top=tuple(each.top for each in self.sections),
            times=times,
            phase=np.concatenate([s.phase[span] for span in spans]),
            pending=np.concatenate([s.pending[span] for span in spans]),
            tails=np.concatenate([s.tails[span] for span in spans] if len(s.tails) else [s.tails]),
            flow=flow,
            left=s.left[slots] - s.rate[slots] * (now - s.updated[slots]),
            rate=s.rate[slots].copy(),
            nbytes=self.plan.nbytes[op],
            own=own,
            others=s.phase[outside],
            happened=(int(s.counts[compiled.CHANGED]), int(s.counts[compiled.DIED])),
        )

    def _jump(self, run: Run, at: _Snapshot, period: Seconds, moved: Ints, fallen: Floats) -> None:
        """Skip as many periods as there are rounds for, and time."""
        s, now = run.state, run.now
        going = [(each, int(m)) for each, m in zip(self.sections, moved, strict=True) if m]
        if any(each.base < each.since for each, _ in going):
            return
        most, each, every = min(
            ((each.missing // m, each, m) for each, m in going), key=lambda found: found[0]
        )
        moves = np.zeros(len(self.plan), dtype=np.bool_)
        for section, _ in going:
            moves[section.span(section.base, section.top)] = True
        moves &= ~(s.ready > now)
        times = min(most, self._until(run, moves, period, at, fallen))
        if times == most and each.missing % every:
            raise UnsettledError(every)
        if times < 1:
            return
        _skip(run, moves, times * period, times, fallen)
        for section, m in going:
            section.missing -= times * m
            section.since = section.base + m
            self.jumps.append(
                Jump(
                    first=section.first + section.base * section.ops, last=section.end,
                    ops=m * section.ops, rounds=m, times=times, period=period,
                )
            )  # fmt: skip

    def _until(
        self, run: Run, moves: NDArray[np.bool_], period: Seconds, at: _Snapshot, fallen: Floats
    ) -> int:
        """How many periods there are until something happens at a time of its own, less one."""
        s, f, now = run.state, run.fixed, run.now
        changed, died = s.counts[compiled.CHANGED], s.counts[compiled.DIED]
        joins = f.start[(f.start > now) & (f.start < np.inf)]
        ends = [*f.change_time[changed:], *f.death_time[died:], *joins]
        heap = int(s.counts[compiled.HEAP])
        for time, bucket in zip(s.heap_time[:heap], s.heap_bucket[:heap], strict=True):
            moving = _moving(s, int(bucket), moves)
            if not moving.all():
                ends.append(now if moving.any() else time)
        periods = [(end - now) / period for end in ends]
        left = at.left[~at.own]
        with np.errstate(divide="ignore"):
            periods += (left / fallen).tolist()
        return int(min([p for p in periods if p < math.inf], default=2.0**62)) - 1


def _moving(s: State, bucket: int, moves: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Of the events of a bucket, which belong to ops that are moved."""
    found, event = [], int(s.bucket_head[bucket])
    while event != NONE:
        found.append(event % len(moves))
        event = int(s.next_op[event])
    return moves[found]


def _skip(run: Run, moves: NDArray[np.bool_], by: Seconds, times: int, fallen: Floats) -> None:
    """Move all that happens to these ops by so much time; of other flows so much less is left."""
    s = run.state
    for column in (s.ready, s.begun, s.sent, s.arrived):
        column[moves] += by
    heap = int(s.counts[compiled.HEAP])
    for bucket in s.heap_bucket[:heap]:
        if _moving(s, int(bucket), moves).all():
            s.bucket_time[bucket] += by
    buckets = s.heap_bucket[:heap].copy()
    buckets = buckets[np.argsort(s.bucket_time[buckets], kind="stable")]
    s.heap_bucket[:heap], s.heap_time[:heap] = buckets, s.bucket_time[buckets]
    slots = np.flatnonzero(s.op != NONE)
    slots = slots[np.argsort(s.op[slots])]
    others = slots[~moves[s.op[slots]]]
    s.updated[slots] += by
    s.left[others] -= times * fallen
    s.finish[slots] += by
    with np.errstate(divide="ignore"):
        s.finish[others] = s.updated[others] + s.left[others] / s.rate[others]
    flows = s.flows[: int(s.counts[compiled.FLOWS])].copy()
    flows = flows[np.argsort(s.finish[flows], kind="stable")]
    s.flows[: len(flows)] = flows
    s.where[flows] = np.arange(len(flows))
    s.clock[compiled.NOW] += by
