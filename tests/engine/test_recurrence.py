"""Rounds that repeat are skipped, and all is as if they had been played."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commsim.collectives.algorithms.ring import Ring
from commsim.collectives.collective import Collective
from commsim.collectives.schedule import WHOLE, Schedule, Window
from commsim.engine import compiled, recurrence
from commsim.engine.conditions import Conditions, Jitter, LinkFault, Traffic
from commsim.engine.ideal import Ports
from commsim.engine.network import Laid, lay
from commsim.engine.plan import Change, Part, Plan, make_plan, punctual
from commsim.engine.rounds import UnsettledError
from commsim.engine.timeline import Timeline
from commsim.engine.unrolled import Unrolled, shortened, unrolled
from commsim.libraries.lookup import library
from commsim.simulation import simulate
from commsim.topology.load import load_cluster
from tests.engine.timelines import MB, MS, US

SMALL = Window(rounds=8)
COLUMNS = ("ready", "begun", "sent", "arrived")


def ring(window: Window, n: int = 40, channels: int = 1, pieces: int = 1) -> Schedule:
    collective = Collective("all_reduce", n * channels * pieces * 1000, dtype="uint8")
    return Ring(window=window, pieces=pieces).schedule(collective, n, channels)


def ports(n: int) -> Ports:
    return Ports(n=n, bandwidth=1e9, latency=3 * US)


# ---- worked out by hand ----


def test_a_ring_of_equal_ranks_is_known_from_its_first_rounds() -> None:
    """78 rounds of 1000 bytes at 1 GB/s and 3 us: 4 us each, 312 us; of each half's 39 rounds, 8 at
    least are played, and what is left out is every round alike.
    """
    found = recurrence.play(
        lambda window: make_plan([punctual(lay(ring(window), ports(40)))], ports(40).capacity),
        SMALL,
        lambda plan: None,
    )
    assert found.window == SMALL
    assert len(found.plan) == 2 * 8 * 40
    assert found.times.arrived.max() == pytest.approx(78 * 4 * US, rel=1e-12)
    assert [jump.times * jump.rounds for jump in found.times.jumps] == [31, 31]
    assert [jump.period / jump.rounds for jump in found.times.jumps] == pytest.approx([4 * US] * 2)


def test_rounds_of_unequal_blocks_are_all_played() -> None:
    """1001 bytes on 40 ranks: blocks of 26 bytes, and the last ones of less."""
    schedule = Ring(window=SMALL).schedule(Collective("all_gather", 1001, dtype="uint8"), 40)
    assert not schedule.repeats
    assert len(schedule) == 39 * 40


def test_few_transfers_are_all_played() -> None:
    assert not ring(Window(rounds=8, least=40 * 39 + 1)).repeats
    assert ring(Window(rounds=8, least=40 * 39)).repeats


def test_a_window_that_would_save_less_than_half_is_none() -> None:
    assert Window(rounds=8).built(16) == 8
    assert Window(rounds=8).built(15) == 15
    assert Window(rounds=8, multiple=5).built(40) == 10  # leaves 30, six times five
    assert WHOLE.built(40) == 40


# ---- as if all had been played ----


@st.composite
def cases(draw: st.DrawFn) -> tuple[int, int, int, list[float], list[float], tuple[Change, ...]]:
    """Ranks, channels, pieces, delays by rank, factors on the hops by rank, slower links."""
    n = draw(st.integers(20, 48))
    delays = st.sampled_from([0.0] * 12 + [2 * US, 7.3 * US, 41 * US])
    factors = st.sampled_from([1.0] * 8 + [1.5, 3.0])
    links = st.tuples(
        st.sampled_from([0.0, 20 * US, 61 * US]),
        st.integers(0, 2 * n - 1),
        st.sampled_from([0.3e9, 0.5e9, 2e9]),
    )
    return (
        n,
        draw(st.integers(1, 3)),
        draw(st.integers(1, 2)),
        [draw(delays) for _ in range(n)],
        [draw(factors) for _ in range(n)],
        tuple(
            Change(time=t, link=link, capacity=c)
            for t, link, c in sorted(draw(st.lists(links, max_size=2)))
        ),
    )


@settings(max_examples=60, deadline=None)
@given(case=cases(), other=st.booleans())
def test_what_is_skipped_is_as_if_it_had_been_played(
    case: tuple[int, int, int, list[float], list[float], tuple[Change, ...]], other: bool
) -> None:
    """With late ranks, slow ones, links that change, and a long transfer in the way."""
    n, channels, pieces, delays, factors, changes = case
    network = ports(n)
    slow = np.array(factors)

    def laid_of(window: Window) -> Laid:
        laid = lay(ring(window, n, channels, pieces), network)
        factor = np.ones(len(laid.ways))
        factor[laid.way] = slow[laid.schedule.source]
        return replace(laid, ways=replace(laid.ways, latency=laid.ways.latency * factor))

    long = lay(ring(WHOLE, n), network)  # one transfer of it: from rank 0 to 1
    alone = replace(
        long.schedule,
        **{
            name: getattr(long.schedule, name)[:1]
            for name in ("reduces", "streams", "source", "destination", "channel", "round")
        },
        nbytes=np.array([3 * MB]), piece_start=np.zeros(2, dtype=np.int64),
        wait_start=np.zeros(2, dtype=np.int64), waits=np.zeros(0, dtype=np.int32),
    )  # fmt: skip
    stranger = punctual(lay(alone, network))

    def build(window: Window) -> Plan:
        laid = laid_of(window)
        first = Part(laid=laid, start=np.array(delays), death=np.full(n, np.inf))
        parts = [first, stranger] if other else [first]
        return make_plan(parts, network.capacity, changes)

    found = recurrence.play(build, SMALL, lambda plan: None)
    every = compiled.play(build(WHOLE))
    ops = len(found.plan) - other
    times = found.times.of(slice(0, ops))
    laid, times = unrolled(laid_of(found.window), times)
    whole = laid_of(WHOLE)
    for name in ("source", "destination", "channel", "round", "nbytes", "wait_start", "waits"):
        np.testing.assert_array_equal(
            getattr(laid.schedule, name), getattr(whole.schedule, name), err_msg=name
        )
    for name in COLUMNS:
        np.testing.assert_allclose(
            getattr(times, name), getattr(every, name)[: len(whole.schedule)], rtol=1e-9, atol=0
        )
    if other:
        assert found.times.arrived[-1] == pytest.approx(every.arrived[-1], rel=1e-9)


@pytest.mark.parametrize(
    ("slow", "late", "left_out"), [(1, 0.0, 151), (4, 0.0, 124), (4, 2 * US, 0), (160, 0.0, 0)]
)
def test_what_repeats_and_what_does_not(slow: int, late: float, left_out: int) -> None:
    """160 ranks, 159 rounds in each half. Every 4th rank's hop takes longer: every 4 rounds repeat.
    That of one rank, or its delay, goes round the ring with the rounds, and is back after 160.
    """
    start = np.zeros(160)
    start[3] = late

    def build(window: Window) -> Plan:
        laid = lay(ring(window, 160), ports(160))
        hops = laid.ways.latency.copy()
        hops[laid.way[laid.schedule.source % slow == 0]] *= 3
        laid = replace(laid, ways=replace(laid.ways, latency=hops))
        part = Part(laid=laid, start=start, death=np.full(160, np.inf))
        return make_plan([part], ports(160).capacity)

    found = recurrence.play(build, SMALL, lambda plan: None)
    jumps = found.times.jumps
    assert len(jumps) == (2 if left_out else 0)
    assert all(jump.times * jump.rounds >= left_out for jump in jumps)
    if slow == 4:
        assert all(jump.rounds == 4 for jump in jumps)
        assert all(jump.period == pytest.approx(4 * (1 + 3) * US + 6 * US) for jump in jumps)
        assert found.window.multiple == (4 if jumps else 1)


def test_the_search_is_given_up_where_little_could_be_saved() -> None:
    """8, 32 and 128 of 400 rounds are tried, not 512; 8 and 32 of 300, as 128 are too many."""
    tried = UnsettledError()
    assert tried.next(SMALL, 400) == Window(rounds=32)
    assert tried.next(Window(rounds=32), 400) == Window(rounds=128)
    assert tried.next(Window(rounds=128), 400) == WHOLE
    assert tried.next(Window(rounds=32), 300) == WHOLE
    assert UnsettledError(alike=False).next(SMALL, 400) == WHOLE
    assert UnsettledError(every=6).next(Window(rounds=8, multiple=4), 400).multiple == 12


def test_random_software_time_is_never_skipped() -> None:
    laid = lay(ring(SMALL), ports(40))
    extra = np.random.default_rng(0).random(len(laid.schedule)) * US

    def build(window: Window) -> Plan:
        laid = lay(ring(window), ports(40))
        more = extra if window.rounds else np.resize(extra, len(laid.schedule))
        part = Part(laid=laid, start=np.zeros(40), death=np.full(40, np.inf), extra=more)
        return make_plan([part], ports(40).capacity)

    found = recurrence.play(build, SMALL, lambda plan: None)
    assert found.window == WHOLE
    assert not found.times.jumps


def test_long_transfers_beside_it() -> None:
    """Every rank has 300 kB more for the next one: the two share its port whenever a block is under
    way. What is left of them falls by the same in every round, until they are over; then the rounds
    are faster, and repeat again.
    """
    n = 160

    def build(window: Window) -> Plan:
        more = Ring().schedule(Collective("reduce_scatter", 300_000 * n, dtype="uint8"), n)
        first = slice(0, n)
        beside = replace(
            more,
            **{
                name: getattr(more, name)[first]
                for name in ("reduces", "streams", "source", "destination", "nbytes", "channel")
            },
            round=more.round[first], piece_start=np.zeros(n + 1, dtype=np.int64),
            wait_start=np.zeros(n + 1, dtype=np.int64), waits=np.zeros(0, dtype=np.int32),
        )  # fmt: skip
        both = (ring(window, n), beside)
        return make_plan([punctual(lay(each, ports(n))) for each in both], ports(n).capacity)

    found = recurrence.play(build, SMALL, lambda plan: None)
    every = compiled.play(build(WHOLE))
    periods = [jump.period for jump in found.times.jumps]
    assert periods == pytest.approx([(2 + 3) * US, (1 + 3) * US, (1 + 3) * US])
    assert found.times.arrived[-n:] == pytest.approx(every.arrived[-n:], rel=1e-9)
    laid, times = unrolled(
        lay(ring(found.window, n), ports(n)), found.times.of(slice(0, len(found.plan) - n))
    )
    assert times.arrived == pytest.approx(every.arrived[:-n], rel=1e-9)
    assert (laid.schedule.round == ring(WHOLE, n).round).all()


# ---- on a cluster ----


def both(
    monkeypatch: pytest.MonkeyPatch, conditions: Conditions | None = None
) -> tuple[Timeline, Timeline]:
    """With rounds skipped, and with every round; 192 ranks on a fabric with hashed ways."""
    cluster = load_cluster("dgx-h100", nodes=24, **{"fabric.kind": "fat-tree"})
    collective = Collective("all_gather", 192 << 20, dtype="uint8")
    found = []
    for window in (Window(rounds=16), WHOLE):
        monkeypatch.setattr(recurrence, "FIRST", window)
        timeline = simulate(
            collective, cluster, algorithm="ring", channels=2, routing="ecmp",
            conditions=conditions,
        )  # fmt: skip
        found.append(timeline)
    return found[0], found[1]


@pytest.mark.parametrize("by", ["gloo", "mpi"])
def test_rings_of_hosts_repeat(monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    cluster = load_cluster("dgx-h100", nodes=32)
    collective = Collective("all_gather", 64 << 20, dtype="uint8")
    found = []
    for window in (Window(rounds=20), WHOLE):
        monkeypatch.setattr(recurrence, "FIRST", window)
        found.append(simulate(collective, cluster, library(by)))
    folded, every = found
    assert folded.played[0].times.jumps
    assert not every.played[0].times.jumps
    assert folded.duration == pytest.approx(every.duration, rel=1e-9)
    assert folded.link_bytes == pytest.approx(every.link_bytes, rel=1e-9)


@pytest.mark.parametrize(
    ("conditions", "folds"),
    [
        (Conditions(), True),
        (Conditions(slow=dict.fromkeys(range(0, 192, 8), 1.5)), True),
        (Conditions(traffic=(Traffic(source=0, destination=8, nbytes=512 << 20),)), False),
        (Conditions(traffic=(Traffic(source=8, destination=0, nbytes=512 << 20),)), False),
        (Conditions(faults=(LinkFault(link="node*/nic*", share=0.5, time=1 * MS),)), True),
        (Conditions(late={9: 30 * US}), True),
    ],
)
def test_a_timeline_says_the_same(
    monkeypatch: pytest.MonkeyPatch, conditions: Conditions, folds: bool
) -> None:
    found, every = both(monkeypatch, conditions=conditions)
    a, b = found.played[0], every.played[0]
    assert bool(a.times.jumps) == folds
    assert len(b.laid.schedule) == 2 * 192 * 191
    assert found.duration == pytest.approx(every.duration, rel=1e-9)
    assert found.link_bytes == pytest.approx(every.link_bytes, rel=1e-9)
    assert a.transferring == pytest.approx(b.transferring, rel=1e-9)
    assert a.finished == pytest.approx(b.finished, rel=1e-9)
    mine, theirs = found.critical_path(), every.critical_path()
    assert mine.totals == pytest.approx(theirs.totals, rel=1e-6, abs=1e-9)
    for name in (*COLUMNS, "round", "waits"):
        of = "times" if name in COLUMNS else "laid"
        one, other = (getattr(each, of) for each in (a.whole, b))
        if of == "laid":
            one, other = one.schedule, other.schedule
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-9)


def test_a_watchdog_sees_every_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """2 ms after its begin the ring of 5 ms is in a round that was not played."""
    found, every = both(monkeypatch, Conditions(watchdog=2 * MS))
    jump = found.played[0].times.jumps[0]
    begin = float(found.played[0].whole.times.ready[jump.first])
    assert begin < 2 * MS < begin + jump.times * jump.period
    assert [str(r) for r in found.watchdog[0]] == [str(r) for r in every.watchdog[0]]
    assert found.watchdog[0]


def test_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    found, every = both(monkeypatch)
    (jump,) = found.played[0].times.jumps
    assert jump.left_out > len(every.played[0].laid.schedule) / 2
    assert f"; {jump.left_out:,} transfers are not played" in found.notes[-1]
    assert sum(1 for _ in found.spans) == len(every.played[0].laid.schedule)


@pytest.mark.parametrize(
    "conditions",
    [
        Conditions(jitter=Jitter(mean=1 * US)),
        Conditions(deaths={3: 0.2 * MS}),
        Conditions(faults=(LinkFault(link="node2/nic1", time=0.2 * MS),)),
    ],
)
def test_where_rounds_differ_or_may_never_end_all_are_played(
    monkeypatch: pytest.MonkeyPatch, conditions: Conditions
) -> None:
    found, every = both(monkeypatch, conditions=conditions)
    assert not found.played[0].times.jumps
    assert len(found.played[0].laid.schedule) == len(every.played[0].laid.schedule)


def test_numbers_there_and_back() -> None:
    """8 rounds of 2 ops; ops 4 to 7, two rounds, were left out 3 times: 16 more, 12 in all."""
    found = recurrence.play(
        lambda window: make_plan([punctual(lay(ring(window), ports(40)))], ports(40).capacity),
        SMALL, lambda plan: None,
    )  # fmt: skip
    every = Unrolled(played=len(found.plan), jumps=found.times.jumps)
    assert len(every) == 78 * 40
    played = np.arange(len(found.plan))
    numbers = np.array([every.number(op) for op in played.tolist()])
    located = every.locate(numbers)
    assert (located.op == played).all()
    assert (located.early == 0).all()
    same = shortened(found.times, [jump.times for jump in found.times.jumps])
    assert (same.arrived == found.times.arrived).all()
