"""Work on streams in virtual time: what a GPU computes and communicates, and who waits for whom.

Model: a stream does its tasks one after the other, in the order of their issue, as CUDA streams do:
start = max(end of the stream's task before, ends of all it comes after). A task takes its duration,
unless resources are given: then tasks that run at once share them. A task `holds` some of a
resource whole while it runs (a channel its SM) and `uses` some in proportion to its speed (bytes/s
of HBM, NIC or NVLink, SMs); speeds are at most 1, and max-min fair:

    sum of uses x speed <= capacity - what is held, for every resource

so that communication slows compute and compute slows communication by what both need. Neglected:
the time to issue a task, and blocks of a kernel that start late on SMs others still hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from commsim.engine.sharing import max_min_rates
from commsim.errors import ScheduleError
from commsim.units import Bytes, Seconds

COMPUTE, COMMUNICATION = "compute", "communication"  # the usual streams
DONE = 1e-12  # of a task's duration: less than that left is nothing
Uses = tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One kernel, or one collective, on one stream.

    kind: what it counts as ("forward", "all_reduce" ...). duration: s that it takes alone. after:
    places of earlier tasks that it waits for. nbytes: of a collective, its size. covers: names of
    the parameters that a collective carries. uses: (resource, amount per s at full speed). holds:
    (resource, amount) that nobody else has while it runs.
    """

    name: str
    kind: str
    stream: str = COMPUTE
    duration: Seconds
    after: tuple[int, ...] = ()
    nbytes: Bytes = 0
    covers: tuple[str, ...] = ()
    uses: Uses = ()
    holds: Uses = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Spans:
    """Played tasks: when each started and ended, s from the first issue."""

    tasks: tuple[Task, ...]
    starts: NDArray[np.float64]
    ends: NDArray[np.float64]

    @property
    def duration(self) -> Seconds:
        """s until the last task ends."""
        return float(self.ends.max(initial=0.0))

    def busy(self, stream: str = COMPUTE) -> Seconds:
        """s in which a stream does something."""
        mine = [i for i, task in enumerate(self.tasks) if task.stream == stream]
        return float((self.ends[mine] - self.starts[mine]).sum())

    def exposed(self, stream: str = COMPUTE) -> dict[str, Seconds]:
        """By kind of what it waits for, s in which the stream does nothing; together with `busy`
        they make the duration.

        A pause before a task is put down to the task that ended it, as far back as that one ran,
        then to what that one had waited for, and so on.
        """
        found: dict[str, Seconds] = {}
        line = [i for i, task in enumerate(self.tasks) if task.stream == stream]
        before = _before(self.tasks)
        pauses = [(float(self.starts[i]), self._waited_for(i, before)) for i in line]
        if self.tasks:
            pauses.append((self.duration, int(self.ends.argmax())))
        begins = [0.0, *self.ends[line].tolist()]
        for begin, (until, blame) in zip(begins, pauses, strict=False):
            while until > begin and blame is not None:
                begun = max(float(self.starts[blame]), begin)
                kind = self.tasks[blame].kind
                found[kind] = found.get(kind, 0.0) + until - begun
                until, blame = begun, self._waited_for(blame, before)
        return {kind: time for kind, time in found.items() if time > 0}

    def stretched(self) -> dict[str, Seconds]:
        """By kind, s that tasks took longer than alone, for what they shared with others."""
        found: dict[str, Seconds] = {}
        for task, start, end in zip(self.tasks, self.starts, self.ends, strict=True):
            more = float(end - start) - task.duration
            if more > DONE * max(task.duration, float(end)):
                found[task.kind] = found.get(task.kind, 0.0) + more
        return found

    def _waited_for(self, task: int, before: Sequence[int | None]) -> int | None:
        """The task whose end let this one start; `before`: of each its stream's task before."""
        start = self.starts[task]
        last = before[task]
        asked: tuple[int, ...] = (*self.tasks[task].after, *(() if last is None else (last,)))
        latest = max(asked, key=lambda i: self.ends[i], default=None)
        if latest is None or self.ends[latest] < start:  # it waited for what others held
            ended = np.flatnonzero((self.ends == start) & (self.starts < start))
            return int(ended[0]) if len(ended) else None
        return latest


def _before(tasks: Sequence[Task]) -> list[int | None]:
    """For every task the one before it on its stream."""
    last: dict[str, int] = {}
    found = []
    for i, task in enumerate(tasks):
        found.append(last.get(task.stream))
        last[task.stream] = i
    return found


