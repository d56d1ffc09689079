from __future__ import annotations

import pytest

from commsim.collectives.algorithms.bruck import Bruck
from commsim.collectives.collective import Collective


@pytest.mark.parametrize(
    ("operation", "n", "rounds", "blocks"),
    # Bruck et al. 1997: ceil(lg n) rounds; n - 1 blocks in all_gather, and n/2 lg n in all_to_all
    # if n is a power of two. The distances 1 to 4 have 1 + 1 + 2 + 1 one bits.
    [
        ("all_gather", 8, 3, 7),
        ("all_gather", 5, 3, 4),
        ("all_to_all", 8, 3, 12),
        ("all_to_all", 5, 3, 5),
    ],
)
def test_rounds_and_bytes(operation: str, n: int, rounds: int, blocks: int) -> None:
    collective = Collective(operation, 80 * n)
    cost = Bruck().cost(collective, n)
    assert (cost.rounds, cost.nbytes) == (rounds, blocks * 80)
    schedule = Bruck().schedule(collective, n)
    assert set(schedule.sent()) == set(schedule.received()) == {blocks * 80}
    assert int(schedule.round.max()) + 1 == rounds


def test_a_block_takes_the_hops_of_its_distance() -> None:
    # Rank p gives rank q 1 byte, but rank 2 gives rank 7, five ahead, 100 more: by way of rank 3.
    splits = [[100 * (p == 2 and q == 7) + 1 for q in range(8)] for p in range(8)]
    schedule = Bruck().schedule(Collective.uneven(splits, dtype="uint8"), 8)
    heavy = [(op.source, op.destination, op.round) for op in schedule if op.nbytes > 100]
    assert heavy == [(2, 3, 0), (3, 7, 2)]


def test_an_uneven_all_to_all_costs_its_heaviest_message_in_each_round() -> None:
    splits = [[0, 10, 7], [1, 0, 10], [10, 1, 0]]  # to the next: 10 each; to the one after: 7, 1, 1
    cost = Bruck().cost(Collective.uneven(splits, dtype="uint8"), 3)
    assert (cost.rounds, cost.nbytes) == (2, 10 + 7)
