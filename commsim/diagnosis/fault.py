"""The contract of a fault: what it makes of a machine, what points to it, how to check and mend it.

A fault is a module of `faults/` that holds one `FAULT`. It says what the library then sees and what
then carries the bytes; it knows nothing of measurements or likelihoods.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import commsim.diagnosis.faults as here
from commsim.collectives.collective import Collective
from commsim.cost.profile import Profile
from commsim.diagnosis.evidence import Clue, Evidence
from commsim.errors import CommsimError
from commsim.libraries.library import Library
from commsim.prediction import COSTS
from commsim.topology.cluster import Cluster
from commsim.units import Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A cluster as it should be, the library that ran on it, and the constants of the model."""

    cluster: Cluster
    library: Library
    profile: Profile

    @property
    def networked(self) -> bool:
        """Whether there is a network between machines at all."""
        cluster = self.cluster
        return bool(cluster.node.nics) and cluster.nodes > cluster.hosts_per_domain

    @property
    def nccl(self) -> bool:
        """Whether the library reads NCCL_ variables."""
        return self.library.name in ("nccl", "rccl")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A duration in s under a fault; the spread (ln low, ln high) of the model there; by how much,
    in ln, it moves with each of the variant's unsure parts, one standard deviation each."""

    duration: Seconds
    spread: tuple[float, float]
    slopes: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One way in which a fault may show: `detail` in words, its share among the fault's ways.

    Shares sum to 1 where the fault is as likely as on any machine, to less where it is seldom.
    cluster: what carries the bytes. seen: what the library believes to have, and chooses by (None:
    the same). launch, hops, transfer: factors on these parts of the time; delay: s on top of every
    call. unsure: for these parts of the time the standard deviation of ln(constant), where a fault
    puts to use what the machine does not use when it is well, and nobody has measured there.
    scatter: standard deviation of ln(time) from size to size, beside that of a healthy machine.
    """

    detail: str
    share: float
    cluster: Cluster
    library: Library
    profile: Profile
    seen: Cluster | None = None
    launch: float = 1.0
    hops: float = 1.0
    transfer: float = 1.0
    delay: Seconds = 0.0
    unsure: tuple[tuple[str, float], ...] = ()
    scatter: float = 0.0

    def cost(self, collective: Collective) -> Outcome:
        """What the collective takes under the fault.

        Raises CommsimError where the fault leaves no way to run the collective.
        """
        choice = self.library.choose(collective, self.seen or self.cluster)
        price = COSTS[self.library.name](
            collective, self.cluster, choice.chosen, choice.facts, self.profile
        )
        factors = {"launch": self.launch, "hops": self.hops, "transfer": self.transfer}
        parts = {name: factors.get(name, 1.0) * part for name, part in price.breakdown}
        duration = sum(parts.values()) + self.delay
        return Outcome(
            duration=duration, spread=price.spread,
            slopes=tuple(sd * parts.get(name, 0.0) / duration for name, sd in self.unsure),
        )  # fmt: skip


def healthy(setup: Setup) -> Variant:
    """The machine as it should be."""
    return Variant(
        detail="as it should be", share=1.0, cluster=setup.cluster, library=setup.library,
        profile=setup.profile,
    )  # fmt: skip


def no_clues(evidence: Evidence, setup: Setup) -> Iterator[Clue]:
    """What a fault that no log or topology text tells of has to say about one."""
    yield from ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault: `cause` is its name, `what` a line of words, `check` and `fix` what to do.

    variants: every way in which it may show on a machine; none where it cannot. clues: what in an
    NCCL log or a topology text speaks for or against it. settings: the variables that are this
    fault when a log shows them. incidents: published runs with this fault, each a case by itself.
    """

    cause: str
    what: str
    check: str
    fix: str
    variants: Callable[[Setup], Iterator[Variant]]
    clues: Callable[[Evidence, Setup], Iterator[Clue]] = no_clues
    settings: frozenset[str] = frozenset()
    incidents: tuple[str, ...] = ()

    @property
    def prior(self) -> float:
        """How often it is the cause when something is wrong, in parts of the sum over all faults:
        one and its incidents (Laplace's rule of succession)."""
        return 1.0 + len(self.incidents)


@lru_cache
def faults() -> tuple[Fault, ...]:
    """Every fault, by the name of its module."""
    names = sorted(module.name for module in pkgutil.iter_modules(here.__path__))
    return tuple(importlib.import_module(f"{here.__name__}.{name}").FAULT for name in names)


@lru_cache(maxsize=1024)
def variants(fault: Fault, setup: Setup) -> tuple[Variant, ...]:
    """The ways in which `fault` may show, none where it cannot."""
    try:
        return tuple(fault.variants(setup))
    except CommsimError:  # a machine that cannot have this fault
        return ()
