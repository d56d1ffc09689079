"""When every stage of a pipeline does what: a schedule played with the stages' times.

Model: a stage does its works in order, each as soon as the stage is free and the input there:
start = max(end of the stage's work before, arrival of the input), arrival = end of the sender's
work + hop. One direction of a link between two stages carries one transfer after the other. Where
transfers do not run beside compute, the sender is busy for the hop. Neglected: that a sender also
waits until the receiver is ready, once the buffers in between are full.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import numpy as np
from numpy.typing import ArrayLike, NDArray

import commsim.workload.pipelines as here
from commsim.errors import ScheduleError, UnknownNameError
from commsim.units import Seconds
from commsim.workload.pipeline_plan import Plan, bind, run
from commsim.workload.works import Order, Pipeline, Work

Floats = NDArray[np.float64]
EXACT = 1e-12  # of the duration: two shifts that differ by less are one


def pipeline(name: str | Pipeline) -> Pipeline:
    """The schedule of that name; UnknownNameError names the known ones."""
    if isinstance(name, Pipeline):
        return name
    known = _known()
    found = known.get(name.lower().replace("-", "_"))
    if found is None:
        raise UnknownNameError("pipeline schedule", name, known)
    return found


def schedules() -> tuple[str, ...]:
    """The names of all pipeline schedules."""
    return tuple(sorted(_known()))


def order(schedule: str | Pipeline, stages: int, micro_batches: int, chunks: int = 1) -> Order:
    """What every stage does, in order. Raises ScheduleError where the schedule does not exist."""
    found = pipeline(schedule)
    for what, value in (
        ("stages", stages), ("micro-batches", micro_batches), ("chunks", chunks)
    ):  # fmt: skip
        if value < 1:
            raise ScheduleError(
                f"pipeline {found.names[0]}: {what}: expected 1 or more, got {value}"
            )
    return tuple(
        tuple(found.works(stage, stages, micro_batches, chunks)) for stage in range(stages)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineTimes:
    """A played pipeline; times in s from its begin.

    works, starts, ends: per stage, in order. busy: per stage, what its works take together.
    in_flight: per stage, most (micro-batch, chunk) pairs whose activations it holds at once, from
    their forward to the end of their backward (of both parts, where it is split).
    first_forward, last_backward: per stage and chunk, when its weights are first needed and when
    their gradients are final.
    """

    works: Order
    starts: tuple[Floats, ...]
    ends: tuple[Floats, ...]
    busy: tuple[Seconds, ...]
    in_flight: tuple[int, ...]
    first_forward: Floats
    last_backward: Floats

    @property
    def duration(self) -> Seconds:
        """s until the last work ends."""
        return max(float(ends[-1]) for ends in self.ends)

    @property
    def idle(self) -> tuple[Seconds, ...]:
        """s that each stage does nothing: the bubble."""
        return tuple(self.duration - busy for busy in self.busy)


def play(
    orders: Order,
    forward: ArrayLike,
    backward: ArrayLike,
    weight: ArrayLike | None = None,
    hop: ArrayLike = 0.0,
    overlap: bool = True,
    route: str = "loop",
) -> PipelineTimes:
    """The pipeline's times in s.

    forward, backward (the input's gradient; all of it where weight is None), weight: s of a work,
    by stage and chunk, or by stage, or one for all. hop: s of one transfer, or by the link after
    each stage (the last one's leads to the first). overlap: whether transfers run beside compute.
    Raises ScheduleError naming stage and work where a work is missing, twice, or waits for ever.

    >>> play(order("1f1b", 4, 8), forward=1.0, backward=2.0).duration  # (8 + 3) * (1 + 2)
    33.0
    """
    chunks = 1 + max(w.chunk for works in orders for w in works)
    plan = bind(orders, chunks, route)
    costs = _costs(plan, forward, backward, weight)
    start, end = run(plan, costs, _hops(plan, hop), overlap)
    took = costs[plan.cost]
    return PipelineTimes(
        works=orders,
        starts=tuple(start[p] for p in plan.lines),
        ends=tuple(end[p] for p in plan.lines),
        busy=tuple(float(took[p].sum()) for p in plan.lines),
        in_flight=tuple(_most_in_flight(works) for works in orders),
        first_forward=start[plan.begin],
        last_backward=end[plan.last],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """What `play` would say, in short: duration in s, and per stage and chunk when its weights are
    first needed and when their gradients are final."""

    duration: Seconds
    first_forward: Floats
    last_backward: Floats


def outline(
    schedule: str | Pipeline,
    stages: int,
    micro_batches: int,
    chunks: int,
    forward: ArrayLike,
    backward: ArrayLike,
    weight: ArrayLike | None = None,
    hop: ArrayLike = 0.0,
    overlap: bool = True,
) -> Outline:
    """The same as `order` and `play`, fast for any number of micro-batches.

    Once all works of as many micro-batches as any work waits back for come later by one and the
    same time each period, they do so for ever, since every time is a maximum of sums of times
    before (a max-plus linear system: Baccelli et al., "Synchronization and Linearity", 1992). So a
    few periods are played and the rest is multiplied; where they do not settle, all is played.

    >>> outline("1f1b", 4, 100_000, 1, forward=1.0, backward=2.0).duration  # (100,000 + 3) * 3
    300009.0
    """
    found = pipeline(schedule)
    shown = _enough(found, stages, micro_batches, chunks)
    while True:
        plan = _plan(found, stages, shown, chunks)
        costs = _costs(plan, forward, backward, weight)
        start, end = run(plan, costs, _hops(plan, hop), overlap)
        shift = 0.0
        if shown < micro_batches:
            period = found.period(stages)
            each = _shift(plan, end, period // (2 if found.route == "both" else 1), chunks)
            if each is None:
                shown = min(2 * shown - shown % period, micro_batches)
                continue
            shift = each * ((micro_batches - shown) // period)
        return Outline(
            duration=float(end.max()) + shift,
            first_forward=start[plan.begin],
            last_backward=end[plan.last] + shift,
        )


def in_flight(
    schedule: str | Pipeline, stages: int, micro_batches: int, chunks: int = 1
) -> tuple[int, ...]:
    """Most (micro-batch, chunk) pairs whose activations each stage holds at once."""
    found = pipeline(schedule)
    # What is in flight in mid-step does not depend on how long that is.
    return _in_flight(found, stages, _enough(found, stages, micro_batches, chunks), chunks)


def _depth(chunks: int) -> int:
    """Periods before which no work waits for another: a stage is never further ahead."""
    return 1 if chunks == 1 else 2


def _enough(found: Pipeline, stages: int, micro_batches: int, chunks: int) -> int:
    """Micro-batches of a step that shows how it goes on: as many as a work may wait back for to
    start, so many to compare, one period more, so many to end; and the rest that makes no period.
    """
    period, periods = found.period(stages), 3 * _depth(chunks) + 1
    if chunks > 1 and micro_batches % stages and micro_batches < stages**2:
        return micro_batches  # groups may be larger than one of the period
    if not period or micro_batches < (periods + 1) * period:
        return micro_batches
    return micro_batches % period + periods * period


@lru_cache(maxsize=1024)
def _in_flight(found: Pipeline, stages: int, micro_batches: int, chunks: int) -> tuple[int, ...]:
    return tuple(_most_in_flight(w) for w in order(found, stages, micro_batches, chunks))


def _most_in_flight(works: Sequence[Work]) -> int:
    change = {"F": 1, "B": 0, "W": -1, "BW": -1}
    return max(accumulate(change[w.kind] for w in works))


@lru_cache(maxsize=1024)
def _plan(found: Pipeline, stages: int, micro_batches: int, chunks: int) -> Plan:
    return bind(order(found, stages, micro_batches, chunks), chunks, found.route)


def _costs(plan: Plan, forward: ArrayLike, backward: ArrayLike, weight: ArrayLike | None) -> Floats:
    """s of every (kind, stage, chunk), flat."""
    if weight is None and plan.splits:
        raise ScheduleError("pipeline: weight: expected s, for the schedule splits the backward")
    shape = (plan.stages, plan.chunks)
    table = np.empty((4, *shape))
    table[0] = _spread("forward", forward, shape)
    table[1] = _spread("backward", backward, shape)
    table[2] = _spread("weight", 0.0 if weight is None else weight, shape)
    table[3] = table[1] + table[2]
    if not (table.min() >= 0 and table.max() < np.inf):
        raise ScheduleError(
            "pipeline: expected times of 0 s or more, got a negative or infinite one"
        )
    return table.reshape(-1)


def _hops(plan: Plan, hop: ArrayLike) -> Floats:
    found = _spread("hop", hop, (plan.stages, 1))[:, 0]
    if not (found.min() >= 0 and found.max() < np.inf):
        raise ScheduleError("pipeline: hop: expected 0 s or more, got a negative or infinite one")
    return np.ascontiguousarray(found)


def _spread(what: str, value: ArrayLike, shape: tuple[int, int]) -> Floats:
    found = np.asarray(value, dtype=np.float64)
    if found.ndim == 1:
        found = found[:, None]
    if found.ndim and (
        found.ndim != 2 or found.shape[0] != shape[0] or found.shape[1] not in (1, shape[1])
    ):
        raise ScheduleError(
            f"pipeline: {what}: expected one time, one for each of {shape[0]} stages, or one for "
            f"each of its {shape[1]} chunks too, got an array of shape {np.shape(value)}"
        )
    return np.broadcast_to(found, shape)


def _shift(plan: Plan, end: Floats, period: int, chunks: int) -> Seconds | None:
    """s by which works come later each period, or None where that differs from work to work."""
    ends, depth = end[plan.grid], _depth(chunks) * period
    first = ends.shape[1] - 2 * depth - period
    now, later = slice(first, first + depth), slice(first + period, first + depth + period)
    shifts = ends[:, later] - ends[:, now]
    low, high = float(shifts.min()), float(shifts.max())
    return low + (high - low) / 2 if high - low <= EXACT * float(ends.max()) else None


@lru_cache
def _known() -> dict[str, Pipeline]:
    found: dict[str, Pipeline] = {}
    for module in pkgutil.iter_modules(here.__path__):
        path = f"{here.__name__}.{module.name}"
        for value in vars(importlib.import_module(path)).values():
            if inspect.isclass(value) and issubclass(value, Pipeline) and value.__module__ == path:
                found |= dict.fromkeys(value.names, value())
    return found
