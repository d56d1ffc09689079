"""Virtual time by hand, in s: launches of 1, kernels and operations of a few."""

from __future__ import annotations

from commsim.torch_backend.clock import Clock, Lane, Mark
from commsim.torch_backend.records import Call, Group, Operation, Post

GROUP = Group(name="0", ranks=(0, 1))


def post(start: float, end: float) -> Post:
    """A rank's part of an all_reduce that takes place then."""
    operation = Operation(group=GROUP, move=lambda _: None, start=start, end=end, matched=True)
    call = Call(rank=0, function="all_reduce", operation="all_reduce", group=GROUP)
    return Post(call=call, ready=start, buffers=(), operation=operation)


def test_a_host_runs_ahead_of_its_stream() -> None:
    clock = Clock()
    for _ in range(3):
        clock.compute("matmul", 5.0, launch=1.0, keep=True)
    # launched at 1, 2, 3; run from 1 to 6, 6 to 11, 11 to 16
    assert (clock.host, clock.default.time, clock.busy) == (3.0, 16.0, 15.0)
    assert [(s.start, s.end) for s in clock.spans] == [(1.0, 6.0), (6.0, 11.0), (11.0, 16.0)]
    clock.synchronize()
    assert clock.host == 16.0


def test_short_kernels_wait_for_their_launch() -> None:
    clock = Clock()
    for _ in range(3):
        clock.compute("add", 0.5, launch=1.0, keep=False)
    assert (clock.host, clock.default.time) == (3.0, 3.5)


def test_a_wait_is_exposed_only_where_the_stream_stands_still() -> None:
    clock, operation = Clock(), post(2.0, 9.0)
    clock.compute("matmul", 4.0, launch=0.0, keep=False)
    clock.hold(clock.current, Mark(9.0, operation))
    # computed until 4, then nothing until 9; the operation had begun
    assert (clock.exposed, operation.exposed, operation.awaiting_others) == (5.0, 5.0, 0.0)
    clock.compute("matmul", 4.0, launch=0.0, keep=False)
    clock.hold(clock.current, Mark(9.0, operation))
    assert clock.exposed == 5.0


def test_what_was_spent_waiting_for_others_is_told_apart() -> None:
    clock, operation = Clock(), post(6.0, 9.0)
    clock.hold(clock.current, Mark(9.0, operation))
    assert (operation.exposed, operation.awaiting_others) == (9.0, 6.0)


def test_streams_beside_the_compute_stream_hide_communication() -> None:
    clock, operation, side = Clock(), post(0.0, 9.0), Lane("side")
    clock.current = side
    clock.hold(side, Mark(9.0, operation))
    clock.current = clock.default
    clock.compute("matmul", 7.0, launch=0.0, keep=False)
    assert clock.exposed == 0.0
    clock.hold(clock.default, Mark(side.time, side.cause))  # 7 to 9
    assert (clock.exposed, operation.exposed) == (2.0, 2.0)


def test_a_queue_tells_what_is_to_end_before() -> None:
    clock, first, second = Clock(), post(0.0, 4.0).operation, post(4.0, 5.0).operation
    assert clock.follow("out", first) is None
    assert clock.follow(GROUP, first) is None
    assert clock.follow("out", second) is first
    assert clock.follow("in", second) is None
