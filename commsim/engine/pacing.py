"""A schedule at the pace of a library's software.

The profile says what a hop takes, what protocols leave of a link and what one channel copies. What
more there is to the bytes is below the grain of a schedule; so an operation is played alone on an
ideal cluster, and bytes are slowed down to take what the closed form says of them. If with the
profile's hops all then takes what the closed form says but for 3 %, the clocks are set by these; if
not, hops too are set so. What others, late ranks or broken links do is then found by playing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from commsim.collectives.schedule import WHOLE, Schedule, Window
from commsim.cost.cost import Pace
from commsim.engine import recurrence
from commsim.engine.network import Floats, Laid, Network, Ways, lay
from commsim.engine.plan import Plan, make_plan, punctual
from commsim.units import BytesPerSecond, Seconds

CLOSE, EQUAL = 0.03, 2e-3
"""How far below what is asked a trial with hops, and one of the bytes alone, may end: the clocks
make up for the rest."""
MOST_TRIALS, MOST_HOPS = 24, 1e6
CHANNELS_BIND = 4 / 3
"""Where bytes need this much longer than the links with their protocols explain, it is not these
that limit them but the channels: then each transfer has a limit of its own, and two collectives
need not be in each other's way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """channel: bytes/s, the most that one transfer gets. stretch: on the time that bytes need on a
    link. limit: the most that one transfer gets, as a share of its way's rate. hops: on the
    profile's time of a hop. slower: on all of these, the clocks.
    """

    channel: BytesPerSecond = np.inf
    stretch: float = 1.0
    limit: float = np.inf
    hops: float = 1.0
    slower: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tuned:
    """The tuning of a schedule, and how many times what the closed form says it takes alone: 1, but
    more where links allow no less. window: the rounds that sufficed to find out.
    """

    by: Tuning
    takes: float
    window: Window


def paced(laid: Laid, network: Network, pace: Pace, by: Tuning) -> Laid:
    """The ways with what software adds to them; no link carries more than it can.

    What a NIC and its protocol leave of its rate is lost at the NIC; between switches nothing is.
    """
    ways = laid.ways
    far, crossed = _far(ways, network), np.diff(ways.start) > 0
    share = np.where(far, pace.net_share, pace.local_share)
    more = np.maximum(1.0, by.slower * np.maximum(1.0, by.stretch / share))
    weight = ways.weight * np.where(
        network.between_switches[ways.crossing], 1.0, np.repeat(more, np.diff(ways.start))
    )
    hop = np.where(far, pace.net_hop, pace.local_hop) * crossed * by.hops * by.slower
    limit = np.where(crossed, np.minimum(ways.limit, by.channel / by.slower), ways.limit)
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
    build: Callable[[Window], Schedule],
    ideal: Network,
    pace: Pace,
    *,
    window: Window = WHOLE,
    multiplicity: int = 1,
    watch: Callable[[int], recurrence.Watch | None] = lambda ops: None,
) -> Tuned:
    """How a schedule has to be paced to take alone on `ideal` what the closed form says.

    build: the schedule with a window of its rounds, from `window` on. multiplicity: how many of the
    library's channels each of the schedule's stands for. watch: for a trial of so many ops what is
    called as `compiled.play` does.
    """
    laid = cache(lambda window: lay(build(window), ideal))
    body = pace.duration - pace.launch

    def time(by: Tuning) -> Seconds:
        nonlocal window

        def plan(window: Window) -> Plan:
            return make_plan([punctual(paced(laid(window), ideal, pace, by))], ideal.capacity)

        found = recurrence.play(plan, window, lambda plan: watch(len(plan)))
        window = found.window
        return float(found.times.arrived.max(initial=0.0))

    first = Tuning(channel=pace.channel * multiplicity, hops=0.0)
    by, takes = _hops(time, *_bytes(time, first, pace.transfer), body)
    return Tuned(by=by, takes=takes / body if body > 0 else 1.0, window=window)


def _bytes(
    time: Callable[[Tuning], Seconds], by: Tuning, target: Seconds
) -> tuple[Tuning, Seconds]:
    """The tuning with which the bytes by themselves take `target` s, and what they do take."""
    links_alone = time(by)
    if links_alone <= 0 or target <= 0:
        return by, links_alone
    if target < links_alone * CHANNELS_BIND:
        by = replace(by, stretch=target / links_alone)
        return by, time(by)

    def limited(slowness: float) -> Seconds:
        return time(replace(by, limit=1 / slowness))

    slowness, takes = _reach(limited, (1.0, links_alone), target / links_alone, target, EQUAL)
    return replace(by, limit=1 / slowness), takes


def _hops(
    time: Callable[[Tuning], Seconds], by: Tuning, bytes_alone: Seconds, target: Seconds
) -> tuple[Tuning, Seconds]:
    """The tuning with which hops and bytes together take `target` s, and what they do take."""
    if bytes_alone >= target:  # the closed form hides all hops
        if bytes_alone <= 0:
            return by, 0.0
        by = replace(by, slower=target / bytes_alone)
        return by, time(by)
    as_said = replace(by, hops=1.0)
    takes = time(as_said)
    if abs(takes / target - 1) > CLOSE:

        def with_hops(hops: float) -> Seconds:
            return time(replace(by, hops=hops))

        rise = takes - bytes_alone
        guess = (target - bytes_alone) / rise if rise > 0 else 2.0
        high = (1.0, takes) if takes > target else None
        hops, takes = _reach(with_hops, (0.0, bytes_alone), guess, target, CLOSE, high)
        as_said = replace(by, hops=hops)
    if takes <= 0:
        return by, 0.0
    by = replace(as_said, slower=target / takes)
    return by, target if takes <= target else time(by)


def _reach(
    time: Callable[[float], Seconds],
    low: tuple[float, Seconds],
    x: float,
    target: Seconds,
    close: float,
    high: tuple[float, Seconds] | None = None,
) -> tuple[float, Seconds]:
    """Where `time`, which grows with x from `low` on, comes as close to the target from below as
    the share `close` of it, and what it is there. Where it never does (it jumps, or grows no more),
    the slowest trial.
    """
    goal = (1 - close / 2) * target
    for _ in range(MOST_TRIALS):
        takes, other = time(x), high or low
        if takes > target:
            high = other = (x, takes)
        elif takes > low[1]:
            other, low = high or low, (x, takes)
        if (1 - close) * target <= low[1]:
            return low
        rise = (other[1] - low[1]) / (other[0] - low[0]) if other != low else 0.0
        step = (goal - low[1]) / rise if rise > 0 else 2 * x
        if high is not None:
            width = high[0] - low[0]
            x = low[0] + float(np.clip(step, width / 8, width * 7 / 8))
        elif x >= MOST_HOPS:
            break
        else:
            x = min(MOST_HOPS, max(low[0] + step, 1.25 * x))
    return low
