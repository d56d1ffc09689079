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

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from commsim.collectives.schedule import Window
from commsim.engine import compiled
from commsim.engine.compiled import ARRIVED, Run
from commsim.engine.jumping import jump
from commsim.engine.plan import Jump, Plan, Times
from commsim.engine.rounds import SAME, Section, Snapshot, UnsettledError, snapshot
from commsim.units import Seconds

Watch = Callable[[int, Seconds], None]

FIRST = Window(rounds=24, least=1 << 15)
"""What is tried first: a schedule of fewer ops is played faster than it is looked at."""


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
            rounds = max(repeat.rounds + repeat.missing for repeat in plan.repeats)
            window = unsettled.next(window, rounds)


def _play(plan: Plan, watch: Watch | None, events: int = 1 << 18) -> Times:
    if not plan.repeats:
        return compiled.play(plan, watch, events)
    sections = [Section.of(plan, i) for i in range(len(plan.repeats))]
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
class _Search:
    """Looks for a state that comes back; Brent's way: compares with that of round 1, 2, 4, 8 ...
    of the leading section, then once more one period later.

    Brent, "An improved Monte Carlo factorization algorithm", BIT 20, 1980.
    """

    plan: Plan
    sections: list[Section]
    jumps: list[Jump] = field(default_factory=list)
    count: int = 0
    marked: tuple[int, int] = (-1, 0)  # the leading section, and how many of its marks have passed
    old: Snapshot | None = None
    old_count: int = 0
    first: Snapshot | None = None  # the state has come back once since this one
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
        found = snapshot(self.plan, self.sections, run)
        if self.old is not None and self.old.same(found):
            self.first, self.old, self.due = self.old, found, 2 * self.count - self.old_count
        elif self.old is None or self.count >= 2 * self.old_count:
            self.old, self.old_count = found, self.count

    def _forget(self) -> None:
        self.old = self.first = None
        self.count = self.old_count = 0

    def _confirm(self, run: Run) -> None:
        first, second, third = self.first, self.old, snapshot(self.plan, self.sections, run)
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
            period = (third.now - first.now) / 2
            self.jumps += jump(run, self.sections, third, period, moved, fallen)
