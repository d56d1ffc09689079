"""The critical path: by hand on chains, and its laws on anything."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings

from commsim.collectives.collective import Collective
from commsim.collectives.program import Program, from_function
from commsim.collectives.schedule import Schedule
from commsim.engine.critical_path import KINDS, CriticalPath
from commsim.engine.timeline import Timeline
from tests.engine.timelines import MB, MS, US, chain, played, ports, timelines


def kinds(path: CriticalPath) -> list[tuple[str, int | str, float]]:
    """Kind, where, and duration in us, to 1 ps."""
    return [(s.kind, s.who, round(s.duration / US, 6)) for s in path.steps]


def test_a_chain_hangs_on_each_hop() -> None:
    found = played(chain(), network=ports(3), asked=0.5, launch=10 * US)
    path = found.critical_path()
    assert kinds(path) == [
        ("launch", 0, 10),
        ("transfer", 0, 1000),
        ("latency", 1, 3),
        ("transfer", 1, 1000),
        ("latency", 2, 3),
    ]
    assert path.totals == pytest.approx(
        {"launch": 10 * US, "late": 0, "software": 0, "transfer": 2 * MS, "latency": 6 * US}
    )
    last = path.steps[-1].move
    assert last is not None
    assert (last.op, last.after, last.known_at) == (1, 0, 1)  # rank 1 knows that it has arrived
    assert path.shared == pytest.approx(0, abs=1e-12)
    assert str(path.steps[1]) == (
        "1 ms transfer: op 0 (976.6 KiB from 0 to 1, channel 0, round 0) over rank0 -> switch "
        "(alone: 1 ms)"
    )


def test_a_late_receiver_holds_it_up() -> None:
    found = played(chain(), network=ports(3), launch=10 * US, late={2: 5 * MS})
    assert kinds(found.critical_path()) == [
        ("launch", 2, 10),
        ("late", 2, 5000),
        ("transfer", 1, 1000),
        ("latency", 2, 3),
    ]


def two_from(program: Program) -> None:
    program.copy(0, 0, 2, after=[program.copy(0, 0, 1)])


def two_into(program: Program) -> None:
    program.copy(0, 0, 2, program.scratch)
    program.copy(1, 0, 2, program.scratch + 1)


def with_three(function: object) -> Schedule:
    collective = Collective("all_reduce", MB, dtype="uint8")
    return from_function(collective, 3, function, scratch=2)  # type: ignore[arg-type]


def test_a_rank_knows_when_its_own_data_has_left() -> None:
    """Two sends of one rank: the first one's latency is not waited for."""
    path = played(with_three(two_from), network=ports(3)).critical_path()
    assert kinds(path) == [("transfer", 0, 1000), ("transfer", 0, 1000), ("latency", 2, 3)]
    last = path.steps[-1].move
    assert last is not None
    assert (last.after, last.known_at) == (0, 0)


def test_what_sharing_costs_and_where() -> None:
    path = played(with_three(two_into), network=ports(3)).critical_path()
    assert kinds(path) == [("transfer", 0, 2000), ("latency", 2, 3)]
    move = path.steps[0].move
    assert move is not None
    assert move.link == "switch -> rank2"  # carries both, the ranks' own links one each
    assert move.alone == pytest.approx(1 * MS)
    assert path.shared == pytest.approx(1 * MS)


def test_software_is_a_step_of_its_own() -> None:
    found = played(chain(), network=ports(3), extra=np.array([0.0, 20 * US]))
    assert kinds(found.critical_path())[2:4] == [("software", 1, 20), ("transfer", 1, 1000)]


def test_a_rank_that_joins_after_all_is_over() -> None:
    """Nothing is sent to rank 2, and still the collective lasts until it is there."""

    def first_two(program: Program) -> None:
        program.copy(0, 0, 1)

    found = played(with_three(first_two), network=ports(3), launch=10 * US, late={2: 1.0})
    assert kinds(found.critical_path()) == [("launch", 2, 10), ("late", 2, 1e6)]


def test_a_stream_ends_with_the_last_byte_that_comes_to_it() -> None:
    """1 MB from 0 over 1 to 2, passed on as it comes: 1 ms out of rank 0, and 3 us twice."""
    schedule = chain()
    found = played(replace(schedule, streams=np.ones(2, dtype=np.bool_)), network=ports(3))
    expected = [("transfer", 0, 1000), ("latency", 1, 3), ("latency", 2, 3)]
    assert kinds(found.critical_path()) == expected
    assert found.duration == pytest.approx(1006 * US)


def test_what_never_ends_has_no_path() -> None:
    found = played(chain(), network=ports(3), deaths={1: 0.0})
    assert math.isinf(found.duration)
    assert found.critical_path().steps == ()


@settings(max_examples=150, deadline=None)
@given(found=timelines())
def test_the_steps_add_up_and_each_waits_for_the_one_before(found: Timeline) -> None:
    path, each = found.critical_path(), found.played[0]
    assert not each.times.stalled
    if not path.steps:
        assert each.duration == 0
        return
    assert path.steps[0].begin == each.asked
    assert path.steps[-1].end == each.end
    for a, b in pairwise(path.steps):
        assert a.end == b.begin
        assert a.duration > 0
    assert sum(path.totals.values()) == pytest.approx(each.duration, rel=1e-12)
    assert set(path.totals) == set(KINDS)

    # What it says of the ops is true of the schedule.
    moves = [s.move for s in path.steps if s.move is not None]
    ops = list(dict.fromkeys(m.op for m in moves))
    times, schedule = each.times, each.laid.schedule
    for move in moves:
        op = schedule[move.op]
        if move.after is None:
            joined = max(each.joined[op.source], each.joined[op.destination])
            assert times.ready[move.op] == joined
            continue
        before = schedule[move.after]
        assert move.after in op.waits
        done = (times.sent if before.source == op.source else times.arrived)[move.after]
        if op.streams and before.destination == op.source:
            done = times.begun[move.after] + each.laid.ways.latency[each.laid.way[move.after]]
        assert times.ready[move.op] == done
        if move.known_at is None:
            assert not {op.source, op.destination} & {before.source, before.destination}
    if ops:
        assert times.arrived[ops[-1]] == each.end
