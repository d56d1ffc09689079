"""Many tasks on the streams of many ranks, played from one end to the next, compiled.

Model: a task starts when all that it waits for has ended (its stream's task before is one of them).
Messages under way share each rank's NICs and its NVLink, each in both directions, max-min fairly:

    sum of share x speed <= 1 for every resource, speed <= 1

Compute beside k messages of its rank runs at (1 - slowed)^k: each takes some SMs and memory
bandwidth of what the others leave. The same semantics as streams.py, for millions of tasks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from commsim.engine.compilation import compiled
from commsim.errors import ScheduleError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
PER_RANK = 4  # resources: NICs out and in, NVLink out and in
FULL = 1 + 1e-9


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Table:
    """Tasks as columns. stream: in order of issue. sender, receiver: ranks whose resources a
    message takes (compute: its rank twice). computes: of the tasks, those that messages slow;
    slows: those that slow compute. nics, scale_up: shares taken at full speed. source, target: one
    after the other: the pairs of tasks of which the second waits for the first.
    """

    ranks: int
    stream: Ints
    duration: Floats
    sender: Ints
    receiver: Ints
    computes: NDArray[np.bool_]
    slows: NDArray[np.bool_]
    nics: Floats
    scale_up: Floats
    source: Ints
    target: Ints


def play(table: Table, slowed: float) -> tuple[Floats, Floats, Ints]:
    """Start and end of every task, s, and what each waited for last (-1: nothing).

    Raises ScheduleError where tasks wait for each other.
    """
    n = len(table.duration)
    order = np.argsort(table.stream, kind="stable")
    follows = table.stream[order[1:]] == table.stream[order[:-1]]
    source = np.concatenate([table.source, order[:-1][follows]])
    target = np.concatenate([table.target, order[1:][follows]])
    by_source = np.argsort(source, kind="stable")
    first = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(np.bincount(source, minlength=n), out=first[1:])
    waiting = np.bincount(target, minlength=n)
    start, end = np.full(n, np.nan), np.full(n, np.nan)
    blame = np.full(n, -1, dtype=np.int64)
    room = int(table.stream.max(initial=0)) + 2  # a stream runs one task at a time
    done = _play(
        table.duration, table.sender, table.receiver, table.computes, table.slows, table.nics,
        table.scale_up, first, target[by_source], waiting, slowed, start, end, blame,
        np.empty(n, dtype=np.int64), np.empty(room, dtype=np.int64), np.empty(n), np.empty(n),
        np.empty(n), np.zeros(PER_RANK * table.ranks), np.zeros(PER_RANK * table.ranks),
        np.zeros(PER_RANK * table.ranks), np.zeros(table.ranks, dtype=np.int64),
        np.full(table.ranks, -1, dtype=np.int64), np.zeros(room, dtype=np.bool_),
    )  # fmt: skip
    if done < n:
        stuck = int(np.flatnonzero(np.isnan(end))[0])
        raise ScheduleError(f"step: task {stuck} waits for ever; {done} of {n} tasks end")
    return start, end, blame


@compiled
def _play(
    duration: Any, sender: Any, receiver: Any, computes: Any, slows: Any, nics: Any, scale_up: Any,
    first: Any, target: Any, waiting: Any, slowed: float, start: Any, end: Any, blame: Any,
    ready: Any, running: Any, left: Any, since: Any, speed: Any,
    load: Any, rising: Any, used: Any, beside: Any, computing: Any, frozen: Any,
) -> int:  # fmt: skip
    n = len(duration)
    queued, head, active, done = 0, 0, 0, 0
    for i in range(n):
        if waiting[i] == 0:
            ready[queued] = i
            queued += 1
    now = 0.0
    crowded = False
    while True:
        while head < queued:  # whatever can start does; what takes no time is over at once
            i = ready[head]
            head += 1
            start[i] = now
            if duration[i] == 0.0:
                end[i] = now
                done += 1
                for k in range(first[i], first[i + 1]):
                    j = target[k]
                    waiting[j] -= 1
                    if waiting[j] == 0:
                        blame[j] = i
                        ready[queued] = j
                        queued += 1
                continue
            running[active] = i
            active += 1
            left[i], since[i], speed[i] = duration[i], now, 1.0
            if computes[i]:
                computing[sender[i]] = i
                speed[i] = (1.0 - slowed) ** beside[sender[i]]
            else:
                _take(load, i, sender, receiver, nics, scale_up, 1.0)
                if slows[i]:
                    _slow(i, sender[i], 1, slowed, beside, computing, left, since, speed, now)
        if active == 0:
            return done
        full = False
        for r in range(len(load)):
            if load[r] > FULL:
                full = True
                break
        if full or crowded:
            _share(
                running, active, computes, sender, receiver, nics, scale_up, full,
                left, since, speed, now, rising, used, frozen,
            )  # fmt: skip
        crowded = full
        now = np.inf
        for a in range(active):
            i = running[a]
            now = min(now, since[i] + left[i] / speed[i])
        kept = 0
        for a in range(active):
            i = running[a]
            if since[i] + left[i] / speed[i] > now:
                running[kept] = i
                kept += 1
                continue
            end[i] = now
            done += 1
            if computes[i]:
                computing[sender[i]] = -1
            else:
                _take(load, i, sender, receiver, nics, scale_up, -1.0)
                if slows[i]:
                    _slow(i, sender[i], -1, slowed, beside, computing, left, since, speed, now)
            for k in range(first[i], first[i + 1]):
                j = target[k]
                waiting[j] -= 1
                if waiting[j] == 0:
                    blame[j] = i
                    ready[queued] = j
                    queued += 1
        active = kept
    return done


@compiled
def _take(
    load: Any, i: int, sender: Any, receiver: Any, nics: Any, scale_up: Any, sign: float
) -> None:
    load[PER_RANK * sender[i]] += sign * nics[i]
    load[PER_RANK * receiver[i] + 1] += sign * nics[i]
    load[PER_RANK * sender[i] + 2] += sign * scale_up[i]
    load[PER_RANK * receiver[i] + 3] += sign * scale_up[i]


@compiled
def _slow(
    i: int, rank: int, more: int, slowed: float, beside: Any, computing: Any,
    left: Any, since: Any, speed: Any, now: float,
) -> None:  # fmt: skip
    """A message begins or ends beside the rank's compute."""
    beside[rank] += more
    c = computing[rank]
    if c >= 0:
        left[c] = max(0.0, left[c] - (now - since[c]) * speed[c])
        since[c] = now
        speed[c] = (1.0 - slowed) ** beside[rank]


