"""What disturbs a simulation: what it may be, what it does to links, what chance draws."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from commsim.engine.conditions import Conditions, Jitter, LinkFault, Traffic
from commsim.engine.plan import Change
from commsim.errors import ConditionError, UnknownNameError
from tests.engine.timelines import ports

NETWORK = ports(3)  # links "rank0 -> switch", "switch -> rank0" ... of 1 GB/s
MEAN = 2e-6
MANY = 200_000  # the mean of so many is within 1 % of theirs: sigma / sqrt(n) is 0.3 % at most


def drawn(distribution: str, seed: int = 0) -> np.ndarray[Any, np.dtype[np.float64]]:
    return Jitter(mean=MEAN, distribution=distribution, seed=seed).draw(MANY)


# ---- jitter ----


@pytest.mark.parametrize(
    ("distribution", "sigma"),
    [
        ("exponential", 1.0),
        ("uniform", 1 / math.sqrt(3)),  # from 0 to 2: width / sqrt(12)
        ("normal", math.sqrt(math.pi / 2 - 1)),  # |N|: E[x^2] is pi / 2 times the squared mean
        ("lognormal", math.sqrt(math.e - 1)),  # sigma 1
    ],
)
def test_each_distribution_has_its_mean_and_spread(distribution: str, sigma: float) -> None:
    found = drawn(distribution)
    assert found.min() >= 0
    assert found.mean() == pytest.approx(MEAN, rel=0.01)
    assert found.std() == pytest.approx(MEAN * sigma, rel=0.05)


def test_uniform_ends_at_twice_the_mean_and_others_do_not() -> None:
    assert drawn("uniform").max() <= 2 * MEAN
    for tailed in ("exponential", "normal", "lognormal"):
        assert drawn(tailed).max() > 3 * MEAN


@pytest.mark.parametrize("distribution", ["exponential", "lognormal", "normal", "uniform"])
def test_equal_seeds_draw_equal_values(distribution: str) -> None:
    assert (drawn(distribution, 1) == drawn(distribution, 1)).all()
    assert (drawn(distribution, 1) != drawn(distribution, 2)).any()
    assert (Jitter(mean=0.0, distribution=distribution).draw(5) == 0).all()


def test_jitter_that_cannot_be() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown distribution 'gamma'.*lognormal"):
        Jitter(mean=MEAN, distribution="gamma")
    for mean in (-1e-9, math.inf, math.nan):
        with pytest.raises(ConditionError, match="jitter: mean: expected a time of 0 s or more"):
            Jitter(mean=mean)


# ---- faults ----


@pytest.mark.parametrize(
    ("link", "meant"),
    [
        ("rank1 -> switch", {"rank1 -> switch"}),  # one link, in its direction
        ("rank1", {"rank1 -> switch", "switch -> rank1"}),  # a vertex: all that touch it
        ("rank?", set(NETWORK.links)),
        ("switch -> *", {f"switch -> rank{r}" for r in range(3)}),
    ],
)
def test_what_a_name_means(link: str, meant: set[str]) -> None:
    changes = LinkFault(link=link, share=0.25, time=1e-3).changes(NETWORK)
    assert {NETWORK.links[c.link] for c in changes} == meant
    assert {(c.time, c.capacity) for c in changes} == {(1e-3, 0.25e9)}


def test_a_fault_without_share_or_time_has_been_there_from_the_beginning() -> None:
    assert LinkFault(link="rank1").dead
    assert not LinkFault(link="rank1", time=1e-9).dead
    assert not LinkFault(link="rank1", share=0.5).dead
    number = NETWORK.links.index("rank1 -> switch")
    assert LinkFault(link="rank1 -> switch").changes(NETWORK) == (
        Change(time=0.0, link=number, capacity=0.0),
    )


def test_a_link_that_does_not_exist_and_its_nearest() -> None:
    with pytest.raises(UnknownNameError, match="link or device 'rank9'; did you mean 'rank0'"):
        LinkFault(link="rank9").changes(NETWORK)
    with pytest.raises(UnknownNameError, match="unknown link or device 'nothing/\\*'"):
        LinkFault(link="nothing/*").changes(NETWORK)


@pytest.mark.parametrize("share", [-0.1, 1.1, math.nan, math.inf])
def test_a_link_has_a_share_of_its_bandwidth(share: float) -> None:
    with pytest.raises(ConditionError, match=r"link a: share: expected 0 \(failed\) to 1"):
        LinkFault(link="a", share=share)


# ---- ranks, traffic, time ----


@pytest.mark.parametrize("value", [-1.0, math.inf, math.nan])
def test_times_are_times(value: float) -> None:
    for made in (
        lambda: Conditions(late={3: value}),
        lambda: Conditions(deaths={3: value}),
        lambda: LinkFault(link="a", time=value),
        lambda: Traffic(source=0, destination=1, nbytes=8, start=value),
    ):
        with pytest.raises(ConditionError, match="expected a time of 0 s or more, got"):
            made()


@pytest.mark.parametrize("factor", [0.0, -2.0, math.inf, math.nan])
def test_a_slow_rank_has_a_factor(factor: float) -> None:
    with pytest.raises(ConditionError, match="slow: rank 3: expected a factor above 0"):
        Conditions(slow={3: factor})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"destination": 0}, "traffic: expected two different ranks, got 0 twice"),
        ({"nbytes": -1}, "traffic: nbytes: expected 0 or more, got -1"),
        ({"rate": 0.0}, "traffic: rate: expected more than 0 bytes/s, got 0.0"),
        ({"rate": math.nan}, "traffic: rate: expected more than 0 bytes/s, got nan"),
    ],
)
def test_traffic_goes_somewhere(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConditionError, match=message):
        Traffic(**({"source": 0, "destination": 1, "nbytes": 8} | given))


@pytest.mark.parametrize("watchdog", [-1.0, math.nan])
def test_a_watchdog_waits_for_some_time(watchdog: float) -> None:
    with pytest.raises(ConditionError, match="watchdog: expected a time of 0 s or more"):
        Conditions(watchdog=watchdog)


def test_who_is_alike_with_whom() -> None:
    assert Conditions().healthy
    assert Conditions(watchdog=1.0).healthy  # who watches changes nothing
    for disturbed in (
        Conditions(late={0: 1e-6}),
        Conditions(slow={0: 1.0}),
        Conditions(deaths={0: 1.0}),
        Conditions(jitter=Jitter(mean=0.0)),
        Conditions(faults=(LinkFault(link="a"),)),
        Conditions(traffic=(Traffic(source=0, destination=1, nbytes=8),)),
    ):
        assert not disturbed.healthy
