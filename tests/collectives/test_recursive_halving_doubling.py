from __future__ import annotations

import pytest

from commsim.collectives.algorithms.recursive_halving_doubling import RecursiveHalvingDoubling
from commsim.collectives.collective import Collective


@pytest.mark.parametrize(
    ("operation", "rounds", "sent"),
    # Thakur et al. 2005: 2 lg p rounds, 2 (p-1)/p of the buffer; each phase half of both.
    [("all_reduce", 6, 1792), ("reduce_scatter", 3, 896), ("all_gather", 3, 896)],
)
def test_rounds_and_bytes_on_eight_ranks(operation: str, rounds: int, sent: int) -> None:
    collective = Collective(operation, 1024)
    cost = RecursiveHalvingDoubling().cost(collective, 8)
    assert (cost.rounds, cost.nbytes, cost.exact) == (rounds, sent, True)
    schedule = RecursiveHalvingDoubling().schedule(collective, 8)
    assert set(schedule.sent()) == set(schedule.received()) == {sent}


@pytest.mark.parametrize(
    ("operation", "rounds", "sixths"),
    # Ranks 4 and 5 fold into 0 and 1. all_reduce: the buffer, its half and quarter among four
    # ranks, the same backwards. reduce_scatter: 6 blocks, then the 4 and the 2 that rank 0 stands
    # for, then 1. all_gather: 1 block, the 2 and the 4 that it stands for, then the 5 others.
    [("all_reduce", 6, 6 * 3.5), ("reduce_scatter", 4, 13), ("all_gather", 4, 12)],
)
def test_rounds_and_bytes_on_six_ranks(operation: str, rounds: int, sixths: float) -> None:
    collective = Collective(operation, 3072)
    cost = RecursiveHalvingDoubling().cost(collective, 6)
    assert (cost.rounds, cost.nbytes) == (rounds, sixths * 512)
    assert cost.exact == (operation != "all_gather")


def test_halves_go_far_first_and_grow_back_from_near() -> None:
    schedule = RecursiveHalvingDoubling().schedule(Collective("all_reduce", 1024), 8)
    moves = [(op.destination, op.nbytes) for op in schedule if op.source == 5]
    assert moves == [(1, 512), (7, 256), (4, 128), (4, 128), (7, 256), (1, 512)]
