"""A pipeline schedule as arrays, checked, and the loop that plays them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, pairwise
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from commsim.engine.compilation import compiled
from commsim.errors import ScheduleError
from commsim.workload.works import KINDS, ROUTES, Order, Work

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
NONE = -1
F, B, W, BW = range(4)
assert KINDS == ("F", "B", "W", "BW")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan:
    """All works of all stages, every one after what it waits for.

    cost: place of a work's time in a flat (kind, stage, chunk) table. source: the work on whose
    output it waits, or NONE. link: 2 x the link that its output crosses, + 1 where it goes back to
    an earlier stage, or NONE. joined: whether it runs together with the work before it.
    lines: per stage its works in order. grid: per forward or backward of a (stage, chunk) a line
    of works by micro-batch. begin, last: first and last work of each (stage, chunk).
    """

    stages: int
    chunks: int
    splits: bool
    stage: Ints
    cost: Ints
    source: Ints
    link: Ints
    joined: Ints
    lines: tuple[Ints, ...]
    grid: Ints
    begin: Ints
    last: Ints


def bind(order: Order, chunks: int, route: str) -> Plan:
    """The arrays of an order. Raises ScheduleError naming stage and work where one is missing,
    twice, before its inputs, or waits for ever."""
    stages = len(order)
    _check_route(route, chunks)
    if not all(order):
        raise ScheduleError(f"pipeline: stage {order.index(())}: expected works, got none")
    works = list(chain.from_iterable(order))
    lengths = [len(line) for line in order]
    codes = {kind: code for code, kind in enumerate(KINDS)}
    stage = np.repeat(np.arange(stages), lengths)
    kind = np.array([codes.get(w.kind, NONE) for w in works])
    chunk, batch, joined = (
        np.fromiter(map(itemgetter(i), works), dtype=np.int64, count=len(works)) for i in (1, 2, 3)
    )
    first = np.concatenate([[0], np.cumsum(lengths)])
    batches = int(batch.max()) + 1
    if kind.min() < 0 or chunk.min() < 0 or chunk.max() >= chunks or batch.min() < 0:
        bad = int(np.flatnonzero((kind < 0) | (chunk < 0) | (chunk >= chunks) | (batch < 0))[0])
        raise ScheduleError(
            f"pipeline: stage {stage[bad]}: expected a kind of {', '.join(KINDS)}, a chunk below "
            f"{chunks} and a micro-batch of 0 or more, got {tuple(works[bad])}"
        )
    where = np.full((3, stages, chunks, batches), NONE, dtype=np.int64)
    role = np.where(kind == BW, B, kind)
    where[role, stage, chunk, batch] = np.arange(len(works))
    _check(where, role, kind, stage, chunk, batch, route)
    source = np.full(len(works), NONE, dtype=np.int64)
    link = np.full(len(works), NONE, dtype=np.int64)
    for s in range(stages):
        for c in range(chunks):
            after = _next(s, c, stages, chunks, route)
            if after is None:
                continue
            giver, taker = where[F, s, c], where[F, *after]
            there = giver != NONE
            source[taker[there]] = giver[there]
            source[where[B, s, c][there]] = where[B, *after][there]
            if after[0] != s:
                up = after[0] == s + 1 or route == "loop"
                cable = s if up else after[0]
                link[giver[there]] = 2 * cable + (not up)
                link[where[B, *after][there]] = 2 * cable + up
    sequence = np.empty(len(works), dtype=np.int64)
    done = np.zeros(len(works), dtype=np.bool_)
    at = first[:-1].copy()
    if _arrange(first, source, joined, at, done, sequence) < len(works):
        stuck = int(np.flatnonzero(at < first[1:])[0])
        work = int(at[stuck])
        given = int(source[work] if source[work] >= 0 else source[work + 1])
        raise ScheduleError(
            f"pipeline: stage {stuck}: {_name(works[work])} waits for ever for "
            f"{_name(works[given])} of stage {stage[given]}; order the works so that no stages "
            "wait for each other"
        )
    place = np.empty_like(sequence)
    place[sequence] = np.arange(len(works))
    pairs = stage * chunks + chunk
    begin = np.full(stages * chunks, len(works), dtype=np.int64)
    last = np.zeros(stages * chunks, dtype=np.int64)
    np.minimum.at(begin, pairs, np.arange(len(works)))
    np.maximum.at(last, pairs, np.arange(len(works)))
    lines = where[:2].reshape(2 * stages * chunks, batches)
    return Plan(
        stages=stages,
        chunks=chunks,
        splits=bool((kind == W).any()),
        stage=stage[sequence],
        cost=(kind * stages * chunks + pairs)[sequence],
        source=np.where(source == NONE, NONE, place[source])[sequence],
        link=link[sequence],
        joined=joined[sequence],
        lines=tuple(place[lo:hi] for lo, hi in pairwise(first)),
        grid=place[lines[lines != NONE].reshape(len(lines), -1)],
        begin=place[begin].reshape(stages, chunks),
        last=place[last].reshape(stages, chunks),
    )


def run(plan: Plan, costs: Floats, hops: Floats, overlap: bool) -> tuple[Floats, Floats]:
    """Start and end in s of every work; `costs` and `hops` in s, as the plan points to them."""
    n = len(plan.stage)
    start, end, arrival = np.empty(n), np.empty(n), np.empty(n)
    free, line = np.zeros(plan.stages), np.zeros(2 * plan.stages)
    _run(
        plan.stage, plan.cost, plan.source, plan.link, plan.joined, costs, hops, overlap,
        start, end, arrival, free, line,
    )  # fmt: skip
    return start, end


@compiled
def _arrange(first: Any, source: Any, joined: Any, at: Any, done: Any, sequence: Any) -> int:
    """Fills `sequence` so that every work comes after what it waits for; how many could be."""
    count = 0
    moved = True
    while moved:
        moved = False
        for stage in range(len(at)):
            while at[stage] < first[stage + 1]:
                work = at[stage]
                if source[work] >= 0 and not done[source[work]]:
                    break
                more = work + 1
                if more < first[stage + 1] and joined[more]:
                    if source[more] >= 0 and not done[source[more]]:
                        break
                    more += 1
                for each in range(work, more):
                    done[each] = True
                    sequence[count] = each
                    count += 1
                at[stage] = more
                moved = True
    return count


@compiled
def _run(
    stages: Any, cost: Any, source: Any, link: Any, joined: Any, costs: Any, hops: Any,
    overlap: bool, start: Any, end: Any, arrival: Any, free: Any, line: Any,
) -> None:  # fmt: skip
    """The model of pipeline.py, one work, or two that are joined, after the other."""
    work, n = 0, len(stages)
    while work < n:
        after = work + 2 if work + 1 < n and joined[work + 1] else work + 1
        begun, took = free[stages[work]], 0.0
        for each in range(work, after):
            took += costs[cost[each]]
            if source[each] >= 0:
                begun = max(begun, arrival[source[each]])
        done = begun + took
        busy = done
        for each in range(work, after):
            start[each] = begun
            end[each] = done
            arrival[each] = done
            way = link[each]
            if way >= 0 and overlap:
                arrival[each] = max(done, line[way]) + hops[way >> 1]
                line[way] = arrival[each]
            elif way >= 0:
                arrival[each] = done + hops[way >> 1]
                busy = max(busy, arrival[each])
        free[stages[work]] = busy
        work = after


def _next(stage: int, chunk: int, stages: int, chunks: int, route: str) -> tuple[int, int] | None:
    """The (stage, chunk) after this one on a micro-batch's way, or None at the end."""
    if route != "loop" and chunk == 1:
        return (stage - 1, 1) if stage else None
    if stage < stages - 1:
        return stage + 1, chunk
    if route == "v":
        return stage, 1
    return (0, chunk + 1) if route == "loop" and chunk < chunks - 1 else None


