"""A schedule at the pace of a library's software.

The profile says what a hop takes and what protocols leave of a link. How these overlap inside one
channel is below the grain of a schedule; so an operation is played alone on an ideal cluster, and
what the schedule cannot see is set so that this takes what the closed form says. What others, late
ranks or broken links do to it is then found by playing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import brentq

from commsim.collectives.schedule import Schedule
from commsim.cost.cost import Pace
from commsim.engine import compiled
from commsim.engine.network import Floats, Laid, Network, Ways, lay
from commsim.engine.plan import make_plan, punctual
from commsim.units import Seconds

CLOSE, NEAR = 1e-4, 1e-3
"""How exactly each number of a tuning is found, and when the time is near enough, as shares; what
is then left, `slower` makes up for."""
MOST_HOPS = 1e6
CHANNELS_BIND = 1.25
"""Where bytes need this much longer than the links with their protocols explain, it is not these
that limit them but the channels: then each transfer has a limit of its own, and two collectives
need not be in each other's way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """stretch: on the time that bytes need on a link. limit: the most that one transfer gets, as a
    share of its way's rate. hops: on the profile's time of a hop. slower: on all of these.
    """

    stretch: float = 1.0
    limit: float = np.inf
    hops: float = 1.0
    slower: float = 1.0


def paced(laid: Laid, network: Network, pace: Pace, by: Tuning) -> Laid:
    """The ways with what software adds to them; no link carries more than it can.

    What a NIC and its protocol leave of its rate is lost at the NIC; between switches nothing is.
    """
    ways = laid.ways
    far, crossed = _far(ways, network), np.diff(ways.start) > 0
    share = np.where(far, pace.net_share, pace.local_share)
    more = np.repeat(by.slower * np.maximum(1.0, by.stretch / share), np.diff(ways.start))
    weight = ways.weight * np.where(network.between_switches[ways.crossing], 1.0, more)
    hop = np.where(far, pace.net_hop, pace.local_hop) * crossed * by.hops * by.slower
    limit = ways.limit
    if np.isfinite(by.limit):
        limit = np.minimum(limit, rates(ways, weight, network) * by.limit)
    return replace(laid, ways=replace(ways, weight=weight, latency=hop, limit=limit))


def rates(ways: Ways, weight: Floats, network: Network) -> Floats:
    """What each way carries if nothing else is on it, bytes/s; inf where it crosses nothing."""
    crossed = np.flatnonzero(np.diff(ways.start))
    found = np.full(len(ways), np.inf)
    if len(crossed):
        found[crossed] = np.minimum.reduceat(
            network.capacity[ways.crossing] / weight, ways.start[crossed]
        )
    return found


def _far(ways: Ways, network: Network) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which ways cross the network."""
    far = np.zeros(len(ways), dtype=np.bool_)
    owner = np.repeat(np.arange(len(ways)), np.diff(ways.start))
    far[owner[network.over_network[ways.crossing]]] = True
    return far


def tuned(
    schedule: Schedule,
    network: Network,
    ideal: Network,
    pace: Pace,
    watch: Callable[[int, Seconds], None] | None = None,
) -> tuple[Laid, float]:
    """The schedule on `network`, so that alone on `ideal` it takes what the closed form says; and
    how many times that it takes there: 1, but more where links or pieces allow no less.

    watch: as of `compiled.play`, in every trial.
    """
    alone = lay(schedule, ideal)
    body = pace.duration - pace.launch

    def time(by: Tuning) -> Seconds:
        plan = make_plan([punctual(paced(alone, ideal, pace, by))], ideal.capacity)
        return float(compiled.play(plan, watch).arrived.max(initial=0.0))

    by, takes = _hops(time, _bytes(time, pace.transfer), body)
    return paced(lay(schedule, network), network, pace, by), takes / body if body > 0 else 1.0


def _bytes(time: Callable[[Tuning], Seconds], target: Seconds) -> Tuning:
    """The tuning with which the bytes by themselves take `target` s."""
    by = Tuning(hops=0.0)
    links_alone = time(by)
    if links_alone <= 0 or target <= 0:
        return by
    if target < links_alone * CHANNELS_BIND:
        return replace(by, stretch=target / links_alone)
    low = links_alone / target
    while time(replace(by, limit=low)) < target:
        low /= 2
    limit = brentq(
        lambda x: _off(time(replace(by, limit=x)), target), low, 1.0, xtol=CLOSE * low, rtol=CLOSE
    )
    return replace(by, limit=limit)


def _hops(time: Callable[[Tuning], Seconds], by: Tuning, target: Seconds) -> tuple[Tuning, Seconds]:
    """The tuning with which hops and bytes together take `target` s, and what they do take."""
    bytes_alone = time(by)
    if bytes_alone >= target:  # the closed form hides all hops
        if bytes_alone <= 0:
            return by, 0.0
        by = replace(by, stretch=by.stretch * target / bytes_alone)
        return by, time(by)
    below = (0.0, bytes_alone)  # hops and time of the slowest trial that is not too slow

    def error(hops: float) -> Seconds:
        nonlocal below
        takes = time(replace(by, hops=hops))
        if takes <= target:
            below = max(below, (hops, takes))
        return 0.0 if (1 - NEAR) * target <= takes <= target else takes - target

    most = 1.0
    while error(most) < 0:
        most *= 2
        if most > MOST_HOPS:  # no hop lies on the longest path
            return by, bytes_alone
    hops = brentq(error, 0.0, most, xtol=CLOSE * most, rtol=CLOSE)
    if below[1] > 0:  # transfers that meet or miss each other let the time jump with the hops
        hops, takes = below
    else:
        takes = time(replace(by, hops=hops))
    return replace(by, hops=hops, slower=target / takes), target


def _off(takes: Seconds, target: Seconds) -> Seconds:
    """How far from the target; 0, which ends the search, when near enough."""
    return 0.0 if abs(takes - target) <= NEAR * target else takes - target
