"""Rounds that are alike, how far they are, and the state of what is under way between two events.

A round is one step of all ranks (collectives.schedule.Repeat): here `Section` follows those that
were built, and `Snapshot` is what decides what happens next, seen from the present.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from commsim.collectives.chunks import Ints
from commsim.collectives.schedule import WHOLE, Window
from commsim.engine import compiled
from commsim.engine.compiled import ARRIVED, NONE, WAITING, Run, State
from commsim.engine.network import Floats
from commsim.engine.plan import Plan
from commsim.units import Seconds

WIDER = 4  # how many times more rounds are tried next
MOST = 0.35
"""Of all rounds, what is tried at most: what does not repeat by then rarely does before the end,
and looking takes twice as long as playing."""
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

    def next(self, window: Window, rounds: int) -> Window:
        """With what to try again where there are so many rounds."""
        if not self.alike:
            return WHOLE
        if self.every > 1 and window.multiple % self.every:
            return replace(window, multiple=math.lcm(window.multiple, self.every))
        wider = WIDER * window.rounds
        return replace(window, rounds=wider) if wider <= MOST * rounds else WHOLE


@dataclass(kw_only=True)
class Section:
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
    def of(cls, plan: Plan, number: int) -> Section:
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
class Snapshot:
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

    def same(self, later: Snapshot) -> bool:
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


def snapshot(plan: Plan, sections: Sequence[Section], run: Run) -> Snapshot:
    """The state now."""
    s, now = run.state, run.now
    spans = [each.span(each.base, each.top) for each in sections]
    times = np.concatenate(
        [np.stack([t[span] for t in (s.ready, s.begun, s.sent, s.arrived)]) for span in spans],
        axis=1,
    ) - now  # fmt: skip
    slots = np.flatnonzero(s.op != NONE)
    slots = slots[np.argsort(s.op[slots])]
    op = s.op[slots].astype(np.int64)
    flow, own = op.copy(), np.zeros(len(op), dtype=np.bool_)
    for each, span in zip(sections, spans, strict=True):
        inside = (op >= each.first) & (op < each.end)
        flow[inside] -= span.start - each.first
        own |= inside
    outside = np.ones(len(plan), dtype=np.bool_)
    for each in sections:
        outside[each.first : each.end] = False
    return Snapshot(
        now=now,
        base=tuple(each.base for each in sections),
        top=tuple(each.top for each in sections),
        times=times,
        phase=np.concatenate([s.phase[span] for span in spans]),
        pending=np.concatenate([s.pending[span] for span in spans]),
        tails=np.concatenate([s.tails[span] for span in spans] if len(s.tails) else [s.tails]),
        flow=flow,
        left=s.left[slots] - s.rate[slots] * (now - s.updated[slots]),
        rate=s.rate[slots].copy(),
        nbytes=plan.nbytes[op],
        own=own,
        others=s.phase[outside],
        happened=(int(s.counts[compiled.CHANGED]), int(s.counts[compiled.DIED])),
    )
