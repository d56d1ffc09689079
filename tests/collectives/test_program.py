"""A user's function becomes a schedule: its waits worked out by hand, its mistakes found."""

from __future__ import annotations

import doctest
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commsim.collectives import program as module
from commsim.collectives.algorithms.ring import Ring
from commsim.collectives.chunks import cut
from commsim.collectives.collective import Collective
from commsim.collectives.program import Program, from_function
from commsim.collectives.schedule import Schedule
from commsim.collectives.verify import verify
from commsim.errors import ScheduleError


def all_reduce_by_tree(order: list[int], parents: list[int]) -> Callable[[Program], None]:
    """Sums towards `order[0]` along a tree (each rank's parent comes before it), then back."""

    def function(program: Program) -> None:
        for child, parent in reversed(list(zip(order[1:], parents, strict=True))):
            program.reduce(child, 0, parent)
        for child, parent in zip(order[1:], parents, strict=True):
            program.copy(parent, 0, child)

    return function


def complaint(schedule: Schedule, collective: Collective) -> str:
    try:
        verify(schedule, collective)
    except ScheduleError as error:
        return str(error)
    return ""


def transfers(schedule: Schedule) -> list[tuple[int, int, int, int, bool]]:
    return sorted(
        (op.source, op.destination, op.pieces[0].source_place, op.nbytes, op.reduces)
        for op in schedule
    )


def test_the_example_in_the_docstring_runs() -> None:
    assert doctest.testmod(module) == doctest.TestResults(failed=0, attempted=7)


@pytest.mark.parametrize("n", [2, 3, 5])
def test_a_ring_in_a_few_lines_sends_what_the_ring_sends(n: int) -> None:
    def ring(program: Program) -> None:
        for channel in range(program.channels):
            for block in range(n):
                for step in range(1, 2 * n - 1):
                    rank, target = (block + step) % n, (block + step + 1) % n
                    move = program.reduce if step < n else program.copy
                    move(rank, block * program.channels + channel, target, channel=channel)

    collective = Collective("all_reduce", 60 * n)
    schedule = from_function(collective, n, ring, channels=2, parts=2 * n)
    verify(schedule, collective)
    assert transfers(schedule) == transfers(Ring().schedule(collective, n, 2))
    assert schedule.round.max() == 2 * n - 3  # 2 (n - 1) rounds, the first is 0
    assert sorted(schedule.channel.tolist()) == [0] * (len(schedule) // 2) + [1] * (
        len(schedule) // 2
    )


def test_waits_follow_from_the_places() -> None:
    def function(program: Program) -> None:
        first = program.scratch
        program.copy(0, 0, 1, first)  # 0
        program.copy(1, first, 2, 0)  # 1: reads what 0 wrote
        program.copy(1, first, 2, first)  # 2: the same, beside 1
        program.copy(2, 1, 1, first)  # 3: overwrites what 1 and 2 read
        program.copy(0, 1, 1, first)  # 4: overwrites what 3 wrote
        program.reduce(0, 0, 2, 1)  # 5: adds to what 3 read
        program.reduce(1, 0, 2, 1)  # 6: adds beside 5
        program.copy(2, 1, 0, first)  # 7: reads both sums
        program.copy(0, 2, 1, 2)  # 8: touches places of its own
        program.copy(0, 3, 1, 3, after=[7])  # 9: waits because it is told to

    schedule = from_function(Collective("all_reduce", 16), 3, function, parts=4, scratch=1)
    waits = [op.waits for op in schedule]
    assert waits == [(), (0,), (0,), (1, 2), (3,), (3,), (3,), (5, 6), (), (7,)]
    assert schedule.round.tolist() == [0, 1, 1, 2, 3, 3, 3, 4, 0, 5]


