"""Builds schedules: many ops at a time, and one schedule after another.

A `Frontier` holds per vertex the ops that its next op waits for. Two schedules join at their
frontiers, vertex by vertex: a rank begins the second as soon as it is through with the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from commsim.collectives.chunks import Chunks, Ints
from commsim.collectives.schedule import Schedule
from commsim.errors import ScheduleError

NONE = -1  # in `after`: nothing to wait for; in `nbytes`: what the chunks weigh


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
        self._ops: list[tuple[NDArray[np.int64], ...]] = []
        self._pieces: list[tuple[NDArray[np.int64], ...]] = []
        self._waits: list[tuple[NDArray[np.int64], ...]] = []

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
            *(np.asarray(a, dtype=np.int64) for a in (reduces, source, destination)),
            *(np.asarray(a, dtype=np.int64) for a in (nbytes, channel, round)),
            *(np.asarray(a, dtype=np.int64) for a in after),
            *(p[..., 0] for p in places),
        )
        columns = [np.atleast_1d(a).ravel() for a in ends[: 6 + len(after)]]
        count = len(columns[0])
        ids = np.arange(self._count, self._count + count, dtype=np.int64)
        self._count += count
        self._ops.append(tuple(columns[:6]))
        width = max(p.shape[-1] for p in places)
        flat = [np.broadcast_to(p, (count, width)).ravel() for p in places]
        kept = flat[2] > 0
        self._pieces.append((np.repeat(ids, width)[kept], *(f[kept] for f in flat)))
        for waits in columns[6:]:
            real = waits >= 0
            self._waits.append((ids[real], waits[real]))
        return ids

    def add(self, schedule: Schedule, after: Frontier | None = None) -> None:
        """Append a whole schedule; per vertex its first ops wait for `after`."""
        shift, count = self._count, len(schedule)
        ids = np.arange(count, dtype=np.int64)
        columns = ("reduces", "source", "destination", "nbytes", "channel", "round")
        self._ops.append(tuple(getattr(schedule, c).astype(np.int64) for c in columns))
        owner = np.repeat(ids, np.diff(schedule.piece_start))
        places = (schedule.source_place, schedule.destination_place, schedule.length)
        self._pieces.append((owner + shift, *(p.astype(np.int64) for p in places)))
        waiter = np.repeat(ids, np.diff(schedule.wait_start))
        self._waits.append((waiter + shift, schedule.waits.astype(np.int64) + shift))
        self._count += count
        if after is None:
            return
        for end in (schedule.source, schedule.destination):
            begun = np.zeros(count, dtype=np.bool_)
            begun[waiter[_touches(schedule, schedule.waits.astype(np.int64), end[waiter])]] = True
            pairs = [(i + shift, op) for i in np.flatnonzero(~begun) for op in after[int(end[i])]]
            if pairs:
                joined = np.array(pairs, dtype=np.int64)
                self._waits.append((joined[:, 0], joined[:, 1]))

    def build(self) -> Schedule:
        """The schedule of all ops appended so far."""
        reduces, source, destination, nbytes, channel, round = _stack(self._ops, 6)
        owner, source_place, destination_place, length = _stack(self._pieces, 4)
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
            total = np.zeros(self._count, dtype=np.int64)
            np.add.at(total, owner, weight)
            nbytes = np.where(unknown, total, nbytes)
        waiter, waits = _stack(self._waits, 2)
        pairs = np.unique(waiter * max(1, self._count) + waits)
        waiter, waits = pairs // max(1, self._count), pairs % max(1, self._count)
        return Schedule(
            chunks=self.chunks,
            scratch=self.scratch,
            switches=self.switches,
            reduces=reduces.astype(np.bool_),
            source=source.astype(np.int32),
            destination=destination.astype(np.int32),
            nbytes=nbytes,
            channel=channel.astype(np.int16),
            round=round.astype(np.int32),
            piece_start=start,
            source_place=source_place.astype(np.int32),
            destination_place=destination_place.astype(np.int32),
            length=length.astype(np.int32),
            wait_start=_starts(waiter, self._count),
            waits=waits.astype(np.int32),
        )

    def _weights(
        self, source: Ints, destination: Ints, from_place: Ints, to_place: Ints, length: Ints
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


def _touches(schedule: Schedule, ops: Ints, vertex: NDArray[np.int32]) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = (schedule.source[ops] == vertex) | (
        schedule.destination[ops] == vertex
    )
    return found


def _pieced(places: ArrayLike) -> NDArray[np.int64]:
    array = np.asarray(places, dtype=np.int64)
    return array if array.ndim == 2 else array[..., np.newaxis]


def _stack(rows: list[tuple[NDArray[np.int64], ...]], width: int) -> list[NDArray[np.int64]]:
    empty = np.empty(0, dtype=np.int64)
    return [np.concatenate([empty, *(row[i] for row in rows)]) for i in range(width)]


def _starts(owner: Ints, count: int) -> Ints:
    """Where each owner's entries begin, in entries sorted by owner."""
    return np.searchsorted(owner, np.arange(count + 1)).astype(np.int64)
