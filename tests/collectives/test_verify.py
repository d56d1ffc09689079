"""The proof against an interpreter that knows nothing of levels, clocks and bit sets."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commsim.collectives.builder import Builder
from commsim.collectives.catalogue import algorithm, names
from commsim.collectives.chunks import cut
from commsim.collectives.collective import Collective
from commsim.collectives.schedule import Schedule
from commsim.collectives.verify import verify
from commsim.errors import ScheduleError

COLUMNS = (
    "reduces", "source", "destination", "nbytes", "channel", "round",
    "source_place", "destination_place", "length", "waits",
)  # fmt: skip
Event = tuple[str, int]
Row = tuple[int, int, int, int, int, list[int]]  # ends, places, channel, what it waits for
SERVED = [(n, o) for n in names() for o in sorted(algorithm(n).operations)]


def is_correct(schedule: Schedule) -> bool:
    """Ops one by one in their order, on multisets of (chunk, giver); all pairs tried for a race.

    Per op, as sets of ("sent" or "arrived", op): what is over when it begins, what when its data
    come, what when they have come. Those before it on its connection come before it.
    """
    chunks, n = schedule.chunks, schedule.chunks.n
    memory: dict[tuple[int, int], Counter[tuple[int, int]]] = {}
    for p, place in zip(*(a.tolist() for a in np.nonzero(chunks.before())), strict=True):
        chunk = int(chunks.at(np.array(p), np.array(place)))
        memory[p, place] = Counter([(chunk, p if chunks.reduces else 0)])
    touched: list[list[tuple[tuple[int, int], str]]] = []
    begun: list[set[Event]] = []
    coming: list[set[Event]] = []
    sent: list[set[Event]] = []
    arrived: list[set[Event]] = []
    ways: list[tuple[int, int, int]] = []
    for i, op in enumerate(schedule):
        if any(not 0 <= w < i for w in op.waits):
            return False
        ways.append((op.source, op.destination, op.channel))
        done = [sent[w] if ways[w][0] == op.source else arrived[w] for w in op.waits]
        begun.append(set().union(*done))
        ahead = [j for j in range(i) if ways[j] == ways[i] and ("sent", j) in begun[i]]
        coming.append(begun[i].union(*(arrived[j] for j in ahead)))
        arrived.append(coming[i] | {("sent", i), ("arrived", i)})
        sent.append(arrived[i] if op.source == op.destination else begun[i] | {("sent", i)})
        if not {op.source, op.destination} <= set(range(schedule.vertices)):
            return False
        if op.reduces and not chunks.reduces:
            return False
        moves = []
        for piece in op.pieces:
            if piece.length < 1:
                return False
            for k in range(piece.length):
                moves.append((piece.source_place + k, piece.destination_place + k))
        if any(not 0 <= place < schedule.places for move in moves for place in move):
            return False
        touched.append([((op.source, s), "read") for s, _ in moves])
        touched[i] += [((op.destination, d), "add" if op.reduces else "set") for _, d in moves]
        data = [memory.get((op.source, s)) for s, _ in moves]
        if None in data:
            return False
        nbytes = 0
        for (_, d), comes in zip(moves, data, strict=True):
            assert comes is not None
            nbytes += int(chunks.nbytes[next(iter(comes))[0]])
            there = memory.get((op.destination, d))
            if op.reduces:
                if there is None and op.destination < n:
                    return False
                summed = (there or Counter()) + comes
                if max(summed.values()) > 1 or len({c for c, _ in summed}) > 1:
                    return False
                memory[op.destination, d] = summed
            else:
                memory[op.destination, d] = comes
        if nbytes != op.nbytes:
            return False
    for i in range(len(schedule)):
        for j in range(i + 1):
            for x, (place, kind) in enumerate(touched[i]):
                for y, (other, was) in enumerate(touched[j]):
                    same = i == j and x == y
                    harmless = kind == was and kind != "set"
                    over = begun[i] if kind == "read" else coming[i]
                    ordered = ("sent" if was == "read" else "arrived", j) in over
                    if place == other and not same and not harmless and not ordered:
                        return False
    givers = range(n) if chunks.reduces else range(1)
    for p, place in zip(*(a.tolist() for a in np.nonzero(chunks.after())), strict=True):
        chunk = int(chunks.at(np.array(p), np.array(place)))
        if memory.get((p, place)) != Counter((chunk, g) for g in givers):
            return False
    return True


def accepted(schedule: Schedule, collective: Collective) -> bool:
    try:
        verify(schedule, collective)
    except ScheduleError:
        return False
    return True


@pytest.mark.parametrize(("name", "operation"), SERVED)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_one_changed_field_is_caught_unless_it_does_no_harm(
    name: str, operation: str, data: st.DataObject
) -> None:
    n = data.draw(st.integers(2, 5), "ranks")
    nbytes = data.draw(st.sampled_from([1, 13, 64]), "nbytes")
    collective = Collective(operation, nbytes)
    schedule = algorithm(name).schedule(collective, n, data.draw(st.integers(1, 2), "channels"))
    assert is_correct(schedule)
    column = data.draw(st.sampled_from(COLUMNS))
    values = getattr(schedule, column).copy()
    if not len(values):
        return
    i = data.draw(st.integers(0, len(values) - 1), "entry")
    if values.dtype == np.bool_:
        values[i] = not values[i]
    else:
        top = max(len(schedule), schedule.places, int(schedule.nbytes.max()))
        values[i] = data.draw(st.integers(-1, top + 1), "value")
    mutant = replace(schedule, **{column: values})
    assert accepted(mutant, collective) == is_correct(mutant)


@pytest.mark.parametrize(("name", "operation"), SERVED)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_a_forgotten_wait_is_caught_unless_another_implies_it(
    name: str, operation: str, data: st.DataObject
) -> None:
    collective = Collective(operation, 64)
    schedule = algorithm(name).schedule(collective, data.draw(st.integers(2, 5), "ranks"))
    if not len(schedule.waits):
        return
    gone = data.draw(st.integers(0, len(schedule.waits) - 1), "wait")
    start = schedule.wait_start - (schedule.wait_start > gone)
    mutant = replace(schedule, waits=np.delete(schedule.waits, gone), wait_start=start)
    assert accepted(mutant, collective) == is_correct(mutant)


def broadcast(*, scratch: int = 0) -> tuple[Builder, Collective]:
    collective = Collective("broadcast", 8)
    return Builder(cut(collective, 3), scratch=scratch), collective


def test_reading_what_is_not_there_yet() -> None:
    builder, collective = broadcast()
    builder.append(0, 1, 0)
    builder.append(1, 2, 0)  # does not wait for what it passes on
    with pytest.raises(ScheduleError, match=r"op 1 .* reads place 0 of rank 1, which op 0"):
        verify(builder.build(), collective)
    builder, collective = broadcast()
    builder.append(1, 2, 0)
    with pytest.raises(ScheduleError, match=r"op 0 .* reads place 0 of rank 1, where nothing"):
        verify(builder.build(), collective)


def test_two_writes_without_an_order() -> None:
    builder, collective = broadcast()
    builder.append(0, [1, 1, 2], 0)
    with pytest.raises(ScheduleError, match=r"op 1 .* writes place 0 of rank 1, which op 0"):
        verify(builder.build(), collective)


# Two parts from rank 0 to ranks 1 and 2; place 2 is scratch.
WAITS: dict[str, tuple[bool, list[Row]]] = {
    "op 1 begins when op 0 has left: what op 2 reads may come later": (
        False,
        [(0, 1, 0, 0, 0, []), (0, 2, 1, 1, 0, [0]), (1, 2, 0, 0, 0, [1]), (0, 1, 1, 1, 0, [])],
    ),
    "any number of ops of the same source in between are no help": (
        False,
        [
            (0, 1, 0, 0, 0, []), (0, 2, 1, 1, 0, [0]), (0, 0, 0, 2, 0, [1]), (0, 1, 1, 1, 1, [2]),
            (1, 2, 0, 0, 0, [3]),
        ],
    ),
    "op 2 waits for op 0 itself": (
        True,
        [(0, 1, 0, 0, 0, []), (0, 2, 1, 1, 0, [0]), (1, 2, 0, 0, 0, [0]), (0, 1, 1, 1, 0, [])],
    ),
    "op 2 waits for one of its own source that began when op 0 had come": (
        True,
        [
            (0, 1, 0, 0, 0, []), (1, 0, 0, 2, 0, [0]), (1, 2, 0, 0, 0, [1]), (0, 1, 1, 1, 0, []),
            (0, 2, 1, 1, 0, []),
        ],
    ),
    "op 1 comes behind op 0 on its connection": (
        True,
        [(0, 1, 0, 0, 0, []), (0, 1, 1, 1, 0, [0]), (1, 2, 0, 0, 0, [1]), (0, 2, 1, 1, 0, [])],
    ),
    "op 1 comes on another channel": (
        False,
        [(0, 1, 0, 0, 0, []), (0, 1, 1, 1, 1, [0]), (1, 2, 0, 0, 0, [1]), (0, 2, 1, 1, 0, [])],
    ),
    "op 1 comes on the same connection, but does not wait for op 0": (
        False,
        [(0, 1, 0, 0, 0, []), (0, 1, 1, 1, 0, []), (1, 2, 0, 0, 0, [1]), (0, 2, 1, 1, 0, [])],
    ),
    "op 2 comes behind op 0 on its connection, with op 1 in between": (
        True,
        [(0, 1, 0, 0, 0, []), (0, 2, 1, 1, 0, [0]), (0, 1, 1, 1, 0, [1]), (1, 2, 0, 0, 0, [2])],
    ),
    "ops 0 and 1 write one place in the order of their connection": (
        True,
        [
            (0, 1, 0, 0, 0, []), (0, 1, 0, 0, 0, [0]), (0, 1, 1, 1, 0, []), (0, 2, 0, 0, 0, []),
            (0, 2, 1, 1, 0, []),
        ],
    ),
    "ops 0 and 1 write one place on two channels": (
        False,
        [
            (0, 1, 0, 0, 0, []), (0, 1, 0, 0, 1, [0]), (0, 1, 1, 1, 0, []), (0, 2, 0, 0, 0, []),
            (0, 2, 1, 1, 0, []),
        ],
    ),
    "op 2 overwrites what op 0 has sent, come or not": (
        True,
        [
            (0, 1, 1, 1, 0, []), (0, 2, 1, 1, 0, [0]), (2, 0, 1, 1, 0, [1]), (0, 1, 0, 0, 0, []),
            (0, 2, 0, 0, 0, []),
        ],
    ),
    "op 2 overwrites what op 0 may not have sent": (
        False,
        [
            (0, 1, 1, 1, 0, []), (0, 2, 1, 1, 0, []), (2, 0, 1, 1, 0, [1]), (0, 1, 0, 0, 0, []),
            (0, 2, 0, 0, 0, []),
        ],
    ),
    "what op 0 puts elsewhere at its own rank is there at once": (
        True,
        [
            (0, 0, 0, 2, 0, []), (0, 2, 1, 1, 0, [0]), (0, 1, 2, 0, 0, [1]), (0, 1, 1, 1, 0, []),
            (0, 2, 0, 0, 0, []),
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WAITS)
def test_what_has_been_sent_has_not_yet_arrived(case: str) -> None:
    collective = Collective("broadcast", 8)
    builder = Builder(cut(collective, 3, 2), scratch=1)
    right, rows = WAITS[case]
    for source, destination, from_place, to_place, channel, waits in rows:
        builder.append(source, destination, from_place, to_place, channel=channel, after=waits)
    schedule = builder.build()
    assert is_correct(schedule) == right
    assert accepted(schedule, collective) == right


def test_a_sum_that_may_be_passed_on_too_early() -> None:
    collective = Collective("reduce", 8, root=2)
    builder = Builder(cut(collective, 3, 2))
    builder.append(0, 1, 0, reduces=True)
    builder.append(0, 2, 1, reduces=True, after=[0])
    builder.append(1, 2, [0, 1], reduces=True, after=[1])
    problem = r"op 2 .* reads place 0 of rank 1, which op 0 .* adds to, .* to arrive"
    with pytest.raises(ScheduleError, match=problem):
        verify(builder.build(), collective)


def test_a_rank_left_out_and_one_counted_twice() -> None:
    builder, collective = broadcast()
    builder.append(0, 1, 0)
    with pytest.raises(ScheduleError, match=r"rank 2: place 0 .*no op writes it"):
        verify(builder.build(), collective)
    collective = Collective("reduce", 8)
    builder = Builder(cut(collective, 3))
    builder.append([1, 2, 1], 0, 0, reduces=True)
    with pytest.raises(ScheduleError, match=r"op 2 .* adds a contribution twice .* of rank 0"):
        verify(builder.build(), collective)


def test_a_switch_begins_with_an_empty_sum() -> None:
    collective = Collective("all_reduce", 8)
    builder = Builder(cut(collective, 3), scratch=1, switches=1)
    sums = builder.append([0, 1, 2], 3, 0, 1, reduces=True)
    builder.append(3, [0, 1, 2], 1, 0, after=sums.tolist())
    verify(builder.build(), collective)


def test_another_size_is_refused() -> None:
    builder, _ = broadcast()
    with pytest.raises(ScheduleError, match="16 B"):
        verify(builder.build(), Collective("broadcast", 16))