@compiled
def _share(
    running: Any, active: int, computes: Any, sender: Any, receiver: Any, nics: Any, scale_up: Any,
    full: bool, left: Any, since: Any, speed: Any, now: float, rising: Any, used: Any, frozen: Any,
) -> None:  # fmt: skip
    """Max-min fair speeds of the messages under way (progressive filling)."""
    moving = 0
    for a in range(active):
        i = running[a]
        frozen[a] = computes[i]
        if not computes[i]:
            left[i] = max(0.0, left[i] - (now - since[i]) * speed[i])
            since[i], speed[i] = now, 1.0
            moving += 1
    if not full:
        return
    while moving > 0:
        rising[:] = 0.0
        used[:] = 0.0
        for a in range(active):
            i = running[a]
            if not computes[i]:
                if frozen[a]:
                    _take(used, i, sender, receiver, nics, scale_up, speed[i])
                else:
                    _take(rising, i, sender, receiver, nics, scale_up, 1.0)
        level = 1.0
        for r in range(len(rising)):
            if rising[r] > 0.0:
                level = min(level, max(0.0, 1.0 - used[r]) / rising[r])
        stopped = 0
        for a in range(active):
            i = running[a]
            if frozen[a]:
                continue
            out, into = PER_RANK * sender[i], PER_RANK * receiver[i]
            bound = level >= 1.0
            for r, share in (
                (out, nics[i]), (into + 1, nics[i]), (out + 2, scale_up[i]),
                (into + 3, scale_up[i]),
            ):  # fmt: skip
                if share > 0.0 and max(0.0, 1.0 - used[r]) <= level * rising[r] * FULL:
                    bound = True
            if bound:
                speed[i] = level
                frozen[a] = True
                stopped += 1
        if stopped == 0:
            return
        moving -= stopped