def test_scratch_to_scratch_and_several_places_at_once() -> None:
    def broadcast(program: Program) -> None:
        program.copy(0, 0, 1, program.scratch, length=3)
        program.copy(1, program.scratch, 2, program.scratch, length=3)
        program.copy(1, program.scratch, 1, 0, length=3)
        program.copy(2, program.scratch, 2, 0, length=3)

    # 10 bytes in three chunks: 4, 4, 2
    collective = Collective("broadcast", 10, dtype="uint8", root=0)
    schedule = from_function(collective, 3, broadcast, parts=3, scratch=3)
    verify(schedule, collective)
    assert schedule.nbytes.tolist() == [10, 10, 10, 10]
    assert schedule.sent().tolist() == [10, 10, 0]


def test_a_switch_sums_and_sends_to_all() -> None:
    def through_the_switch(program: Program) -> None:
        switch, n = program.n, program.n
        for rank in range(n):
            program.reduce(rank, 0, switch, program.scratch)
        for rank in range(n):
            program.copy(switch, program.scratch, rank, 0)

    collective = Collective("all_reduce", 8)
    schedule = from_function(collective, 3, through_the_switch, scratch=1, switches=1)
    verify(schedule, collective)
    assert schedule.sent().tolist() == [8, 8, 8, 24]


def test_an_all_to_all_has_places_of_its_own_for_what_comes() -> None:
    def exchange(program: Program) -> None:
        for giver in range(program.n):
            for taker in range(program.n):
                program.copy(giver, taker, taker, program.chunks.output + giver)

    collective = Collective("all_to_all", 12)
    schedule = from_function(collective, 3, exchange)
    verify(schedule, collective)
    assert schedule.round.tolist() == [0] * 9


def forgets_a_rank(program: Program) -> None:
    program.reduce(1, 0, 0)
    program.reduce(2, 0, 0)
    program.copy(0, 0, 1)


def counts_a_rank_twice(program: Program) -> None:
    program.reduce(1, 0, 0)
    program.reduce(1, 0, 2)
    program.reduce(2, 0, 0)
    for rank in (1, 2):
        program.copy(0, 0, rank)


def copies_before_it_sums(program: Program) -> None:
    program.reduce(1, 0, 0)
    for rank in (1, 2):
        program.copy(0, 0, rank)
    program.reduce(2, 0, 0)


def reads_empty_scratch(program: Program) -> None:
    program.copy(1, program.scratch, 0, program.scratch)


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (forgets_a_rank, "rank 2: place 0 does not end with its chunk"),
        (counts_a_rank_twice, "op 2 .* adds a contribution twice to place 0 of rank 0"),
        (copies_before_it_sums, "op 3 .* adds a contribution twice to place 0 of rank 0"),
        (reads_empty_scratch, "op 0 .* reads place 1 of rank 1, where nothing is yet"),
    ],
)
def test_a_wrong_function_is_found_out(function: Callable[[Program], None], problem: str) -> None:
    collective = Collective("all_reduce", 8)
    schedule = from_function(collective, 3, function, scratch=1)
    with pytest.raises(ScheduleError, match=problem):
        verify(schedule, collective)


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda p: p.copy(3, 0, 1), r"op 0: copy\(3, 0, 1, None\): source: expected 0 to 2, got 3"),
        (lambda p: p.copy(0, 0, -1), "destination: expected 0 to 2, got -1"),
        (lambda p: p.reduce(0, 3, 1), r"reduce\(.*source place: expected 0 to 2, got 3"),
        (lambda p: p.copy(0, 0, 1, 9), "destination place: expected 0 to 2, got 9"),
        (lambda p: p.copy(0, 2, 1, length=2), "source place: expected 0 to 1, got 2"),
        (lambda p: p.copy(0, 0, 1, length=0), "length: expected 1 to 3, got 0"),
        (lambda p: p.copy(0, 0, 1, channel=2), "channel: expected 0 to 1, got 2"),
        (lambda p: p.copy(0, 0, 1, after=[0]), "after: expected none, as there is none, got 0"),
        (lambda p: p.copy(0, "a", 1), "source place: expected 0 to 2, got 'a'"),
        (lambda p: p.copy(0, 1, 0), "its source and destination overlap"),
        (lambda p: p.copy(0, 0, 0, 1, length=2), "its source and destination overlap"),
    ],
)
def test_what_is_not_there_is_named(call: Callable[[Program], int], problem: str) -> None:
    with pytest.raises(ScheduleError, match=problem):
        from_function(Collective("all_reduce", 8), 3, call, channels=2, parts=2, scratch=1)


