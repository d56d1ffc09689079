"""Builds schedules: many ops at a time, and one schedule after another.

A `Frontier` holds per vertex the ops that its next op waits for. Two schedules join at their
frontiers, vertex by vertex: a rank begins the second as soon as it is through with the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from commsim.collectives.chunks import Chunks, Ints
from commsim.collectives.schedule import Schedule
from commsim.errors import ScheduleError

NONE = -1  # in `after`: nothing to wait for; in `nbytes`: what the chunks weigh

Shorts = NDArray[np.int32]
OP_COLUMNS = ("reduces", "source", "destination", "nbytes", "channel", "round")
OP_KINDS = (np.bool_, np.int32, np.int32, np.int64, np.int16, np.int32)


@dataclass(frozen=True, slots=True)
class Frontier:
    """Per vertex, the ops that its next op waits for."""

    ops: tuple[tuple[int, ...], ...]

    def __getitem__(self, vertex: int) -> tuple[int, ...]:
        return self.ops[vertex]


class Builder:
    """Collects ops for one schedule. The only thing here that changes."""

    def __init__(self, chunks: Chunks, *, scratch: int = 0, switches: int = 0) -> None:
        self.chunks = chunks
        self.scratch = scratch
        self.switches = switches
        self._count = 0
        self._ops: list[tuple[NDArray[Any], ...]] = []
        self._pieces: list[tuple[Shorts, ...]] = []
        self._waits: list[tuple[Shorts, ...]] = []

    def __len__(self) -> int:
        """Ops so far: the number of the next one."""
        return self._count

    def append(
        self,
        source: ArrayLike,
        destination: ArrayLike,
        source_place: ArrayLike,
        destination_place: ArrayLike | None = None,
        *,
        length: ArrayLike = 1,
        reduces: ArrayLike = False,
        after: Sequence[ArrayLike] = (),
        channel: ArrayLike = 0,
        round: ArrayLike = 0,
        nbytes: ArrayLike = NONE,
    ) -> Ints:
        """The numbers of new ops, one per element of the arguments, which broadcast.

        `destination_place` is the same as `source_place` unless given. Several pieces per op lie
        along a last axis of the places and lengths (length 0: no piece). Each of `after` gives one
        op to wait for per new op, -1 for none. `nbytes` follows from the chunks; it must be given
        for ops from scratch to scratch.
        """
        if destination_place is None:
            destination_place = source_place
        places = [_pieced(a) for a in (source_place, destination_place, length)]
        ends = np.broadcast_arrays(
            *(np.asarray(a) for a in (reduces, source, destination, nbytes, channel, round)),
            *(np.asarray(a) for a in after),
            *(p[..., 0] for p in places),
        )
        columns = [np.atleast_1d(a).ravel() for a in ends[: 6 + len(after)]]
        count = len(columns[0])
        ids = np.arange(self._count, self._count + count, dtype=np.int64)
        self._count += count
        self._ops.append(
            tuple(c.astype(kind) for c, kind in zip(columns[:6], OP_KINDS, strict=True))
        )
        width = max(p.shape[-1] for p in places)
        flat = [np.broadcast_to(p, (count, width)).ravel() for p in places]
        kept = flat[2] > 0
        owner = ids if width == 1 else np.repeat(ids, width)
        if not kept.all():
            owner, flat = owner[kept], [f[kept] for f in flat]
        self._pieces.append((owner.astype(np.int32), *(f.astype(np.int32) for f in flat)))
        if after:
            waits = np.stack([c.astype(np.int32) for c in columns[6:]], axis=1)
            waits.sort(axis=1)
            waiter = np.repeat(ids, len(after))[waits.ravel() >= 0]
            self._waits.append((waiter.astype(np.int32), waits.ravel()[waits.ravel() >= 0]))
        return ids

    def add(self, schedule: Schedule, after: Frontier | None = None) -> None:
        """Append a whole schedule; per vertex its first ops wait for `after`."""
        shift, count = np.int32(self._count), len(schedule)
        ids = np.arange(count, dtype=np.int32)
        self._ops.append(tuple(getattr(schedule, c) for c in OP_COLUMNS))
        owner = np.repeat(ids, np.diff(schedule.piece_start))
        places = (schedule.source_place, schedule.destination_place, schedule.length)
        self._pieces.append((owner + shift, *places))
        waiter = np.repeat(ids, np.diff(schedule.wait_start))
        self._waits.append((waiter + shift, schedule.waits + shift))
        self._count += count
        if after is None:
            return
        for end in (schedule.source, schedule.destination):
            begun = np.zeros(count, dtype=np.bool_)
            begun[waiter[_touches(schedule, schedule.waits, end[waiter])]] = True
            pairs = [(i + shift, op) for i in np.flatnonzero(~begun) for op in after[int(end[i])]]
            if pairs:
                joined = np.array(pairs, dtype=np.int32)
                self._waits.append((joined[:, 0], joined[:, 1]))

    def build(self) -> Schedule:
        """The schedule of all ops appended so far."""
        reduces, source, destination, nbytes, channel, round = _stack(self._ops, OP_KINDS)
        kinds = (np.int32,) * 4
        owner, source_place, destination_place, length = _stack(self._pieces, kinds)
        start = _starts(owner, self._count)
        unknown = nbytes == NONE
        if unknown.any():
            weight = self._weights(
                source[owner], destination[owner], source_place, destination_place, length
            )
            if (lost := unknown[owner] & (weight < 0)).any():
                raise ScheduleError(
                    f"op {owner[lost][0]}: moves scratch to scratch: expected its nbytes, got none"
                )
            total = np.bincount(owner, weights=weight, minlength=self._count)  # exact to 2^53
            nbytes = np.where(unknown, total.astype(np.int64), nbytes)
        waiter, waits = _distinct(*_stack(self._waits, kinds[:2]))
        return Schedule(
            chunks=self.chunks,
            scratch=self.scratch,
            switches=self.switches,
            reduces=reduces,
            source=source,
            destination=destination,
            nbytes=nbytes,
            channel=channel,
            round=round,
            piece_start=start,
            source_place=source_place,
            destination_place=destination_place,
            length=length,
            wait_start=_starts(waiter, self._count),
            waits=waits,
        )

    def _weights(
        self,
        source: Shorts,
        destination: Shorts,
        from_place: Shorts,
        to_place: Shorts,
        length: Shorts,
    ) -> Ints:
        """Bytes of each piece by the chunk for which either end stands; -1: neither does."""
        chunks = self.chunks
        at_source = (source < chunks.n) & (from_place < chunks.places)
        at_end = (destination < chunks.n) & (to_place < chunks.places)
        position = np.where(at_source, source, destination)
        place = np.where(at_source, from_place, to_place)
        known = at_source | at_end
        weight = np.where(known, 0, -1)
        for step in range(int(length.max(initial=0))):  # as long as the longest piece
            here = np.flatnonzero(known & (length > step))
            weight[here] += chunks.nbytes[chunks.at(position[here], place[here] + step)]
        return weight


def frontier(schedule: Schedule) -> Frontier:
    """Where a schedule ends: per vertex, its ops for which no other op of that vertex waits."""
    waiter = np.repeat(np.arange(len(schedule)), np.diff(schedule.wait_start))
    last: list[set[int]] = [set() for _ in range(schedule.vertices)]
    for end in (schedule.source, schedule.destination):
        follows = _touches(schedule, waiter, end[schedule.waits])
        open_ = np.ones(len(schedule), dtype=np.bool_)
        open_[schedule.waits[follows]] = False
        for op in np.flatnonzero(open_).tolist():
            last[end[op]].add(op)
    return Frontier(tuple(tuple(sorted(ops)) for ops in last))


def then(first: Schedule, second: Schedule, chunks: Chunks) -> Schedule:
    """Both schedules one after the other in the same places, as a schedule of `chunks`.

    An op of the second that no op of its own vertex precedes there waits for the first's frontier
    at that vertex.
    """
    builder = Builder(
        chunks,
        scratch=max(first.scratch, second.scratch),
        switches=max(first.switches, second.switches),
    )
    builder.add(first)
    builder.add(second, after=frontier(first))
    return builder.build()


def _touches(
    schedule: Schedule, ops: Ints | Shorts, vertex: NDArray[np.int32]
) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = (schedule.source[ops] == vertex) | (
        schedule.destination[ops] == vertex
    )
    return found


def _pieced(places: ArrayLike) -> NDArray[np.int64]:
    array = np.asarray(places, dtype=np.int64)
    return array if array.ndim == 2 else array[..., np.newaxis]


def _stack(rows: list[tuple[NDArray[Any], ...]], kinds: Sequence[type]) -> list[NDArray[Any]]:
    """Each column of all rows as one array of its kind."""
    return [
        np.concatenate([np.empty(0, dtype=kind), *(row[i] for row in rows)])
        for i, kind in enumerate(kinds)
    ]


def _distinct(waiter: Shorts, waits: Shorts) -> tuple[Shorts, Shorts]:
    """Pairs in order, each once. Mostly they come in the order of the waiters already."""
    ahead, behind = waiter[1:], waiter[:-1]
    if not ((ahead > behind) | ((ahead == behind) & (waits[1:] > waits[:-1]))).all():
        order = np.lexsort((waits, waiter))
        waiter, waits = waiter[order], waits[order]
        new = np.ones(len(waiter), dtype=np.bool_)
        new[1:] = (waiter[1:] != waiter[:-1]) | (waits[1:] != waits[:-1])
        waiter, waits = waiter[new], waits[new]
    return waiter, waits


def _starts(owner: Shorts, count: int) -> Ints:
    """Where each owner's entries begin, in entries sorted by owner."""
    sizes = np.bincount(owner, minlength=count)
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
