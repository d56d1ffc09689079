from __future__ import annotations

import pytest

from commsim.collectives.algorithms.recursive_doubling import RecursiveDoubling
from commsim.collectives.collective import Collective


@pytest.mark.parametrize(("n", "rounds"), [(2, 1), (8, 3), (9, 5), (16, 4)])
def test_rounds_and_bytes(n: int, rounds: int) -> None:
    # Thakur et al. 2005: lg p rounds of the whole buffer, 2 more off powers of two.
    collective = Collective("all_reduce", 1024)
    cost = RecursiveDoubling().cost(collective, n)
    assert (cost.rounds, cost.nbytes) == (rounds, rounds * 1024)
    schedule = RecursiveDoubling().schedule(collective, n)
    assert int(schedule.sent().max()) == (rounds - 1 if n == 9 else rounds) * 1024
