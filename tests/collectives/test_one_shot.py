from __future__ import annotations

import pytest

from commsim.collectives.algorithms.one_shot import OneShot
from commsim.collectives.collective import Collective


@pytest.mark.parametrize("operation", ["all_reduce", "broadcast", "reduce"])
def test_one_round_of_seven_buffers_on_eight_ranks(operation: str) -> None:
    collective = Collective(operation, 1024, root=None if operation == "all_reduce" else 5)
    cost = OneShot().cost(collective, 8)
    assert (cost.rounds, cost.nbytes) == (1, 7 * 1024)
    schedule = OneShot().schedule(collective, 8)
    assert max(schedule.sent().max(), schedule.received().max()) == 7 * 1024
    for op in schedule:  # nothing that crosses a link waits
        assert op.source == op.destination or not op.waits


def test_every_rank_sums_what_came_by_itself() -> None:
    schedule = OneShot().schedule(Collective("all_reduce", 12), 4)
    sums = [op for op in schedule if op.reduces]
    assert [(op.source, op.destination, op.nbytes) for op in sums] == [
        (p, p, 3 * 12) for p in range(4)
    ]
