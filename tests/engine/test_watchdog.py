"""Who reports a time-out, when, and what is named as the cause."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from commsim.collectives.algorithms.ring import Ring
from commsim.collectives.collective import Collective
from commsim.collectives.program import Program, from_function
from commsim.engine.plan import Change
from commsim.engine.timeline import Timeline
from commsim.engine.watchdog import Report
from tests.engine.timelines import MB, MS, US, chain, played, ports, timelines

# Round k is ops 4 k to 4 k + 3; op 4 k + r goes from rank r to r + 1 and takes 1 ms.
RING = Ring().schedule(Collective("all_gather", 4 * MB, dtype="uint8"), 4)


def reports(found: Timeline) -> dict[int, Report]:
    return {r.rank: r for r in found.watchdog[0]}


def test_a_dead_rank_is_waited_for_around_the_ring() -> None:
    """Without rank 2, ranks 1 and 3 wait for it, and rank 0 in the second round for rank 3."""
    found = played(RING, network=ports(4), launch=10 * US, late={3: 1.0}, deaths={2: 0.0})
    assert found.stalled
    by_rank = reports(found)
    assert [r.rank for r in found.watchdog[0]] == [0, 1, 3]  # in the order of time; 2 is dead
    assert by_rank[0].time == pytest.approx(600 + 10 * US)
    assert by_rank[3].time == pytest.approx(601 + 10 * US)
    assert {r: (b.waits_for, b.op, b.nbytes, b.channel) for r, b in by_rank.items()} == {
        0: (3, 7, MB, 0),
        1: (2, 1, MB, 0),
        3: (2, 2, MB, 0),
    }
    assert {r: b.chain for r, b in by_rank.items()} == {0: (0, 3, 2), 1: (1, 2), 3: (3, 2)}
    assert {(b.cause.kind, b.cause.who, b.cause.time) for b in by_rank.values()} == {("dead", 2, 0)}
    assert str(by_rank[0]) == (
        "[rank 0] Watchdog caught collective operation timeout: all_gather of 3.815 MiB ran for "
        "600 s: rank 0 waits for rank 3 (op 7: 976.6 KiB, channel 0). Chain: 0 -> 3 -> 2. "
        "Cause: rank 2 died at 0 us"
    )


def test_a_failed_link_makes_its_ends_wait_for_each_other() -> None:
    """It fails while op 2 crosses it; rank 1 is stopped last, in the third round."""
    failure = Change(time=0.5 * MS, link=2, capacity=0.0)
    found = played(RING, network=ports(4), changes=(failure,))
    assert found.network.links[2] == "rank2 -> switch"
    by_rank = reports(found)
    assert {r: (b.waits_for, b.op) for r, b in by_rank.items()} == {
        0: (3, 7),
        1: (0, 8),
        2: (3, 2),
        3: (2, 2),
    }
    assert by_rank[1].chain == (1, 0, 3, 2, 3)
    assert by_rank[2].chain == (2, 3, 2)
    for report in by_rank.values():
        assert report.cause.kind == "link"
        assert report.cause.op == 2
        assert str(report.cause) == "link rank2 -> switch failed at 500 us"


def test_a_mended_link_is_no_cause() -> None:
    """It works again after 700 s: late enough for the watchdogs, which name it all the same."""
    failure = Change(time=0.5 * MS, link=2, capacity=0.0)
    mended = Change(time=700.0, link=2, capacity=1e9)
    found = played(RING, network=ports(4), changes=(failure, mended))
    assert not found.stalled
    assert {r.cause.kind for r in found.watchdog[0]} == {"link"}
    patient = played(RING, network=ports(4), changes=(failure, mended), watchdog=701.0)
    assert patient.watchdog == ((),)


def test_a_rank_that_comes_too_late() -> None:
    found = played(RING, network=ports(4), late={3: 700.0})
    by_rank = reports(found)
    assert sorted(by_rank) == [0, 1, 2]
    assert {str(r.cause) for r in by_rank.values()} == {"rank 3 joins only at 700 s"}
    assert played(RING, network=ports(4), late={3: 500.0}).watchdog == ((),)
    never = reports(played(RING, network=ports(4), late={3: float("inf")}))
    assert {str(r.cause) for r in never.values()} == {"rank 3 never joins"}


def test_who_is_through_or_dead_by_then_reports_nothing() -> None:
    """Rank 0 has sent all it has; rank 2 dies while it waits, rank 3 only after its report."""
    failure = Change(time=1.5 * MS, link=1, capacity=0.0)
    found = played(chain(n=4), network=ports(4), changes=(failure,), deaths={2: 300.0, 3: 700.0})
    by_rank = reports(found)
    assert sorted(by_rank) == [1, 3]
    assert by_rank[1].cause.kind == "link"  # it failed before rank 2 died
    assert by_rank[3].chain == (3, 2)


def test_what_only_takes_long() -> None:
    found = played(chain(), network=ports(3), watchdog=0.5 * MS)
    by_rank = reports(found)
    assert {r: (b.waits_for, b.op, b.cause.op) for r, b in by_rank.items()} == {
        0: (1, 0, 0),
        1: (0, 0, 0),
        2: (1, 1, 0),
    }
    assert str(by_rank[2].cause) == "op 0 is still under way"


def test_a_switch_waits_but_does_not_report() -> None:
    def sum_at_switch(program: Program) -> None:
        for rank in (0, 1):
            program.reduce(rank, 0, 2, program.scratch)
        for rank in (0, 1):
            program.copy(2, program.scratch, rank, 0)

    collective = Collective("all_reduce", MB, dtype="uint8")
    schedule = from_function(collective, 2, sum_at_switch, scratch=1, switches=1)
    (report,) = played(schedule, network=ports(2), deaths={1: 0.0}).watchdog[0]
    assert report.chain == (0, "switch0", 1)
    assert report.waits_for == "switch0"
    assert report.cause.who == 1


@settings(max_examples=150, deadline=None)
@given(found=timelines(whole=False))
def test_reports_are_true(found: Timeline) -> None:
    each, timeout = found.played[0], found.conditions.watchdog
    schedule, times = each.laid.schedule, each.times
    by_rank = reports(found)
    for position, rank in enumerate(each.ranks):
        time = each.joined[position] + timeout
        touched = [o for o in schedule if position in (o.source, o.destination)]
        over = [
            (times.arrived if o.destination == position else times.sent)[o.index] <= time
            and (o.source != position or times.sent[o.index] <= time)
            for o in touched
        ]
        dead = found.conditions.deaths.get(rank, float("inf")) <= time
        assert (rank in by_rank) == (not dead and not all(over))
        if rank in by_rank:
            report, cause = by_rank[rank], by_rank[rank].cause
            assert report.time == time
            assert report.op == touched[over.index(False)].index
            assert report.chain[0] == rank
            if len(report.chain) > 1:
                assert report.chain[1] == report.waits_for
            # The cause holds an op that the report's op waits for, and it is one.
            behind, reached = {report.op}, [report.op]
            while reached:
                reached = [w for o in reached for w in schedule[o].waits if w not in behind]
                behind |= set(reached)
            assert cause.op in behind
            held = schedule[cause.op]
            assert not times.arrived[cause.op] <= time
            for w in held.waits:
                own = schedule[w].source == held.source
                assert (times.sent if own else times.arrived)[w] <= time
            if cause.kind == "dead":
                assert isinstance(cause.who, int)
                assert found.conditions.deaths[cause.who] == cause.time <= time
                assert cause.who in (held.source, held.destination)
            if cause.kind == "late":
                assert isinstance(cause.who, int)
                assert each.joined[cause.who] == cause.time > time
            if cause.kind == "link":
                assert (cause.time, 0.0) in [
                    (c.time, c.capacity)
                    for c in found.changes
                    if found.network.links[c.link] == cause.who
                ]
