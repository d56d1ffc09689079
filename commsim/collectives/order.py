"""Which ops of a schedule are certain to come before which others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from commsim.collectives.chunks import Ints
from commsim.collectives.schedule import Schedule

CELLS = 1 << 25  # of the clocks held at one time: 128 MB


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Levels:
    """Ops by the longest chain of waits before them: no op waits for one of its own level."""

    level: Ints  # per op
    ops: Ints  # by level, then number
    start: Ints  # where in `ops` each level begins
    waits: NDArray[np.int32]  # what `ops` wait for, in that order
    wait_start: Ints

    def __len__(self) -> int:
        return len(self.start) - 1


def levels(schedule: Schedule) -> Levels:
    """The levels of a schedule whose ops wait for lower numbers only."""
    count = len(schedule)
    waiting = np.diff(schedule.wait_start)
    waiter = np.repeat(np.arange(count), waiting)
    by_wait = np.argsort(schedule.waits, kind="stable")
    followers = waiter[by_wait]
    follow_start = np.searchsorted(schedule.waits[by_wait], np.arange(count + 1))
    left, level, depth = waiting.copy(), np.zeros(count, dtype=np.int64), 0
    now = np.flatnonzero(left == 0)
    while len(now):
        level[now] = depth
        depth += 1
        after = followers[_ranges(follow_start[now], follow_start[now + 1])]
        np.subtract.at(left, after, 1)
        now = np.unique(after[left[after] == 0])
    ops = np.argsort(level, kind="stable")
    return Levels(
        level=level,
        ops=ops,
        start=np.searchsorted(level[ops], np.arange(depth + 1)),
        waits=schedule.waits[_ranges(schedule.wait_start[ops], schedule.wait_start[ops + 1])],
        wait_start=np.concatenate([[0], np.cumsum(waiting[ops])]),
    )


def unordered(schedule: Schedule, at: Levels, first: Ints, second: Ints) -> NDArray[np.bool_]:
    """For pairs of ops: whether the second can start before the first is done."""
    count, start = len(schedule), schedule.wait_start
    waits = np.sort(np.repeat(np.arange(count), np.diff(start)) * count + schedule.waits)
    loose = ~_found(waits, second * count + first)
    asked = np.flatnonzero(loose & (at.level[first] < at.level[second]))
    # Most of these have a single op between them; clocks are for the rest.
    asker = np.repeat(asked, np.diff(start)[second[asked]])
    between = schedule.waits[_ranges(start[second[asked]], start[second[asked] + 1])]
    loose[asker[_found(waits, between.astype(np.int64) * count + first[asker])]] = False
    asked = asked[loose[asked]]
    if len(asked):
        loose[asked] = ~_reaches(at, first[asked], second[asked])
    return loose


def _found(ordered: Ints, values: Ints) -> NDArray[np.bool_]:
    """Which values occur in an ordered array."""
    ends = np.append(ordered, -1)
    return np.asarray(ends[np.searchsorted(ordered, values)] == values)


def _reaches(at: Levels, first: Ints, second: Ints) -> NDArray[np.bool_]:
    """Whether a chain of waits leads from each second op back to its first.

    Vector clocks: ops are dealt into chains of waits; an op's clock holds per chain the level of
    the chain's last op before it. Only chains that someone asks about get a column.
    """
    chain = _chains(at)
    columns, column = np.unique(chain[first], return_inverse=True)
    count = len(at.level)
    last_use = np.full(count, -1)
    reader = np.repeat(at.ops, np.diff(at.wait_start))
    np.maximum.at(last_use, at.waits, at.level[reader])
    kept = last_use >= 0
    births = np.bincount(at.level[kept], minlength=len(at))
    deaths = np.bincount(last_use[kept], minlength=len(at))
    peak = max(1, int((np.cumsum(births) - np.cumsum(deaths) + deaths).max()))
    width = max(1, min(len(columns), CELLS // peak))
    found = np.zeros(len(first), dtype=np.bool_)
    for low in range(0, len(columns), width):
        inside = np.flatnonzero((column >= low) & (column < low + width))
        own = np.full(len(at.level), -1)
        own_column = np.searchsorted(columns, chain)
        own_column[own_column == len(columns)] = 0
        mine = (columns[own_column] == chain) & (own_column >= low) & (own_column < low + width)
        own[mine] = own_column[mine] - low
        asks = inside[np.argsort(at.level[second[inside]], kind="stable")]
        begin = np.searchsorted(at.level[second[asks]], np.arange(len(at) + 1))
        clocks = np.full((peak, min(width, len(columns) - low)), -1, dtype=np.int32)
        free, slot = list(range(peak)), np.full(count, -1)
        ending = np.argsort(last_use, kind="stable")
        ends = np.searchsorted(last_use[ending], np.arange(len(at) + 1))
        for depth in range(len(at)):
            ops = at.ops[at.start[depth] : at.start[depth + 1]]
            bounds = at.wait_start[at.start[depth] : at.start[depth + 1] + 1]
            if depth:
                rows = _latest(clocks, slot[at.waits[bounds[0] : bounds[-1]]], np.diff(bounds))
            else:
                rows = np.full((len(ops), clocks.shape[1]), -1, dtype=np.int32)
            queries = asks[begin[depth] : begin[depth + 1]]
            row = np.searchsorted(ops, second[queries])
            found[queries] = rows[row, column[queries] - low] >= at.level[first[queries]]
            ticking = np.flatnonzero(own[ops] >= 0)
            rows[ticking, own[ops[ticking]]] = depth
            store = np.flatnonzero(last_use[ops] >= 0)
            taken = [free.pop() for _ in range(len(store))]
            slot[ops[store]] = taken
            clocks[taken] = rows[store]
            free.extend(slot[ending[ends[depth] : ends[depth + 1]]].tolist())
    return found


def _latest(clocks: NDArray[np.int32], row: Ints, size: Ints) -> NDArray[np.int32]:
    """The maximum of the clocks in each run of rows; a wait at a time, ten times faster than
    maximum.reduceat along the first axis.
    """
    start = np.cumsum(size) - size
    latest: NDArray[np.int32] = clocks[row[start]]
    for step in range(1, int(size.max())):
        more = np.flatnonzero(size > step)
        latest[more] = np.maximum(latest[more], clocks[row[start[more] + step]])
    return latest


def _chains(at: Levels) -> Ints:
    """A chain's number per op: each op continues one of its waits' chains, if it is the first."""
    chain = np.full(len(at.level), -1)
    tail = np.ones(len(at.level), dtype=np.bool_)
    made = 0
    for depth in range(len(at)):
        ops = at.ops[at.start[depth] : at.start[depth + 1]]
        bounds = at.wait_start[at.start[depth] : at.start[depth + 1] + 1]
        waits = at.waits[bounds[0] : bounds[-1]]
        waiter = np.repeat(ops, np.diff(bounds))
        open_ = tail[waits]
        waits, waiter = waits[open_], waiter[open_]
        _, one = np.unique(waiter, return_index=True)
        waits, waiter = waits[one], waiter[one]
        _, one = np.unique(waits, return_index=True)
        waits, waiter = waits[one], waiter[one]
        chain[waiter] = chain[waits]
        tail[waits] = False
        new = ops[chain[ops] < 0]
        chain[new] = made + np.arange(len(new))
        made += len(new)
    return chain


def _ranges(start: Ints, end: Ints) -> Ints:
    """All numbers of several ranges, one range after the other."""
    size = end - start
    shift = np.repeat(start - np.concatenate([[0], np.cumsum(size)[:-1]]), size)
    return np.arange(int(size.sum()), dtype=np.int64) + np.asarray(shift, dtype=np.int64)
