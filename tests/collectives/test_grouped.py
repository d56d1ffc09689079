from __future__ import annotations

import pytest

from commsim.collectives.algorithms.grouped import Grouped
from commsim.collectives.collective import Collective
from commsim.collectives.verify import verify
from commsim.errors import CollectiveError


@pytest.mark.parametrize(
    ("operation", "window", "rounds"),
    # 15 peers: 8 and 7; 4, 4, 4 and 3; one by one. A scatter's root waits for no arrival.
    [
        ("all_to_all", 8, 2),
        ("all_to_all", 4, 4),
        ("all_to_all", 1, 15),
        ("gather", 4, 4),
        ("scatter", 4, 1),
    ],
)
def test_rounds_and_bytes_on_sixteen_ranks(operation: str, window: int, rounds: int) -> None:
    collective = Collective(operation, 1024)
    cost = Grouped(window=window).cost(collective, 16)
    assert (cost.rounds, cost.nbytes) == (rounds, 15 * 64)
    schedule = Grouped(window=window).schedule(collective, 16)
    verify(schedule, collective)
    assert max(schedule.sent().max(), schedule.received().max()) == 15 * 64


def test_a_rank_goes_on_to_its_next_peer_when_through_with_one() -> None:
    schedule = Grouped(window=3).schedule(Collective("all_to_all", 7 * 4), 7, 2)
    for op in schedule:
        distance = (op.destination - op.source) % 7
        waited = {(schedule[w].source, schedule[w].destination) for w in op.waits}
        assert {schedule[w].channel for w in op.waits} <= {op.channel}
        if distance < 3:
            assert not waited
        else:  # its own send three peers ago, and the receive that went with it
            assert waited == {
                (op.source, (op.source + distance - 3) % 7),
                ((op.source - distance + 3) % 7, op.source),
            }


def test_a_window_holds_someone() -> None:
    with pytest.raises(CollectiveError, match="window"):
        Grouped(window=0)


def test_a_rank_goes_round_its_own_machine_then_round_the_next() -> None:
    schedule = Grouped(group=4).schedule(Collective("all_to_all", 12 * 4), 12)
    assert [op.destination for op in schedule if op.source == 6] == [
        6, 7, 4, 5, 10, 11, 8, 9, 2, 3, 0, 1,
    ]  # fmt: skip
    verify(schedule, Collective("all_to_all", 12 * 4))


def test_machines_that_differ_in_size_are_one() -> None:
    schedule = Grouped(group=5).schedule(Collective("all_to_all", 12 * 4), 12)
    assert [op.destination for op in schedule if op.source == 6] == [*range(6, 12), *range(6)]
