"""Both engines: equal to each other on anything, equal to the closed forms where these hold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commsim.collectives.catalogue import algorithm, names
from commsim.collectives.collective import Collective
from commsim.collectives.program import Program, from_function
from commsim.engine import compiled, reference
from commsim.engine.ideal import Pairs, Ports
from commsim.engine.network import lay
from commsim.engine.plan import Change, Plan, Times, make_plan, punctual
from tests.engine.timelines import MB, chain

SERVED = [(n, o) for n in names() for o in sorted(algorithm(n).operations)]
DIVIDES = 64 * 9 * 5 * 7 * 11 * 13 * 17 * 32  # by every rank count to 18, channels and pieces


def plan_of(
    name: str, operation: str, nbytes: int, n: int, *, channels: int = 1, latency: float = 3e-6
) -> Plan:
    collective = Collective(operation, nbytes, dtype="uint8")
    schedule = algorithm(name).schedule(collective, n, channels)
    network = (
        Ports(n=n, bandwidth=1e9, latency=latency)
        if algorithm(name).ideal == "ports"
        else Pairs(vertices=schedule.vertices, bandwidth=1e9, latency=latency)
    )
    return make_plan([punctual(lay(schedule, network))], network.capacity)


def agree(plan: Plan) -> Times:
    """The times, if both engines find the same."""
    slow, fast = reference.play(plan), compiled.play(plan)
    for column in ("ready", "begun", "sent", "arrived"):
        np.testing.assert_allclose(
            getattr(fast, column), getattr(slow, column), rtol=1e-9, atol=1e-15, err_msg=column
        )
    return fast


@pytest.mark.parametrize("n", [*range(2, 18), 32, 64])
@pytest.mark.parametrize(("name", "operation"), SERVED)
def test_the_engine_meets_the_closed_form(name: str, operation: str, n: int) -> None:
    for channels in (1, 2) if n < 10 else (1,):
        collective = Collective(operation, DIVIDES, dtype="uint8")
        times = compiled.play(plan_of(name, operation, DIVIDES, n, channels=channels))
        cost = algorithm(name).cost(collective, n, channels)
        expected = cost.duration(latency=3e-6, bandwidth=1e9)
        assert times.arrived.max() == pytest.approx(expected, rel=1e-9 if cost.exact else 0.25)


@pytest.mark.parametrize("n", [2, 3, 5, 8])
@pytest.mark.parametrize(("name", "operation"), SERVED)
def test_both_engines_agree_on_every_algorithm(name: str, operation: str, n: int) -> None:
    for nbytes in (0, 1, 1000, 123_457):
        for latency in (0.0, 2e-6):
            times = agree(plan_of(name, operation, nbytes, n, channels=2, latency=latency))
            assert not times.stalled


times = st.sampled_from([0.0, 0.0, 1e-6, 0.37e-6, 5e-6, 3.3])


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Ops with random waits over random ways on random links; late, dying and failing things."""
    links, ways, vertices = (draw(st.integers(1, 5)) for _ in range(3))
    n = draw(st.integers(1, 12))
    crossed = [
        draw(st.lists(st.integers(0, links - 1), max_size=3, unique=True)) for _ in range(ways)
    ]
    count = sum(map(len, crossed))
    waits = [
        sorted(draw(st.sets(st.integers(0, i - 1), max_size=3))) if i else [] for i in range(n)
    ]

    def many(
        values: st.SearchStrategy[float], size: int
    ) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return np.array([draw(values) for _ in range(size)], dtype=np.float64)

    ends = st.integers(0, vertices - 1)
    changes = draw(st.lists(st.tuples(times, st.integers(0, links - 1)), max_size=2))
    return Plan(
        nbytes=many(st.sampled_from([0.0, 1.0, 700.0, 3000.0, 1e6]), n),
        streams=np.array([draw(st.booleans()) for _ in range(n)]),
        source=np.array([draw(ends) for _ in range(n)], dtype=np.int32),
        destination=np.array([draw(ends) for _ in range(n)], dtype=np.int32),
        way=np.array([draw(st.integers(0, ways - 1)) for _ in range(n)], dtype=np.int32),
        overhead=many(times, n),
        wait_start=np.cumsum([0, *map(len, waits)]).astype(np.int64),
        waits=np.array([w for each in waits for w in each], dtype=np.int32),
        start=many(times, vertices),
        death=many(st.sampled_from([np.inf, np.inf, np.inf, 1.7e-6, 4.1]), vertices),
        way_start=np.cumsum([0, *map(len, crossed)]).astype(np.int64),
        crossing=np.array([link for each in crossed for link in each], dtype=np.int32),
        weight=many(st.sampled_from([1.0, 1.0, 0.25, 2.0]), count),
        latency=many(times, ways),
        limit=many(st.sampled_from([np.inf, 2e8, 7e9]), ways),
        share=many(st.sampled_from([1.0, 1.0, 3.0, 16.0]), ways),
        capacity=many(st.sampled_from([1e9, 3e9, 1e6, np.inf]), links),
        changes=tuple(
            Change(time=t, link=link, capacity=draw(st.sampled_from([0.0, 1e5, 5e9])))
            for t, link in sorted(changes)
        ),
    )


