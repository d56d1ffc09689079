from __future__ import annotations

import pytest

from commsim.collectives.algorithms.pat import Pat
from commsim.collectives.collective import Collective
from commsim.collectives.verify import verify
from commsim.engine import compiled
from commsim.engine.ideal import Ports
from commsim.engine.network import lay
from commsim.engine.plan import make_plan, punctual
from commsim.errors import CollectiveError


def messages(pat: Pat, operation: str, n: int) -> list[tuple[int, int]]:
    """How far rank 0's messages go, and how many blocks they hold."""
    schedule = pat.schedule(Collective(operation, n, dtype="uint8"), n)
    return [(op.destination, op.nbytes) for op in schedule if op.source == 0]


def test_all_gather_starts_far_away_and_ends_at_the_neighbours() -> None:
    # Jeaugey 2025: log2 n messages, 1 block half way round, then 2, 4, ...
    assert messages(Pat(), "all_gather", 16) == [(8, 1), (4, 2), (2, 4), (1, 8)]
    assert messages(Pat(), "reduce_scatter", 16) == [(15, 8), (14, 4), (12, 2), (8, 1)]
    # To 4 ranks away go the blocks of offset 4 only, as 12 is beyond the last of 11; then 2, 6, 10.
    assert messages(Pat(), "all_gather", 11) == [(8, 1), (4, 1), (2, 3), (1, 5)]


def test_trees_are_walked_side_by_side() -> None:
    # Two trees of 8: the second starts 8 ranks away; then each rank passes two blocks at a time on
    # to its branches 1, 2, 3 (a branch of 2), 4, 5, 6 (branches of 4) and 7 (a branch of 6).
    linear = [(1, 2), (2, 2), (1, 2), (4, 2), (1, 2), (2, 2), (1, 2)]
    assert messages(Pat(aggregation=2), "all_gather", 16) == [(8, 1), *linear]
    assert messages(Pat(aggregation=1), "all_gather", 5) == [(1, 1), (2, 1), (1, 1), (4, 1)]


@pytest.mark.parametrize("operation", ["all_gather", "reduce_scatter"])
@pytest.mark.parametrize(
    ("n", "aggregation", "rounds"),
    # All at once: log2 n. In trees of 8 the messages 1, 3, 5 and 7 wait for the one just before.
    [(16, None, 4), (16, 8, 4), (16, 2, 1 + 4), (17, 2, 1 + 8), (5, 1, 2), (6, None, 3)],
)
def test_rounds_and_bytes(operation: str, n: int, aggregation: int | None, rounds: int) -> None:
    pat = Pat(aggregation=aggregation)
    collective = Collective(operation, n * 1000, dtype="uint8")
    cost = pat.cost(collective, n)
    assert (cost.rounds, cost.nbytes) == (rounds, (n - 1) * 1000)
    schedule = pat.schedule(collective, n)
    verify(schedule, collective)
    assert set(schedule.sent()) == {(n - 1) * 1000}
    for latency in (1e-9, 1e-6, 1e-3):
        network = Ports(n=n, bandwidth=1e9, latency=latency)
        times = compiled.play(make_plan([punctual(lay(schedule, network))], network.capacity))
        assert times.arrived.max() == pytest.approx(cost.duration(latency, 1e9), rel=1e-9)


def test_aggregation_is_a_power_of_two() -> None:
    with pytest.raises(CollectiveError, match="power of two, got 3"):
        Pat(aggregation=3)