def _check_route(route: str, chunks: int) -> None:
    if route not in ROUTES:
        raise ScheduleError(f"pipeline: route: expected {', '.join(ROUTES)}, got {route!r}")
    if route != "loop" and chunks != 2:
        raise ScheduleError(f"pipeline: route {route!r}: expected 2 chunks a stage, got {chunks}")


def _check(
    where: Ints, role: Ints, kind: Ints, stage: Ints, chunk: Ints, batch: Ints, route: str
) -> None:
    """Raises ScheduleError unless every stage does every work once, in a possible order."""

    def refuse(bad: Any, what: str) -> None:
        if bad.any():
            i = tuple(np.argwhere(bad)[0])
            s, c, b = i[-3:]
            raise ScheduleError(f"pipeline: stage {s}, chunk {c}, micro-batch {b}: {what}")

    times = np.zeros(where.shape, dtype=np.int64)
    np.add.at(times, (role, stage, chunk, batch), 1)
    refuse((times > 1).any(axis=0), "expected every work once, got one twice")
    there = times[F] == 1
    if route == "both":
        one = there.sum(axis=1, keepdims=True) == 1
        expected = there[:1] & one
    else:
        expected = np.ones_like(there[:1])
    refuse(there != expected, "expected one forward of each micro-batch on each stage")
    refuse((times[B] == 1) != there, "expected one backward (B or BW) for the forward")
    split = np.zeros(there.shape, dtype=np.bool_)
    split[stage[kind == B], chunk[kind == B], batch[kind == B]] = True
    refuse((times[W] == 1) != split, "expected a W for each B, and none for a BW")
    refuse(there & (where[B] < where[F]), "the backward comes before its forward")
    refuse(split & (where[W] < where[B]), "the W comes before its B")


def _name(work: Work) -> str:
    return f"{work.kind} of micro-batch {work.micro_batch}, chunk {work.chunk},"
