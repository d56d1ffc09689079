"""Which layouts are best: all surveyed, then timed in the order of their bounds.

A layout is left untimed only if its bound is above the time of the last one wanted and, for the
front of time and memory, another one is at least as good in both. So neither the best `top` nor the
front can lose a layout, in whatever order the workers answer.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from commsim.cost.profile import Profile
from commsim.planning.engine import Engine
from commsim.planning.space import Space, ladders, variants
from commsim.planning.survey import Question, Surveyed, Timed, survey, time
from commsim.units import Seconds
from commsim.workload.layout import Layout

BATCH = 64
"""Ladders of layouts that a worker surveys at a time."""
ROUND, SHARE = 32, 4
"""Layouts timed before the threshold is drawn anew, and of them in one task."""

Progress = Callable[[str, int, int], None]
"""What is being done, how many are done, of how many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A layout that fits, as its fastest variant; needed: bytes; duration: s of a step with the
    best buckets; bucket: their elements, where not the framework's own."""

    layout: Layout
    needed: float
    duration: Seconds
    bucket: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a search found. best: the `top` by the objective; front: those that no other beats in
    both time and memory. broken: structures by the rule they break; lacking: layouts that do not
    fit, by what takes most, in every variant; fits: layouts that do; timed: of them, those that had
    to be timed; searched: all layouts, in every variant."""

    best: tuple[Candidate, ...]
    front: tuple[Candidate, ...]
    broken: Counter[str]
    lacking: Counter[str]
    fits: int
    timed: int
    searched: int


def search(
    space: Space,
    profile: Profile,
    engine: Engine,
    *,
    objective: str = "time",
    top: int = 20,
    progress: Progress | None = None,
) -> Found:
    """The best layouts of a space by "time" (cost is time on one cluster) or "memory"."""
    question = Question.of(space, profile)
    broken: Counter[str] = Counter()
    listed = list(ladders(space, broken))
    tasks = [listed[i : i + BATCH] for i in range(0, len(listed), BATCH)]
    surveys = engine.run(
        survey, question, tasks, lambda n: _tell(progress, "memory", n, len(tasks))
    )
    lacking: Counter[str] = Counter()
    fits: list[tuple[Surveyed, Layout]] = []
    searched = 0
    for task, rows in zip(tasks, surveys, strict=True):
        for ladder, row in zip(task, rows, strict=True):
            each = sum(1 for _ in variants(ladder[0], space))
            searched += each * len(ladder)
            for layout, one in zip(ladder, row, strict=True):
                if one.missing:
                    lacking[one.missing] += each
                else:
                    fits.append((one, layout))
    key = _by_memory if objective == "memory" else _by_bound
    fits.sort(key=key)
    timed = _timed(question, fits, engine, objective, top, progress)
    candidates = [
        Candidate(
            layout=tuple(variants(layout, space))[one.variant], needed=known.needed,
            duration=one.duration, bucket=one.bucket,
        )
        for known, layout, one in timed
    ]  # fmt: skip
    order = memory_first if objective == "memory" else time_first
    candidates.sort(key=order)
    best = tuple(candidates[:top])
    return Found(
        best=best, front=front_of(candidates), broken=broken, lacking=lacking,
        fits=len(fits),
        timed=len(timed), searched=searched,
    )  # fmt: skip


def _tell(progress: Progress | None, what: str, done: int, of: int) -> None:
    if progress is not None:
        progress(what, done, of)


def _by_bound(known: tuple[Surveyed, Layout]) -> Seconds:
    return known[0].bound


def _by_memory(known: tuple[Surveyed, Layout]) -> tuple[float, Seconds]:
    return known[0].needed, known[0].bound


def time_first(c: Candidate) -> tuple[Seconds, float]:
    """The order by time."""
    return c.duration, c.needed


def memory_first(c: Candidate) -> tuple[float, Seconds]:
    """The order by memory."""
    return c.needed, c.duration


def _timed(
    question: Question,
    fits: Sequence[tuple[Surveyed, Layout]],
    engine: Engine,
    objective: str,
    top: int,
    progress: Progress | None,
) -> list[tuple[Surveyed, Layout, Timed]]:
    """The layouts that may be among the best or on the front, timed round by round."""
    found: list[tuple[Surveyed, Layout, Timed]] = []
    wanted: list[tuple[float, Seconds]] = []  # what the objective sorts by, ascending
    front = Front()

    def hopeful() -> Iterator[tuple[Surveyed, Layout]]:
        for known, layout in fits:
            full = len(wanted) >= top
            if objective == "memory":
                among = not full or (known.needed, known.bound) <= wanted[top - 1]
            else:
                among = not full or (known.bound, 0.0) <= wanted[top - 1]
            if among or not front.beats(known.bound, known.needed):
                yield known, layout

    waiting = hopeful()
    while some := list(islice(waiting, ROUND)):
        shares = [some[i : i + SHARE] for i in range(0, len(some), SHARE)]
        tasks = [[layout for _, layout in share] for share in shares]
        results = engine.run(time, question, tasks, None)
        for share, durations in zip(shares, results, strict=True):
            for (known, layout), one in zip(share, durations, strict=True):
                found.append((known, layout, one))
                pair = (one.duration, known.needed)
                insort(wanted, pair[::-1] if objective == "memory" else pair)
                front.add(one.duration, known.needed)
        _tell(progress, "time", len(found), len(fits))
    return found


class Front:
    """The times and memories that nothing known beats in both."""

    def __init__(self) -> None:
        self._times: list[Seconds] = []  # ascending; the memories with them descend
        self._needed: list[float] = []

    def beats(self, duration: Seconds, needed: float) -> bool:
        """Is there one at least as good in both?"""
        i = bisect_right(self._times, duration)
        return i > 0 and self._needed[i - 1] <= needed

    def add(self, duration: Seconds, needed: float) -> bool:
        """Takes one in, unless another is as good in both; says whether it did."""
        if self.beats(duration, needed):
            return False
        i = bisect_right(self._times, duration)
        stop = i
        while stop < len(self._times) and self._needed[stop] >= needed:
            stop += 1
        start = i - 1 if i and self._times[i - 1] == duration else i
        self._times[start:stop] = [duration]
        self._needed[start:stop] = [needed]
        return True


def front_of(candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Those that no other beats in both, the fastest first."""
    front = Front()
    return tuple(c for c in sorted(candidates, key=time_first) if front.add(c.duration, c.needed))
