"""Proof that a schedule computes its collective, whatever the timing.

First no two ops meet in one place without an order between them; then, as all orders give the same,
the chunks and whose contributions they hold are followed level by level through the schedule.
Sums into one place commute, as a receiver adds what arrives in the order in which it arrives; so
two unordered reductions are no race. A switch's places start as an empty sum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from commsim.collectives.chunks import Ints, cut
from commsim.collectives.collective import Collective
from commsim.collectives.order import Levels, levels, unordered
from commsim.collectives.schedule import Schedule
from commsim.errors import ScheduleError

READ, WRITE, SUM = 0, 1, 2
EMPTY = -1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Moves:
    """Every chunk that every op moves: cells are places of vertices, numbered through."""

    op: Ints
    source: Ints
    destination: Ints


def verify(schedule: Schedule, collective: Collective) -> None:
    """Nothing, if every rank provably ends with exactly the right contributions, each once.

    An op that waits for another of its own source begins when that is sent (its last byte has
    left), and may overtake it; it begins after the arrival of those of other sources. Only messages
    of one connection (source, destination, channel) arrive in the order in which they were sent.

    Otherwise raises ScheduleError, naming the op and the rank.
    """
    _check_chunks(schedule, collective)
    _check_form(schedule)
    moves = _moves(schedule)
    order = levels(schedule)
    _check_races(schedule, order, moves)
    _check_contents(schedule, order, moves)


def _check_chunks(schedule: Schedule, collective: Collective) -> None:
    chunks = schedule.chunks
    due = cut(collective, chunks.n, chunks.parts)
    if (chunks.operation, chunks.root) != (due.operation, due.root) or not np.array_equal(
        chunks.nbytes, due.nbytes
    ):
        raise ScheduleError(
            f"schedule of {chunks.operation} on {chunks.n} ranks: its chunks are not those of "
            f"{collective.operation} of {collective.nbytes} B; build it for that collective"
        )


def _check_form(schedule: Schedule) -> None:
    """Every number within its bounds, every wait for a lower number."""
    ids = np.arange(len(schedule))
    waiter = np.repeat(ids, np.diff(schedule.wait_start))
    piece = np.repeat(ids, np.diff(schedule.piece_start))
    beyond = schedule.places - schedule.length
    for op, value, top, what in (
        (ids, schedule.source, schedule.vertices - 1, "source"),
        (ids, schedule.destination, schedule.vertices - 1, "destination"),
        (waiter, schedule.waits, waiter - 1, "wait"),
        (piece, schedule.length - 1, schedule.places - 1, "length - 1"),
        (piece, schedule.source_place, beyond, "source place"),
        (piece, schedule.destination_place, beyond, "destination place"),
    ):
        wrong = np.flatnonzero((value < 0) | (value > top))
        if len(wrong):
            i = wrong[0]
            raise ScheduleError(
                f"{_name(schedule, op[i])}: {what}: expected 0 to "
                f"{np.broadcast_to(top, value.shape)[i]}, got {value[i]}"
            )


def _moves(schedule: Schedule) -> _Moves:
    op = np.repeat(np.arange(len(schedule)), np.diff(schedule.piece_start))
    length = schedule.length.astype(np.int64)
    inside = np.arange(int(length.sum())) - np.repeat(np.cumsum(length) - length, length)
    source = schedule.source[op].astype(np.int64) * schedule.places + schedule.source_place
    end = schedule.destination[op].astype(np.int64) * schedule.places + schedule.destination_place
    return _Moves(
        op=np.repeat(op, length),
        source=np.repeat(source, length) + inside,
        destination=np.repeat(end, length) + inside,
    )


def _check_races(schedule: Schedule, order: Levels, moves: _Moves) -> None:
    """Accesses to a cell fall into groups that may be unordered among themselves (reads; sums; one
    write); each access must be ordered after every one of the group before: after a read, which is
    over when the op is sent, or a write or sum, over when it has arrived.
    """
    op = np.concatenate([moves.op, moves.op])
    cell = np.concatenate([moves.source, moves.destination])
    writes = np.where(schedule.reduces[moves.op], SUM, WRITE)
    kind = np.concatenate([np.full(len(moves.op), READ), writes])
    by_cell = np.lexsort((kind, op, cell))
    op, cell, kind = op[by_cell], cell[by_cell], kind[by_cell]
    count = len(op)
    if not count:
        return
    same_cell = np.concatenate([[False], cell[1:] == cell[:-1]])
    joins = same_cell & (kind != WRITE)
    joins[1:] &= kind[1:] == kind[:-1]
    group = np.cumsum(~joins) - 1
    start = np.append(np.flatnonzero(~joins), count)
    follows = same_cell[start[:-1]]  # per group: another one of the same cell comes before
    later = np.flatnonzero(follows[group])
    size = (start[1:] - start[:-1])[group[later] - 1]
    second = np.repeat(later, size)
    shift = np.repeat(start[group[later] - 1] - (np.cumsum(size) - size), size)
    first = np.arange(len(second)) + shift
    question = (op[second] * len(schedule) + op[first]) * 2 + (kind[first] == READ)
    question, where = np.unique(question, return_index=True)
    pairs, sent = question // 2, question % 2 == 1
    before, after = pairs % len(schedule), pairs // len(schedule)
    loose = np.flatnonzero(unordered(schedule, order, before, after, sent))
    if len(loose):
        i = loose[0]
        verb = ("reads", "writes", "adds to")
        place = cell[first[where[i]]]
        raise ScheduleError(
            f"{_name(schedule, after[i])} {verb[kind[second[where[i]]]]} place "
            f"{place % schedule.places} of {_vertex(schedule, place)}, which "
            f"{_name(schedule, before[i])} {verb[kind[first[where[i]]]]}, without waiting for it "
            f"to {'be sent' if sent[i] else 'arrive'}"
        )


def _check_contents(schedule: Schedule, order: Levels, moves: _Moves) -> None:
    chunks, places, n = schedule.chunks, schedule.places, schedule.chunks.n
    cells = schedule.vertices * places
    chunk = np.full(cells, EMPTY, dtype=np.int64)
    words = (n + 63) // 64 if chunks.reduces else 0
    ranks = np.zeros((cells, words), dtype=np.uint64)  # whose contributions are in: a bit per rank
    position, place = np.nonzero(chunks.before())
    held = position * places + place
    chunk[held] = chunks.at(position, place)
    if words:
        ranks[held, position // 64] = np.uint64(1) << (position % 64).astype(np.uint64)

    if not chunks.reduces:
        for i in np.flatnonzero(schedule.reduces)[:1]:
            raise ScheduleError(f"{_name(schedule, i)} adds, but {chunks.operation} adds nothing")
    by_level = np.argsort(order.level[moves.op], kind="stable")
    start = np.searchsorted(order.level[moves.op[by_level]], np.arange(len(order) + 1))
    moved = np.zeros(len(schedule), dtype=np.int64)
    for depth in range(len(order)):
        now = by_level[start[depth] : start[depth + 1]]
        op, source, end = moves.op[now], moves.source[now], moves.destination[now]
        what, whose = chunk[source], ranks[source]
        _refuse(schedule, what == EMPTY, op, source, "reads place {}, where nothing is yet")
        np.add.at(moved, op, chunks.nbytes[what])
        sums = schedule.reduces[op]
        chunk[end[~sums]], ranks[end[~sums]] = what[~sums], whose[~sums]
        left = np.flatnonzero(sums)
        while len(left):  # one sum per cell at a time
            _, one = np.unique(end[left], return_index=True)
            some, left = left[one], np.delete(left, one)
            fresh = (chunk[end[some]] == EMPTY) & (end[some] >= n * places)
            wrong = (chunk[end[some]] != what[some]) & ~fresh
            _refuse(schedule, wrong, op[some], end[some], "adds another chunk to place {}")
            twice = np.asarray((ranks[end[some]] & whose[some]).any(axis=1))
            _refuse(schedule, twice, op[some], end[some], "adds a contribution twice to place {}")
            chunk[end[some]] = what[some]
            ranks[end[some]] |= whose[some]
    for i in np.flatnonzero(moved != schedule.nbytes)[:1]:
        raise ScheduleError(f"{_name(schedule, i)}: nbytes: its chunks hold {moved[i]} B")

    position, place = np.nonzero(chunks.after())
    cell = position * places + place
    full = np.zeros(words, dtype=np.uint64)
    for rank in range(n if words else 0):
        full[rank // 64] |= np.uint64(1) << np.uint64(rank % 64)
    bad = (chunk[cell] != chunks.at(position, place)) | (ranks[cell] != full).any(axis=1)
    for i in np.flatnonzero(bad)[:1]:
        writer = moves.op[moves.destination == cell[i]]
        by = f"after {_name(schedule, writer.max())}" if len(writer) else "no op writes it"
        raise ScheduleError(
            f"rank {position[i]}: place {place[i]} does not end with its chunk "
            f"{chunks.at(position, place)[i]} complete ({by})"
        )


def _refuse(
    schedule: Schedule, wrong: NDArray[np.bool_], op: Ints, cell: Ints, problem: str
) -> None:
    for i in np.flatnonzero(wrong)[:1]:
        where = _vertex(schedule, cell[i])
        what = problem.format(f"{cell[i] % schedule.places} of {where}")
        raise ScheduleError(f"{_name(schedule, op[i])} {what}")


def _vertex(schedule: Schedule, cell: int) -> str:
    vertex = int(cell) // schedule.places
    return f"rank {vertex}" if vertex < schedule.chunks.n else f"switch {vertex}"


def _name(schedule: Schedule, op: int) -> str:
    return str(schedule[int(op)])