def test_there_must_be_a_channel_and_no_negative_scratch() -> None:
    collective = Collective("all_reduce", 8)
    with pytest.raises(ScheduleError, match="channels: expected at least 1, got 0"):
        from_function(collective, 2, lambda p: None, channels=0)
    with pytest.raises(ScheduleError, match="scratch: expected at least 0, got -1"):
        from_function(collective, 2, lambda p: None, scratch=-1)


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_any_tree_sums_and_sends_back(data: st.DataObject) -> None:
    n = data.draw(st.integers(2, 9), "ranks")
    order = data.draw(st.permutations(range(n)), "order")
    parents = [order[data.draw(st.integers(0, k), "parent")] for k in range(n - 1)]
    collective = Collective("all_reduce", 8)
    verify(from_function(collective, n, all_reduce_by_tree(order, parents)), collective)


def test_who_writes_again_on_another_channel_is_told_first() -> None:
    """Rank 0 broadcasts its place to 1, and once more. On one channel the second copy comes after
    the first; on another it may overtake it, and that the first has left tells rank 0 nothing.
    """

    def twice(program: Program) -> None:
        program.copy(0, 0, 1)
        program.copy(0, 0, 1, channel=program.channels - 1)

    collective = Collective("broadcast", 8, root=0)
    one, two = (from_function(collective, 2, twice, channels=c) for c in (1, 2))
    verify(one, collective)
    verify(two, collective)
    assert [(op.source, op.destination, op.nbytes, op.waits) for op in one] == [
        (0, 1, 8, ()),
        (0, 1, 8, (0,)),
    ]
    assert [(op.source, op.destination, op.nbytes, op.waits) for op in two] == [
        (0, 1, 8, ()),
        (1, 0, 0, (0,)),
        (0, 1, 8, (1,)),
    ]
    # Said by hand, without it: refused.
    unsaid = Program(cut(collective, 2), channels=2, automatic=False)
    unsaid.copy(0, 0, 1, channel=1, after=[unsaid.copy(0, 0, 1)])
    assert "without waiting" in complaint(unsaid.build(), collective)


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_no_function_can_write_a_race(data: st.DataObject) -> None:
    n, places = 3, 3
    collective = Collective("all_reduce", 8)
    rank, place = st.integers(0, n - 1), st.integers(0, places - 1)
    calls = data.draw(
        st.lists(
            st.tuples(st.booleans(), rank, place, rank, place, st.integers(0, 1)), max_size=12
        ),
        "calls",
    )

    def function(program: Program) -> None:
        for reduces, source, source_place, destination, destination_place, channel in calls:
            if (source, source_place) != (destination, destination_place):
                call = program.reduce if reduces else program.copy
                call(source, source_place, destination, destination_place, channel=channel)

    schedule = from_function(collective, n, function, parts=2, scratch=1, channels=2)
    # It may compute something else, but the same in any timing.
    assert "without waiting" not in complaint(schedule, collective)
    for op in schedule:  # and waits for nothing that shares no place with it
        if not op.pieces or not all(schedule[w].pieces for w in op.waits):
            continue  # it only says that another has arrived
        cells = {(op.source, op.pieces[0].source_place)}
        cells.add((op.destination, op.pieces[0].destination_place))
        for w in op.waits:
            other = schedule[w]
            assert cells & {
                (other.source, other.pieces[0].source_place),
                (other.destination, other.pieces[0].destination_place),
            }
