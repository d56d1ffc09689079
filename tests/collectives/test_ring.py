from __future__ import annotations

from time import process_time

import pytest

from commsim.collectives.algorithms.ring import Ring
from commsim.collectives.collective import Collective
from commsim.collectives.verify import verify


@pytest.mark.parametrize(
    ("operation", "rounds", "sent"),
    # Patarasuk and Yuan 2009: 2 (n-1)/n of the buffer in 2 (n-1) rounds; each phase half of it.
    [("all_reduce", 14, 1792), ("all_gather", 7, 896), ("reduce_scatter", 7, 896)],
)
def test_rounds_and_bytes_on_eight_ranks(operation: str, rounds: int, sent: int) -> None:
    collective = Collective(operation, 1024)
    schedule = Ring().schedule(collective, 8)
    assert set(schedule.sent()) == set(schedule.received()) == {sent}
    assert int(schedule.round.max()) + 1 == rounds
    cost = Ring().cost(collective, 8)
    assert cost.duration(latency=1e-6, bandwidth=1e9) == pytest.approx(rounds * 1e-6 + sent / 1e9)


def test_odd_channels_run_backwards() -> None:
    collective = Collective("all_reduce", 1024)
    schedule = Ring(both_ways=True).schedule(collective, 5, 2)
    verify(schedule, collective)
    for op in schedule:
        assert op.destination == (op.source + (-1 if op.channel else 1)) % 5


def test_256_ranks_are_proved_in_about_a_second() -> None:
    collective = Collective("all_reduce", 1 << 20)
    schedule = Ring().schedule(collective, 256)
    start = process_time()
    verify(schedule, collective)
    assert process_time() - start < 4  # 1 s on an idle core; the margin is for a busy one


def test_every_channel_may_have_an_order_of_its_own() -> None:
    ring = Ring(orders=((0, 2, 1, 3), (3, 1, 0, 2)))
    for operation in ("all_reduce", "all_gather", "reduce_scatter"):
        collective = Collective(operation, 1000)
        schedule = ring.schedule(collective, 4, 4)
        verify(schedule, collective)
        pairs = {(op.channel, op.source, op.destination) for op in schedule}
        assert (0, 0, 2) in pairs and (3, 3, 1) in pairs and (1, 2, 3) in pairs
        assert len(pairs) == 4 * 4
