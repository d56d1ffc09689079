"""What differs from an idle, healthy cluster on which all ranks begin together."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

import numpy as np

from commsim.engine.network import Floats, Network, ends_of
from commsim.engine.plan import Change
from commsim.errors import ConditionError, UnknownNameError
from commsim.units import BytesPerSecond, Seconds

DISTRIBUTIONS = ("exponential", "lognormal", "normal", "uniform")


@dataclass(frozen=True, slots=True, kw_only=True)
class Jitter:
    """Random time that software adds to every transfer: a distribution with this mean, in s.

    normal: half of it, |N| with that mean. lognormal: sigma 1. uniform: from 0 to twice the mean.
    """

    mean: Seconds
    distribution: str = "exponential"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.distribution not in DISTRIBUTIONS:
            raise UnknownNameError("distribution", self.distribution, DISTRIBUTIONS)
        _not_negative("jitter: mean", self.mean)

    def draw(self, count: int) -> Floats:
        """That many values, s; equal seeds give equal ones."""
        random = np.random.default_rng(self.seed)
        match self.distribution:
            case "exponential":
                return random.exponential(self.mean, count)
            case "uniform":
                return random.uniform(0.0, 2 * self.mean, count)
            case "normal":
                return np.abs(random.normal(0.0, self.mean * math.sqrt(math.pi / 2), count))
        return np.asarray(random.lognormal(-0.5, 1.0, count) * self.mean)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkFault:
    """From `time` on, links carry `share` of their bandwidth; 0: they have failed.

    link: a link's name ("node0/nic1 -> leaf3"), or a vertex, which means all links from and to it
    ("node0/nic1"); * and ? stand for any characters.
    """

    link: str
    share: float = 0.0
    time: Seconds = 0.0

    def __post_init__(self) -> None:
        _not_negative(f"link {self.link}: time", self.time)
        if not 0 <= self.share <= 1:
            raise ConditionError(
                f"link {self.link}: share: expected 0 (failed) to 1 (whole), got {self.share}"
            )

    @property
    def dead(self) -> bool:
        """Failed from the beginning."""
        return self.share == 0 and self.time == 0

    def means(self, name: str) -> bool:
        """Whether a device, switch or link of that name is meant."""
        return fnmatchcase(name, self.link)

    def changes(self, network: Network) -> tuple[Change, ...]:
        """What happens to each link that the name means; UnknownNameError if it means none."""
        found = [
            i
            for i, name in enumerate(network.links)
            if any(map(self.means, (name, " -> ".join(ends_of(name)), *ends_of(name))))
        ]
        if not found:
            ends = {end for name in network.links for end in ends_of(name)}
            where = "commsim topo CLUSTER --plot FILE.html; * and ? match"
            raise UnknownNameError("link or device", self.link, ends, where)
        left = network.capacity * self.share if self.share else np.zeros(len(network.capacity))
        return tuple(Change(time=self.time, link=i, capacity=float(left[i])) for i in found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Other traffic on the network: `nbytes` from one rank's device to another's, from `start` on,
    at `rate` bytes/s if it gets that much.
    """

    source: int
    destination: int
    nbytes: int
    start: Seconds = 0.0
    rate: BytesPerSecond = math.inf

    def __post_init__(self) -> None:
        if self.source == self.destination:
            raise ConditionError(f"traffic: expected two different ranks, got {self.source} twice")
        if self.nbytes < 0:
            raise ConditionError(f"traffic: nbytes: expected 0 or more, got {self.nbytes}")
        if not self.rate > 0:
            raise ConditionError(f"traffic: rate: expected more than 0 bytes/s, got {self.rate}")
        _not_negative("traffic: start", self.start)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """late: s after the others, by rank. slow: factor on a rank's software time and on the time
    that its bytes need (2: half as fast). deaths: when a rank dies, s. watchdog: s after which a
    rank that still waits reports a time-out (torch's NCCL default: 10 minutes).
    """

    late: Mapping[int, Seconds] = field(default_factory=dict)
    slow: Mapping[int, float] = field(default_factory=dict)
    deaths: Mapping[int, Seconds] = field(default_factory=dict)
    jitter: Jitter | None = None
    faults: tuple[LinkFault, ...] = ()
    traffic: tuple[Traffic, ...] = ()
    watchdog: Seconds = 600.0

    def __post_init__(self) -> None:
        for what, values in (("late", self.late), ("deaths", self.deaths)):
            for rank, value in values.items():
                _not_negative(f"{what}: rank {rank}", value)
        for rank, factor in self.slow.items():
            if not factor > 0 or math.isinf(factor):
                raise ConditionError(
                    f"slow: rank {rank}: expected a factor above 0 (2: half as fast), got {factor}"
                )
        if not self.watchdog >= 0:
            raise ConditionError(f"watchdog: expected a time of 0 s or more, got {self.watchdog}")

    @property
    def healthy(self) -> bool:
        """Whether nothing here breaks the likeness of the ranks."""
        return not (self.late or self.slow or self.deaths or self.jitter or self.faults) and (
            not self.traffic
        )


def _not_negative(where: str, value: Seconds) -> None:
    if not 0 <= value < math.inf:
        raise ConditionError(f"{where}: expected a time of 0 s or more, got {value}")
