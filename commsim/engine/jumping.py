"""Periods that are skipped: what happens later is moved by the time that they would have taken.

It is exact as long as nothing happens at a time of its own: a rank that joins, a link that changes,
a transfer of others that ends. The last period before is played.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from commsim.collectives.chunks import Ints
from commsim.engine import compiled
from commsim.engine.compiled import NONE, Run, State
from commsim.engine.network import Floats
from commsim.engine.plan import Jump
from commsim.engine.rounds import Section, Snapshot, UnsettledError
from commsim.units import Seconds


def jump(
    run: Run,
    sections: Sequence[Section],
    at: Snapshot,
    period: Seconds,
    moved: Ints,
    fallen: Floats,
) -> list[Jump]:
    """Skip as many periods as there are rounds for, and time; what was skipped, by section.

    at: the state now. period: s in which the rounds `moved` of each section pass, and `fallen`
    bytes of each flow of others. Raises UnsettledError where periods leave some rounds over.
    """
    s, now = run.state, run.now
    going = [(each, int(m)) for each, m in zip(sections, moved, strict=True) if m]
    if any(each.base < each.since for each, _ in going):
        return []
    most, each, every = min(
        ((each.missing // m, each, m) for each, m in going), key=lambda found: found[0]
    )
    moves = np.zeros(len(s.phase), dtype=np.bool_)
    for section, _ in going:
        moves[section.span(section.base, section.top)] = True
    moves &= ~(s.ready > now)
    times = min(most, _until(run, moves, period, at, fallen))
    if times == most and each.missing % every:
        raise UnsettledError(every)
    if times < 1:
        return []
    _skip(run, moves, times * period, times, fallen)
    jumps = []
    for section, m in going:
        section.missing -= times * m
        section.since = section.base + m
        jumps.append(
            Jump(
                first=section.first + section.base * section.ops, last=section.end,
                ops=m * section.ops, rounds=m, times=times, period=period,
            )
        )  # fmt: skip
    return jumps


def _until(
    run: Run, moves: NDArray[np.bool_], period: Seconds, at: Snapshot, fallen: Floats
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
