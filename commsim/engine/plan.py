"""What the engine plays and what it gives back: ops of one or more schedules as plain arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from commsim.collectives.chunks import Ints
from commsim.collectives.schedule import Repeat
from commsim.engine.network import Floats, Laid
from commsim.units import BytesPerSecond, Seconds

INSTANT = 1e-12
"""Events closer than this share of the time that has passed are one instant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """From `time` (s) on a link carries `capacity` bytes/s; 0: it has failed."""

    time: Seconds
    link: int
    capacity: BytesPerSecond


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Part:
    """A laid schedule and when its vertices take part.

    start: s per vertex, when it joins (inf: never); an op begins when both its ends have joined.
    death: s per vertex, when it stops (inf: never): its ops no longer begin, and what it is sending
    or receiving never arrives. extra: s of software per op on top of its way's overhead, or None.
    share: how many equal transfers each op stands for, where others share its links.
    """

    laid: Laid
    start: Floats
    death: Floats
    extra: Floats | None = None
    share: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan:
    """Everything that is played at once; ops are numbered through all parts.

    `waits[wait_start[i] : wait_start[i + 1]]` must be done before op i is ready: *sent* if both
    ops have the same source (a rank knows when its own data has left), else *arrived*. A ready op
    takes `overhead[i]` s of software; then its bytes flow over `way[i]`; it is sent when the last
    has left and arrived `latency[way[i]]` later. An op that `streams` is ready when of those that
    it waits for and that end where it begins the first byte has arrived (a latency after it left),
    and is not sent before they have arrived.
    """

    nbytes: Floats
    streams: NDArray[np.bool_]
    source: NDArray[np.int32]
    destination: NDArray[np.int32]
    way: NDArray[np.int32]
    overhead: Floats
    wait_start: Ints
    waits: NDArray[np.int32]
    start: Floats
    death: Floats
    way_start: Ints
    crossing: NDArray[np.int32]
    weight: Floats
    latency: Floats
    limit: Floats
    share: Floats
    capacity: Floats
    changes: tuple[Change, ...] = ()
    repeats: tuple[Repeat, ...] = ()

    def __len__(self) -> int:
        return len(self.nbytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Jump:
    """`ops` ops from `first` on, of `rounds` rounds, happen again and again, each time `period` s
    later; `times` of these were not played. The times of the ops from `first` on are those of the
    last time. last: the op behind the last one of rounds like these.
    """

    first: int
    last: int
    ops: int
    rounds: int
    times: int
    period: Seconds

    @property
    def left_out(self) -> int:
        """Ops that were not played."""
        return self.times * self.ops


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Times:
    """Per op, in s: when it was ready (all waits done, both ends there), when its first byte left,
    when its last byte had left, when that arrived; nan where that never happened. jumps: what was
    not played, in the order of the ops.
    """

    ready: Floats
    begun: Floats
    sent: Floats
    arrived: Floats
    jumps: tuple[Jump, ...] = ()

    def of(self, ops: slice) -> Times:
        """The times of some ops."""
        return Times(
            ready=self.ready[ops],
            begun=self.begun[ops],
            sent=self.sent[ops],
            arrived=self.arrived[ops],
            jumps=tuple(
                replace(jump, first=jump.first - ops.start, last=jump.last - ops.start)
                for jump in self.jumps
                if ops.start <= jump.first < ops.stop
            ),
        )

    @property
    def stalled(self) -> bool:
        """Whether some op never arrived."""
        return bool(np.isnan(self.arrived).any())


def make_plan(parts: Sequence[Part], capacity: Floats, changes: Sequence[Change] = ()) -> Plan:
    """All parts in one plan: each keeps its ops, ways and vertices, and they share the links."""
    whole = [part.laid.schedule for part in parts]
    ways = [part.laid.ways for part in parts]
    ops = np.cumsum([0, *(len(s) for s in whole)])
    vertex = np.cumsum([0, *(s.vertices for s in whole)])
    way = np.cumsum([0, *(len(w) for w in ways)])
    overhead = [
        w.overhead[p.laid.way] + (0.0 if p.extra is None else p.extra)
        for p, w in zip(parts, ways, strict=True)
    ]
    return Plan(
        nbytes=np.concatenate([s.nbytes for s in whole]).astype(np.float64),
        streams=np.concatenate([s.streams for s in whole]),
        source=_shifted([s.source for s in whole], vertex),
        destination=_shifted([s.destination for s in whole], vertex),
        way=_shifted([p.laid.way for p in parts], way),
        overhead=np.concatenate(overhead),
        wait_start=_starts([s.wait_start for s in whole]),
        waits=_shifted([s.waits for s in whole], ops),
        start=np.concatenate([p.start for p in parts]),
        death=np.concatenate([p.death for p in parts]),
        way_start=_starts([w.start for w in ways]),
        crossing=np.concatenate([w.crossing for w in ways]),
        weight=np.concatenate([w.weight for w in ways]),
        latency=np.concatenate([w.latency for w in ways]),
        limit=np.concatenate([w.limit for w in ways]),
        share=np.concatenate(
            [np.full(len(w), float(p.share)) for p, w in zip(parts, ways, strict=True)]
        ),
        capacity=np.asarray(capacity, dtype=np.float64),
        changes=tuple(sorted(changes, key=lambda c: c.time)),
        repeats=tuple(
            replace(r, first=r.first + int(shift))
            for s, shift in zip(whole, ops, strict=False)
            for r in s.repeats
        ),
    )


def punctual(laid: Laid) -> Part:
    """A part in which every vertex is there from the beginning and stays."""
    vertices = laid.schedule.vertices
    return Part(laid=laid, start=np.zeros(vertices), death=np.full(vertices, np.inf))


def _shifted(columns: list[NDArray[np.int32]], by: Ints) -> NDArray[np.int32]:
    moved = [c if not s else c + np.int32(s) for c, s in zip(columns, by, strict=False)]
    return moved[0] if len(moved) == 1 else np.concatenate(moved)


def _starts(columns: list[Ints]) -> Ints:
    if len(columns) == 1:
        return columns[0]
    ends = np.cumsum([0, *(c[-1] for c in columns)])
    return np.concatenate([[0], *(c[1:] + e for c, e in zip(columns, ends, strict=False))])
