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
from commsim.collectives.schedule import Repeat, Schedule
from commsim.errors import ScheduleError

NONE = -1  # in `after`: nothing to wait for; in `nbytes`: what the chunks weigh

Shorts = NDArray[np.int32]
OP_COLUMNS = ("reduces", "streams", "source", "destination", "nbytes", "channel", "round")
PIECE_COLUMNS = ("source_place", "destination_place", "length")
SIZE, CHANNEL, WIDTH = OP_COLUMNS.index("nbytes"), OP_COLUMNS.index("channel"), len(OP_COLUMNS)
OP_KINDS = (
    np.bool_, np.bool_, np.int32, np.int32, np.int64, np.int16, np.int32,
    np.int32, np.int32,
)  # fmt: skip
MOST_CHANNEL = int(np.iinfo(np.int16).max)


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
        self._ops: list[tuple[NDArray[Any], ...]] = []  # with how many pieces and waits each has
        self._pieces: list[tuple[Shorts, ...]] = []
        self._waits: list[tuple[Shorts, ...]] = []
        self._joins: list[tuple[Shorts, ...]] = []  # waiter and what it waits for besides

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
        streams: ArrayLike = False,
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
            *map(np.asarray, (reduces, streams, source, destination, nbytes, channel, round)),
            *(np.asarray(a) for a in after),
            *(p[..., 0] for p in places),
        )
        columns = [np.atleast_1d(a).ravel() for a in ends[: WIDTH + len(after)]]
        count = len(columns[0])
        ids = np.arange(self._count, self._count + count, dtype=np.int64)
        self._count += count
        width = max(p.shape[-1] for p in places)
        flat = [np.broadcast_to(p, (count, width)).astype(np.int32) for p in places]
        kept = flat[2] > 0
        pieces = kept.sum(axis=1, dtype=np.int32)
        waits = np.full((count, len(after)), NONE, dtype=np.int32)
        for i, column in enumerate(columns[WIDTH:]):
            waits[:, i] = column
        waits.sort(axis=1)
        waits[:, 1:][waits[:, 1:] == waits[:, :-1]] = NONE
        real = waits >= 0
        owner = np.repeat(np.arange(count), pieces)
        flat = [f[kept] for f in flat]
        columns[SIZE] = self._sizes(columns, owner, flat, ids)
        if count and columns[CHANNEL].max() > MOST_CHANNEL:
            raise ScheduleError(
                f"channel {columns[CHANNEL].max()}: a schedule has at most {MOST_CHANNEL + 1:,} "
                "channels; ask for fewer"
            )
        kinds = zip(columns, OP_KINDS[:WIDTH], strict=False)
        self._ops.append(
            (*(c.astype(k) for c, k in kinds), pieces, real.sum(axis=1, dtype=np.int32))
        )
        self._pieces.append(tuple(flat))
        self._waits.append((waits[real],))
        return ids

    def add(self, schedule: Schedule, after: Frontier | None = None) -> None:
        """Append a whole schedule; per vertex its first ops wait for `after`."""
        shift, count = np.int32(self._count), len(schedule)
        per_op = (np.diff(c).astype(np.int32) for c in (schedule.piece_start, schedule.wait_start))
        self._ops.append((*(getattr(schedule, c) for c in OP_COLUMNS), *per_op))
        self._pieces.append((schedule.source_place, schedule.destination_place, schedule.length))
        self._waits.append((schedule.waits + shift,))
        self._count += count
        if after is None:
            return
        waiter = np.repeat(np.arange(count, dtype=np.int32), np.diff(schedule.wait_start))
        for end in (schedule.source, schedule.destination):
            begun = np.zeros(count, dtype=np.bool_)
            begun[waiter[_touches(schedule, schedule.waits, end[waiter])]] = True
            pairs = [(i + shift, op) for i in np.flatnonzero(~begun) for op in after[int(end[i])]]
            if pairs:
                joined = np.array(pairs, dtype=np.int32)
                self._joins.append((joined[:, 0], joined[:, 1]))

    def build(self, repeats: Sequence[Repeat] = ()) -> Schedule:
        """The schedule of all ops appended so far; the builder is empty then."""
        *columns, pieces, waiting = _stack(self._ops, OP_KINDS)
        (waits,) = _stack(self._waits, (np.int32,))
        if self._joins:
            own = np.repeat(np.arange(self._count, dtype=np.int32), waiting)
            waiter, besides = _stack(self._joins, (np.int32, np.int32))
            waiting, waits = _merged(
                np.concatenate([own, waiter]), np.concatenate([waits, besides]), self._count
            )
        places = _stack(self._pieces, (np.int32,) * 3)
        return Schedule(
            chunks=self.chunks,
            scratch=self.scratch,
            switches=self.switches,
            **dict(zip(OP_COLUMNS, columns, strict=True)),
            **dict(zip(PIECE_COLUMNS, places, strict=True)),
            piece_start=_starts(pieces),
            wait_start=_starts(waiting),
            waits=waits,
            repeats=tuple(repeats),
        )

    def _sizes(
        self,
        columns: Sequence[NDArray[Any]],
        owner: Ints,
        places: Sequence[Shorts],
        ids: Ints,
    ) -> NDArray[Any]:
        """The nbytes of new ops: as given, or what their chunks weigh."""
        source, destination, nbytes = columns[SIZE - 2 : SIZE + 1]
        unknown = nbytes == NONE
        if not unknown.any():
            return nbytes
        weight = self._weights(source[owner], destination[owner], *places)
        lost = unknown[owner] & (weight < 0)
        if lost.any():
            raise ScheduleError(
                f"op {ids[owner[lost][0]]}: moves scratch to scratch: expected its nbytes, got none"
            )
        if len(owner) == len(ids):  # a piece each
            total = weight
        else:
            total = np.bincount(owner, weights=weight, minlength=len(ids)).astype(np.int64)
        return np.where(unknown, total, nbytes)

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
    """Where a schedule ends: per vertex, its ops for which no other op of that vertex waits.

    Who waits for an op of its own source knows only that it has left, not that it has arrived; but
    over one connection ops arrive in order.
    """
    waiter = np.repeat(np.arange(len(schedule)), np.diff(schedule.wait_start))
    last: list[set[int]] = [set() for _ in range(schedule.vertices)]
    waits = schedule.waits
    only_left = schedule.source[waiter] == schedule.source[waits]
    only_left &= (schedule.destination[waiter] != schedule.destination[waits]) | (
        schedule.channel[waiter] != schedule.channel[waits]
    )
    for end in (schedule.source, schedule.destination):
        follows = _touches(schedule, waiter, end[waits])
        if end is schedule.destination:
            follows &= ~only_left
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
    """Each column of all rows as one array of its kind; the rows go, as both at once are large."""
    columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in kinds]
    rows.clear()
    found = []
    for column, kind in zip(columns, kinds, strict=True):
        found.append(np.concatenate([np.empty(0, dtype=kind), *column]))
        column.clear()
    return found


def _merged(waiter: Shorts, waits: Shorts, count: int) -> tuple[Shorts, Shorts]:
    """How many each waits for, and for which: pairs in order, each once."""
    order = np.lexsort((waits, waiter))
    waiter, waits = waiter[order], waits[order]
    new = np.ones(len(waiter), dtype=np.bool_)
    new[1:] = (waiter[1:] != waiter[:-1]) | (waits[1:] != waits[:-1])
    return np.bincount(waiter[new], minlength=count).astype(np.int32), waits[new]


def _starts(sizes: Shorts) -> Ints:
    """Where each op's entries begin, and where the last one's end."""
    start = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=start[1:])
    return start
