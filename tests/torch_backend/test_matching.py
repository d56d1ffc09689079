"""Who meets whom."""

from __future__ import annotations

from commsim.torch_backend.matching import Collectives, Messages
from commsim.torch_backend.records import Call, Group

WORLD = Group(name="0", ranks=(0, 1, 2))


def collective(rank: int, operation: str = "all_reduce", *counts: int, **more: object) -> Call:
    return Call(
        rank=rank, function=operation, operation=operation, group=WORLD, counts=counts, **more
    )  # type: ignore[arg-type]  # fmt: skip


def message(rank: int, operation: str, peer: int | None, count: int = 1, tag: int = 0) -> Call:
    return Call(
        rank=rank, function=operation, operation=operation, group=WORLD, counts=(count,), peer=peer,
        tag=tag,
    )  # fmt: skip


def post(table: Collectives | Messages, call: Call, ready: float = 0.0) -> tuple:
    return table.post(call, ready, (), lambda _: None)


def test_collectives_meet_in_the_order_of_their_calls() -> None:
    table = Collectives(frozenset({0, 1, 2}))
    first, complete = post(table, collective(0, "all_reduce", 4))
    assert not complete
    second, _ = post(table, collective(0, "broadcast", 4))
    assert second.operation is not first.operation
    for rank in (1, 2):
        last, complete = post(table, collective(rank, "all_reduce", 4))
    assert complete
    assert last.operation is first.operation
    assert [p.call.rank for p in last.operation.in_order] == [0, 1, 2]
    assert table.incomplete() == (second.operation,)


def test_a_call_that_differs_never_completes() -> None:
    table = Collectives(frozenset({0, 1, 2}))
    post(table, collective(0, "all_reduce", 4))
    post(table, collective(1, "all_reduce", 5))
    last, complete = post(table, collective(2, "all_reduce", 4))
    assert not complete
    assert last.operation.mismatched


def test_ranks_that_are_not_simulated_are_not_waited_for() -> None:
    table = Collectives(frozenset({1}))
    _, complete = post(table, collective(1, "all_reduce", 4))
    assert complete


def test_splits_are_compared_pair_by_pair() -> None:
    def call(rank: int, splits: tuple[int, ...], expects: tuple[int, ...]) -> Call:
        return collective(rank, "all_to_all", splits=splits, expects=expects)

    # bytes from row to column
    rows = ((1, 2, 3), (4, 5, 6), (7, 8, 9))
    columns = tuple(zip(*rows, strict=True))
    table = Collectives(frozenset({0, 1, 2}))
    for rank in range(3):
        last, complete = post(table, call(rank, rows[rank], columns[rank]))
    assert complete
    table = Collectives(frozenset({0, 1, 2}))
    for rank in range(3):
        last, complete = post(table, call(rank, rows[rank], rows[rank]))
    assert not complete
    assert last.operation.mismatched


def test_messages_meet_by_peer_and_tag_in_order() -> None:
    table = Messages()
    first, _ = post(table, message(0, "send", 1))
    second, _ = post(table, message(0, "send", 1, tag=3))
    other, met = post(table, message(1, "recv", 2))
    assert not met
    received, met = post(table, message(1, "recv", 0, tag=3))
    assert met
    assert received.operation is second.operation
    received, met = post(table, message(1, "recv", 0))
    assert met
    assert received.operation is first.operation
    assert list(table.unmet()) == [other]


def test_a_message_and_a_buffer_of_other_sizes_do_not_meet() -> None:
    table = Messages()
    post(table, message(0, "send", 1, count=8))
    _, met = post(table, message(1, "recv", 0, count=4))
    assert not met
    assert len(table.mismatched) == 1


def test_a_receive_from_any_rank_takes_the_earliest_send() -> None:
    table = Messages()
    receive, _ = post(table, message(0, "recv", None), ready=0.0)
    assert table.settle() is None
    post(table, message(1, "send", 0), ready=5.0)
    early, _ = post(table, message(2, "send", 0), ready=4.0)
    assert table.settle() is receive
    assert receive.operation is early.operation
    assert [p.call.rank for p in table.unmet()] == [1]
