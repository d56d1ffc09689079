from __future__ import annotations

from commsim.collectives.algorithms.pairwise import Pairwise
from commsim.collectives.collective import Collective


def test_rounds_and_bytes_on_eight_ranks() -> None:
    # Thakur et al. 2005: p - 1 rounds, (p - 1) / p of the buffer.
    collective = Collective("all_to_all", 1024)
    cost = Pairwise().cost(collective, 8)
    assert (cost.rounds, cost.nbytes) == (7, 896)
    schedule = Pairwise().schedule(collective, 8)
    assert set(schedule.sent()) == set(schedule.received()) == {896}
    for each in range(8):
        now = schedule.round == each
        assert sorted(schedule.destination[now]) == list(range(8))
