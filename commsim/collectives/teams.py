"""One schedule played by many teams at once, as a phase of a larger schedule.

Every vertex and place of the small schedule stands for one of the large one per team; a place may
stand for several stretches of the larger buffer.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from commsim.collectives.builder import NONE, Builder, frontier
from commsim.collectives.chunks import Ints
from commsim.collectives.schedule import Schedule


class Teams:
    """A team's schedule, and who and where its vertices and places are in each team.

    vertices: [team, vertex]. cells: [team or 1, place, piece], the first of `width` consecutive
    places for each piece of a place of the data. Scratch needs `scratch` places per vertex.
    """

    def __init__(self, schedule: Schedule, vertices: Ints, cells: Ints, width: int) -> None:
        self.schedule, self.vertices, self.cells, self.width = schedule, vertices, cells, width
        self.scratch = schedule.scratch * cells.shape[2] * width
        self.rounds = int(schedule.round.max(initial=-1)) + 1
        count = len(schedule)
        # Every place that moves by itself: its piece, how far inside, its op.
        moved = np.repeat(np.arange(len(schedule.length)), schedule.length)
        inside = np.arange(len(moved)) - (np.cumsum(schedule.length) - schedule.length)[moved]
        owner = np.repeat(np.arange(count), np.diff(schedule.piece_start))[moved]
        # Per op the places it moves, and the ops it waits for; per vertex its last ops.
        self._sources = _table(owner, schedule.source_place[moved] + inside, count)
        self._ends = _table(owner, schedule.destination_place[moved] + inside, count)
        waiter = np.repeat(np.arange(count), np.diff(schedule.wait_start))
        self._waits = _table(waiter, schedule.waits, count)
        self._first = [_untouched(schedule, waiter, end) for end in _ends(schedule)]
        last = frontier(schedule).ops
        vertex = np.repeat(np.arange(len(last)), [len(ops) for ops in last])
        self._last = _table(vertex, np.array([op for ops in last for op in ops]), len(last))

    def append(
        self,
        builder: Builder,
        *,
        data: int,
        scratch: int,
        ready: Ints,
        twins: Ints | None,
        channel: int,
        round: int,
    ) -> Ints:
        """The numbers of the new ops, [team, op of the schedule].

        data, scratch: added to the cells, and where scratch begins. ready: per vertex of the whole
        the op for which its first op here waits. twins: an op per new one to wait for as well.
        """
        schedule, teams = self.schedule, np.arange(len(self.vertices))[:, np.newaxis]
        own = np.arange(0, self.scratch, self.width).reshape(1, -1, self.cells.shape[2])
        own = np.repeat(own, len(self.cells), axis=0)
        places = np.concatenate([self.cells + data, own + scratch], axis=1)
        ends = [self.vertices[:, end] for end in _ends(schedule)]
        after = [
            np.where(wait >= 0, len(builder) + teams * len(schedule) + wait, NONE)
            for wait in self._waits.T
        ]
        for first, end in zip(self._first, ends, strict=True):
            after.append(np.where(first, ready[end], NONE))
        after += [] if twins is None else [twins]
        lengths = np.where(self._sources >= 0, self.width, 0)
        new = builder.append(
            *(end.ravel() for end in ends),
            *(self._laid(places[:, moved]) for moved in (self._sources, self._ends)),
            length=self._laid(lengths[..., np.newaxis]),
            reduces=np.tile(schedule.reduces, len(teams)),
            after=[ops.ravel() for ops in after],
            channel=channel,
            round=np.tile(schedule.round + round, len(teams)),
        )
        return new.reshape(len(teams), -1)

    def join(self, builder: Builder, ops: Ints, ready: Ints, *, channel: int, round: int) -> None:
        """Make `ready` an op without data for each vertex, which waits until it is through."""
        busy = np.flatnonzero(self._last[:, 0] >= 0)
        vertex, last = self.vertices[:, busy], self._last[busy]
        after = [np.where(op >= 0, ops[:, op], NONE).ravel() for op in last.T]
        joined = builder.append(
            vertex.ravel(), vertex.ravel(), 0, length=0, after=after, channel=channel, round=round
        )
        ready[vertex] = joined.reshape(vertex.shape)

    def _laid(self, places: Ints) -> Ints:
        """[team, op, place, piece] as a row of pieces for each op of each team."""
        teams, ops = len(self.vertices), len(self.schedule)
        shape = teams, ops, self._sources.shape[1], self.cells.shape[2]
        return np.broadcast_to(places, shape).reshape(teams * ops, -1)


def _ends(schedule: Schedule) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    return schedule.source, schedule.destination


def _untouched(schedule: Schedule, waiter: Ints, vertex: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Whether an op waits for none that touches its own `vertex`."""
    touching = np.zeros(len(waiter), dtype=np.bool_)
    for end in _ends(schedule):
        touching |= end[schedule.waits] == vertex[waiter]
    untouched: NDArray[np.bool_] = np.bincount(waiter[touching], minlength=len(schedule)) == 0
    return untouched


def _table(owner: Ints, values: NDArray[np.integer], count: int) -> Ints:
    """A row per owner with its values, filled up with NONE; `owner` is sorted."""
    start = np.searchsorted(owner, np.arange(count))
    column = np.arange(len(owner)) - start[owner]
    table = np.full((count, int(column.max(initial=0)) + 1), NONE)
    table[owner, column] = values
    return table
