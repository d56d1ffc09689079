from __future__ import annotations

from time import process_time

import pytest

from commsim.collectives.algorithms.ring import Ring
from commsim.collectives.collective import Collective
from commsim.collectives.verify import verify
from commsim.errors import CollectiveError


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
        assert {(0, 0, 2), (3, 3, 1), (1, 2, 3)} <= pairs
        assert len(pairs) == 4 * 4


@pytest.mark.parametrize("n", [2, 3, 5, 8])
def test_pieces_and_slots_keep_it_a_ring(n: int) -> None:
    for operation in ("all_reduce", "all_gather", "reduce_scatter"):
        collective = Collective(operation, 1000)
        whole = Ring().schedule(collective, n, 2)
        for ring in (Ring(pieces=3), Ring(pieces=3, slots=4), Ring(pieces=2, slots=8)):
            schedule = ring.schedule(collective, n, 2)
            verify(schedule, collective)
            assert schedule.sent().tolist() == pytest.approx(whole.sent().tolist(), abs=4 * 6 * n)
            # No rank is more than `slots` pieces ahead of what the next has passed on.
            if ring.slots:
                for op in schedule:
                    mine = [
                        o for o in schedule if o.source == op.source and o.channel == op.channel
                    ]
                    if mine.index(op) >= ring.slots:
                        assert any(schedule[w].source == op.destination for w in op.waits)


def test_a_period_stands_for_the_whole_ring() -> None:
    collective = Collective("all_reduce", 1 << 12)
    whole, part = (Ring(period=p).schedule(collective, 8) for p in (0, 2))
    assert len(part) * 4 == len(whole)
    assert set(part.source) == {0, 1}
    for op in part:
        assert all(part[w].round == op.round - 1 for w in op.waits)
        assert len(op.waits) == (2 if op.round else 0)
    with pytest.raises(CollectiveError, match="divisor of 8"):
        Ring(period=3).schedule(collective, 8)
