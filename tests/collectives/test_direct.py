from __future__ import annotations

import pytest

from commsim.collectives.algorithms.direct import Direct
from commsim.collectives.collective import Collective


@pytest.mark.parametrize(
    ("operation", "rounds", "moved"),
    [
        ("all_reduce", 2, 1792),  # 2 (n-1)/n of 1024
        ("all_gather", 1, 896),
        ("reduce_scatter", 1, 896),
        ("all_to_all", 1, 896),
        ("gather", 1, 896),
        ("scatter", 1, 896),
    ],
)
def test_rounds_and_bytes_on_eight_ranks(operation: str, rounds: int, moved: int) -> None:
    collective = Collective(operation, 1024)
    cost = Direct().cost(collective, 8)
    assert (cost.rounds, cost.nbytes) == (rounds, moved)
    schedule = Direct().schedule(collective, 8)
    assert max(schedule.sent().max(), schedule.received().max()) == moved