def play(tasks: Sequence[Task], capacity: Mapping[str, float] | None = None) -> Spans:
    """When each task runs.

    capacity: of every resource; None: tasks do not slow each other. Raises ScheduleError for a
    task that waits for itself or a later one, has no sensible duration, or can never end.

    >>> backward = Task(name="b", kind="backward", duration=2.0)
    >>> reduce = Task(name="r", kind="all_reduce", stream="communication", duration=3.0, after=(0,))
    >>> update = Task(name="u", kind="optimizer", duration=1.0, after=(1,))
    >>> play([backward, reduce, update]).exposed()
    {'all_reduce': 3.0}
    """
    for i, task in enumerate(tasks):
        if not all(0 <= j < i for j in task.after):
            raise ScheduleError(
                f"task {i} ({task.name}): after: expected places of earlier tasks, below {i}, got "
                f"{task.after}"
            )
        if not 0 <= task.duration < np.inf:
            raise ScheduleError(
                f"task {i} ({task.name}): duration: expected 0 s or more, got {task.duration}"
            )
    starts, ends = _alone(tasks) if capacity is None else _Shared(tasks, capacity).play()
    return Spans(tasks=tuple(tasks), starts=starts, ends=ends)


Floats = NDArray[np.float64]


def _alone(tasks: Sequence[Task]) -> tuple[Floats, Floats]:
    starts, ends = [0.0] * len(tasks), [0.0] * len(tasks)
    free: dict[str, float] = {}
    for i, task in enumerate(tasks):
        start = free.get(task.stream, 0.0)
        for j in task.after:
            start = max(start, ends[j])
        starts[i] = start
        ends[i] = free[task.stream] = start + task.duration
    return np.array(starts), np.array(ends)


class _Shared:
    """Tasks under way and what they share; from one end to the next."""

    def __init__(self, tasks: Sequence[Task], capacity: Mapping[str, float]) -> None:
        self.tasks = tasks
        self.names = {name: i for i, name in enumerate(capacity)}
        self.capacity = np.array(list(capacity.values()), dtype=np.float64)
        self.starts = np.full(len(tasks), np.nan)
        self.ends = np.full(len(tasks), np.nan)
        self.left = np.array([task.duration for task in tasks])
        self.uses = [self._row(i, task.uses) for i, task in enumerate(tasks)]
        self.holds = [self._row(i, task.holds) for i, task in enumerate(tasks)]
        for i, held in enumerate(self.holds):
            if (held > self.capacity).any():
                raise ScheduleError(f"task {i} ({tasks[i].name}): holds more than there is")

    def _row(self, i: int, amounts: Uses) -> Floats:
        row = np.zeros(len(self.names))
        for name, amount in amounts:
            if name not in self.names or not amount >= 0:
                raise ScheduleError(
                    f"task {i} ({self.tasks[i].name}): expected 0 or more of "
                    f"{', '.join(self.names)}, got {amount} of {name}"
                )
            row[self.names[name]] += amount
        return row

    def play(self) -> tuple[Floats, Floats]:
        lines: dict[str, list[int]] = {}
        for i, task in enumerate(self.tasks):
            lines.setdefault(task.stream, []).append(i)
        waiting = {stream: iter(line) for stream, line in lines.items()}
        heads = {stream: next(line, None) for stream, line in waiting.items()}
        running: list[int] = []
        now = 0.0
        while any(head is not None for head in heads.values()):
            self._begin(heads, running, now)
            speeds = self._speeds(running)
            with np.errstate(divide="ignore", invalid="ignore"):
                last = np.where(self.left[running] > 0, self.left[running] / speeds, 0.0)
            passed = float(last.min(initial=np.inf))
            if np.isinf(passed):
                names = [self.tasks[i].name for i in heads.values() if i is not None]
                raise ScheduleError(f"tasks {', '.join(names)}: nothing is left for them to use")
            now += passed
            self.left[running] -= passed * speeds
            for i in [i for i, t in zip(running, last, strict=True) if t <= passed * (1 + DONE)]:
                self.left[i], self.ends[i] = 0.0, now
                running.remove(i)
                heads[self.tasks[i].stream] = next(waiting[self.tasks[i].stream], None)
        return self.starts, self.ends

    def _begin(self, heads: dict[str, int | None], running: list[int], now: Seconds) -> None:
        """Starts, in order of issue, what waits for nothing more and finds what it must hold."""
        for i in sorted(i for i in heads.values() if i is not None and i not in running):
            if np.isnan(self.ends[list(self.tasks[i].after)]).any():
                continue
            if (sum((self.holds[j] for j in running), self.holds[i]) > self.capacity).any():
                continue
            self.starts[i] = now
            running.append(i)

    def _speeds(self, running: list[int]) -> Floats:
        if not running:
            return np.ones(0)
        uses = np.array([self.uses[i] for i in running])
        free = self.capacity - sum(self.holds[i] for i in running)
        flow, resource = np.nonzero(uses)
        ones = np.ones(len(running))
        return max_min_rates(flow, resource, uses[flow, resource], free, ones, ones)