@settings(max_examples=300, deadline=None)
@given(plan=plans())
def test_both_engines_agree_on_anything(plan: Plan) -> None:
    found = agree(plan)
    again = compiled.play(plan)
    assert found.arrived.tobytes() == again.arrived.tobytes()  # equal to the last bit
    # No op starts before what it waits for, or faster than its way allows.
    for op in range(len(plan)):
        for w in plan.waits[plan.wait_start[op] : plan.wait_start[op + 1]]:
            done = found.sent if plan.source[w] == plan.source[op] else found.arrived
            if plan.streams[op] and plan.destination[w] == plan.source[op]:
                done = found.begun + plan.latency[plan.way]
                assert np.isnan(found.sent[op]) or found.sent[op] >= found.arrived[w]
            assert np.isnan(found.ready[op]) or found.ready[op] >= done[w]
        took = found.sent[op] - found.begun[op]
        assert (
            np.isnan(took)
            or took >= plan.nbytes[op] / plan.limit[plan.way[op]] * (1 - 1e-9) - 1e-15
        )


def test_two_at_once_share_and_one_alone_does_not() -> None:
    network = Ports(n=4, bandwidth=1e9, latency=1e-6)
    schedule = algorithm("ring").schedule(Collective("all_reduce", 1 << 24), 4)
    part = punctual(lay(schedule, network))
    alone = compiled.play(make_plan([part], network.capacity)).arrived.max()
    both = compiled.play(make_plan([part, part], network.capacity)).arrived
    assert both[: len(schedule)].max() == pytest.approx(2 * alone, rel=0.02)
    later = replace(part, start=np.full(4, alone))
    after = compiled.play(make_plan([part, later], network.capacity)).arrived
    assert after.max() == pytest.approx(2 * alone, rel=1e-12)


def test_a_delay_can_make_all_faster() -> None:
    """Two channels pass 1 MB to and fro, four times, at 1 GB/s and with 1 ms for a hop. In step
    both want the same link at once: 2 ms of bytes and 1 of hop each time, 12 ms. If one begins 1 ms
    late it has the link while the other hops, either takes 2 ms a time: all is over after 9 ms.
    """

    def to_and_fro(program: Program) -> None:
        for turn in range(4):
            for channel in range(2):
                program.copy(turn % 2, channel, 1 - turn % 2, channel=channel)

    asked = Collective("broadcast", 2 * MB, dtype="uint8")
    schedule = from_function(asked, 2, to_and_fro, channels=2, parts=2)
    network = Pairs(vertices=2, bandwidth=1e9, latency=1e-3)
    part = punctual(lay(schedule, network))
    in_step = agree(make_plan([part], network.capacity))
    assert in_step.arrived.max() == pytest.approx(12e-3)
    first_of_second = np.where(np.arange(len(schedule)) == 1, 1e-3, 0.0)
    apart = agree(make_plan([replace(part, extra=first_of_second)], network.capacity))
    assert apart.arrived.max() == pytest.approx(9e-3)


def test_what_streams_flows_through_a_chain_in_one_go() -> None:
    """4 MB over links of 1, 0.5 and 2 GB/s, 1 us each. As a stream 8 ms, and 1 us for each link:
    the fast one has carried all when the last byte has come to it. Whole, one by one, 14 ms.
    """
    network = Pairs(vertices=4, bandwidth=1e9, latency=1e-6)
    plan = make_plan([punctual(lay(chain(4 * MB, 4), network))], network.capacity)
    capacity = plan.capacity.copy()
    capacity[plan.crossing[plan.way_start[plan.way]]] *= (1, 0.5, 2)
    stored = replace(plan, capacity=capacity)
    streamed = agree(replace(stored, streams=np.ones(3, dtype=np.bool_)))
    assert streamed.begun == pytest.approx([0, 1e-6, 2e-6])
    assert streamed.sent == pytest.approx([4e-3, 8e-3 + 1e-6, 8e-3 + 2e-6])
    assert agree(stored).arrived[-1] == pytest.approx(14e-3 + 3e-6)


def test_times_beyond_two_to_the_31_ns() -> None:
    times = agree(plan_of("ring", "all_reduce", 8 << 30, 2))  # 8 GiB at 1 GB/s
    assert times.arrived.max() == pytest.approx((8 << 30) / 1e9 + 2 * 3e-6, rel=1e-12)


def test_a_failed_link_stalls_and_a_repaired_one_goes_on() -> None:
    plan = plan_of("ring", "all_gather", 4 << 20, 4)
    down = replace(plan, changes=(Change(time=1e-4, link=0, capacity=0.0),))
    assert agree(down).stalled
    repaired = replace(down, changes=(*down.changes, Change(time=1.0, link=0, capacity=1e9)))
    times = agree(repaired)
    assert not times.stalled
    assert times.arrived.max() == pytest.approx(1.0 - 1e-4 + compiled.play(plan).arrived.max())
