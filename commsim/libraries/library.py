"""The contract of a library model: who decides algorithm, protocol and channels, and why."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from commsim.collectives.collective import Collective
from commsim.topology.cluster import Cluster
from commsim.units import Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One way to run the collective.

    estimate: what the library itself believes (s; inf where it is ruled out, nan where the library
    has no estimate and does not choose by one). reason: why it is ruled out, else "".
    """

    algorithm: str
    protocol: str
    channels: int
    estimate: Seconds
    available: bool = True
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What the library picks and what it looked at.

    facts: the numbers the cost model needs about how the library laid its channels (documented by
    each library).
    """

    chosen: Candidate
    candidates: tuple[Candidate, ...]
    reasons: tuple[str, ...]
    notes: tuple[str, ...] = ()
    facts: object = field(default=None, compare=False)


class Library(ABC):
    """A communication library of a given version and environment."""

    name: str
    version: str

    @abstractmethod
    def choose(self, collective: Collective, cluster: Cluster) -> Choice:
        """The algorithm, protocol and channels this library would use; every candidate, and why."""
