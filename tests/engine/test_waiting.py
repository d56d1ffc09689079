"""Where ranks' time goes, by hand on chains; and that it is all there, on anything."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings

from commsim.engine.timeline import Timeline
from commsim.engine.waiting import RankTime, split_time
from commsim.errors import ConditionError
from tests.engine.timelines import MB, MS, US, chain, played, ports, timelines

HOP = 1 * MS + 3 * US  # of 1 MB


def split(found: Timeline, punctual: Timeline) -> dict[int, RankTime]:
    return {r.rank: r for r in split_time(found.played[0], punctual.played[0])}


def test_who_waits_for_whose_sake() -> None:
    """Rank 0 comes 4 ms late; rank 2 of the chain would have waited a hop in any case."""
    punctual = played(chain(), network=ports(3))
    ranks = split(played(chain(), network=ports(3), late={0: 4 * MS}), punctual)
    assert ranks[0].arrival == pytest.approx(4 * MS)
    assert ranks[0].end == pytest.approx(5 * MS)  # a sender is through when the data has left
    assert ranks[0].transferring == pytest.approx(1 * MS)
    assert ranks[0].late == ranks[0].waiting == 0
    assert ranks[1].end == pytest.approx(4 * MS + HOP + 1 * MS)
    assert ranks[1].transferring == pytest.approx(HOP + 1 * MS)
    assert ranks[1].late == pytest.approx(4 * MS)
    assert ranks[1].waiting == pytest.approx(0, abs=1e-12)
    assert ranks[2].transferring == pytest.approx(HOP)
    assert ranks[2].late == pytest.approx(4 * MS)
    assert ranks[2].waiting == pytest.approx(HOP)


def test_who_never_ends() -> None:
    punctual = played(chain(), network=ports(3))
    dead = played(chain(), network=ports(3), deaths={1: 0.0})
    ranks = split(dead, punctual)
    assert math.isinf(ranks[2].late)
    assert ranks[2].waiting == pytest.approx(HOP)
    again = split(dead, dead)  # it would not have ended anyhow
    assert again[2].late == 0
    assert math.isinf(again[2].waiting)


def test_two_collectives_cannot_be_compared() -> None:
    with pytest.raises(ConditionError, match="one collective played twice"):
        split(played(chain(), network=ports(3)), played(chain(MB, 4), network=ports(4)))


@settings(max_examples=100, deadline=None)
@given(found=timelines(), punctual=timelines())
def test_the_parts_fill_the_time(found: Timeline, punctual: Timeline) -> None:
    each = found.played[0]
    # A rank's own transfers, moment by moment: a check of `transferring` that knows no sorting.
    schedule, times = each.laid.schedule, each.times
    for v in range(schedule.vertices):
        stretches = [
            (float(times.ready[o.index]), float(over[o.index]))
            for o in schedule
            for end, over in ((o.source, times.sent), (o.destination, times.arrived))
            if end == v and o.source != o.destination
        ]
        marks = sorted({t for s in stretches for t in s})
        busy = sum(
            b - a
            for a, b in itertools.pairwise(marks)
            if any(begin <= a and b <= end for begin, end in stretches)
        )
        assert each.transferring[v] == pytest.approx(busy, rel=1e-9, abs=1e-13)
    other = punctual.played[0]
    if each.ranks == other.ranks and (other.taking_part | ~each.taking_part)[: each.n].all():
        for r in split_time(each, punctual.played[0]):
            parts = r.transferring + r.late + r.waiting
            assert parts == pytest.approx(r.end - r.arrival, rel=1e-9, abs=1e-13)
            assert min(r.transferring, r.late, r.waiting) >= 0
