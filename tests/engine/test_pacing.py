"""Schedules at a library's pace: what is put on links, and that alone it takes what was asked."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest

from commsim.collectives.algorithms.ring import Ring
from commsim.collectives.chunks import Ints
from commsim.collectives.collective import Collective
from commsim.collectives.schedule import Schedule
from commsim.cost.cost import Pace
from commsim.engine import compiled
from commsim.engine.ideal import Ports
from commsim.engine.network import Flags, Floats, Laid, Network, Ways, lay
from commsim.engine.pacing import EQUAL, Tuning, paced, rates, tuned
from commsim.engine.plan import make_plan, punctual
from tests.engine.timelines import MB, MS, US, chain

LAUNCH = 7 * US
PACE = Pace(
    launch=LAUNCH, duration=LAUNCH, transfer=0.0, local_hop=3 * US, net_hop=10 * US,
    local_share=0.5, net_share=0.8,
)  # fmt: skip


class Line(Network):
    """0 -> 1 inside a machine; 1 -> 2 by two NICs of 1 GB/s and a cable of 0.5 GB/s between
    switches.
    """

    @property
    def links(self) -> tuple[str, ...]:
        return ("inside", "out", "between", "into")

    @property
    def capacity(self) -> Floats:
        return np.array([2e9, 1e9, 0.5e9, 1e9])

    @property
    def over_network(self) -> Flags:
        return np.array([False, True, True, True])

    @property
    def between_switches(self) -> Flags:
        return np.array([False, False, True, False])

    def ways(
        self, schedule: Schedule, source: Ints, destination: Ints, channel: Ints, reduces: Ints
    ) -> Ways:
        crossed = {(0, 1): [0], (1, 2): [1, 2, 3]}
        found = [crossed.get(pair, []) for pair in zip(source, destination, strict=True)]
        none = np.zeros(len(found))
        return Ways(
            start=np.cumsum([0, *map(len, found)]),
            crossing=np.array([link for way in found for link in way], dtype=np.int32),
            weight=np.ones(sum(map(len, found))),
            latency=none,
            overhead=none,
            limit=np.full(len(found), np.inf),
        )


def on_line(by: Tuning, pace: Pace = PACE) -> list[tuple[list[float], float, float]]:
    """Of 0 -> 1 and of 1 -> 2: weights link by link, latency, limit."""
    ways = paced(lay(chain(), Line()), Line(), pace, by).ways
    return [
        (ways.weight[a:b].tolist(), float(ways.latency[w]), float(ways.limit[w]))
        for w, (a, b) in enumerate(pairwise(ways.start.tolist()))
    ]


# ---- what is put on links ----


def test_links_carry_what_protocols_leave_and_hops_take_their_time() -> None:
    """0.5 of a link inside: 2 bytes for each; 0.8 of a NIC: 1.25; between switches nothing more."""
    assert on_line(Tuning()) == [([2.0], 3 * US, np.inf), ([1.25, 1.0, 1.25], 10 * US, np.inf)]


def test_hops_and_bytes_are_stretched() -> None:
    local, far = on_line(Tuning(stretch=1.2, hops=2.0))
    assert local[0] == pytest.approx([2.4])
    assert far[0] == pytest.approx([1.5, 1.0, 1.5])
    assert (local[1:], far[1:]) == ((6 * US, np.inf), (20 * US, np.inf))


def test_no_link_carries_more_than_it_can() -> None:
    local, far = on_line(Tuning(stretch=0.1))
    assert (local[0], far[0]) == ([1.0], [1.0, 1.0, 1.0])


def test_a_transfer_is_limited_to_a_share_of_its_way() -> None:
    """Inside 2 / 2 = 1 GB/s; to the other machine 0.5, which the cable between switches gives."""
    local, far = on_line(Tuning(limit=0.25))
    assert local[2] == pytest.approx(0.25e9)
    assert far[2] == pytest.approx(0.125e9)


def test_what_goes_nowhere_takes_no_time() -> None:
    schedule = chain()
    stays = replace(schedule, destination=schedule.source)
    ways = paced(lay(stays, Line()), Line(), PACE, Tuning(limit=0.5)).ways
    assert ways.latency.tolist() == [0.0, 0.0]
    assert np.isinf(ways.limit).all()


def test_rates() -> None:
    ways = lay(chain(), Line()).ways
    assert rates(ways, ways.weight, Line()).tolist() == [2e9, 0.5e9]
    assert rates(ways, 4 * ways.weight, Line()).tolist() == [0.5e9, 0.125e9]


# ---- taking as long as asked ----

RING = Ring().schedule(Collective("all_gather", 4 * MB, dtype="uint8"), 4)
LINKS_ALONE = 3 * MS / 0.5  # three rounds of 1 MB at 1 GB/s, half of which data gets
IDEAL = Ports(n=4, bandwidth=1e9)


def asked(transfer: float, hops: float) -> Pace:
    """The bytes need `transfer` s by themselves, all together `hops` s more."""
    return replace(PACE, transfer=transfer, duration=LAUNCH + transfer + hops)


@dataclass(frozen=True)
class Alone:
    """What `tuned` found on the ideal network, and the schedule laid at that pace."""

    laid: Laid
    takes: float


def alone(schedule: Schedule, network: Network, pace: Pace) -> Alone:
    found = tuned(lambda window: schedule, IDEAL, pace)
    return Alone(paced(lay(schedule, network), network, pace, found.by), found.takes)


def play(*laid: Laid, network: Network = IDEAL) -> float:
    """s until the last of these arrives, if all begin together."""
    plan = make_plan([punctual(each) for each in laid], network.capacity)
    return float(compiled.play(plan).arrived.max())


@pytest.mark.parametrize("hops", [0.0, 1 * US, 90 * US, 20 * MS])
@pytest.mark.parametrize("transfer", [0.6, 1.0, 1.2, 1.3, 3.0, 1000.0])
def test_alone_it_takes_what_was_asked(transfer: float, hops: float) -> None:
    pace = asked(transfer * LINKS_ALONE, hops)
    found = alone(RING, IDEAL, pace)
    assert found.takes == pytest.approx(1, abs=1e-3)
    assert play(found.laid) == pytest.approx(pace.duration - LAUNCH, rel=1e-3)


def test_less_than_the_links_need_cannot_be() -> None:
    """Asked 2 ms, of which the links need 3 even if the protocol left everything to data."""
    found = alone(RING, IDEAL, asked(2 * MS, 0.0))
    assert found.takes == pytest.approx(1.5)
    assert play(found.laid) == pytest.approx(3 * MS)


def test_hops_that_the_closed_form_hides() -> None:
    """All in 6 ms, for which the bytes are said to need 7: then there are no hops."""
    pace = replace(asked(7 * MS, 0.0), duration=LAUNCH + 6 * MS)
    found = alone(RING, IDEAL, pace)
    assert found.takes == pytest.approx(1)
    assert play(found.laid) == pytest.approx(6 * MS)
    assert (found.laid.ways.latency == 0).all()


def test_without_bytes_only_hops() -> None:
    """Three rounds with no byte: 30 us are 10 us for each hop."""
    barrier = Ring().schedule(Collective("all_gather", 0, dtype="uint8"), 4)
    found = alone(barrier, IDEAL, asked(0.0, 30 * US))
    assert found.takes == pytest.approx(1)
    assert found.laid.ways.latency == pytest.approx(np.full(4, 10 * US), rel=1e-3)


def test_a_schedule_that_stays_where_it_is() -> None:
    """No link is crossed, so there is nothing to make slower: what was asked is not spent."""
    schedule = chain(n=4)
    stays = replace(schedule, destination=schedule.source)
    found = alone(stays, IDEAL, asked(0.0, 30 * US))
    assert found.takes == 0
    assert play(found.laid) == 0


def test_where_links_bind_two_take_twice_as_long() -> None:
    found = alone(RING, IDEAL, asked(1.2 * LINKS_ALONE, 0.0))
    assert play(found.laid, found.laid) == pytest.approx(2 * play(found.laid), rel=1e-6)


def test_where_channels_bind_two_need_not_be_in_each_others_way() -> None:
    """Bytes that take three times as long as the links explain leave room for two more."""
    found = alone(RING, IDEAL, asked(3 * LINKS_ALONE, 0.0))
    one = play(found.laid)
    assert play(found.laid, found.laid) == pytest.approx(one, rel=1e-6)
    assert play(*[found.laid] * 6) == pytest.approx(2 * one, rel=EQUAL)


def test_the_pace_is_that_of_the_ideal_cluster() -> None:
    """Found on one, and laid on a network of half its bandwidth: the bytes take twice as long.
    Alone they and three hops take 6.009 ms of 6.09, so the clocks are slow by what is left.
    """
    half = Ports(n=4, bandwidth=0.5e9)
    pace = asked(LINKS_ALONE, 90 * US)
    found = alone(RING, half, pace)
    assert found.takes == pytest.approx(1, abs=1e-3)
    clock = (LINKS_ALONE + 90 * US) / (LINKS_ALONE + 9 * US)
    expected = (2 * LINKS_ALONE + 9 * US) * clock
    assert play(found.laid, network=half) == pytest.approx(expected, rel=1e-9)


def test_every_trial_can_be_stopped() -> None:
    class Enough(Exception):
        pass

    def stop(done: int, now: float) -> None:
        raise Enough

    with pytest.raises(Enough):
        tuned(lambda window: RING, IDEAL, asked(LINKS_ALONE, 0.0), watch=lambda ops: stop)
