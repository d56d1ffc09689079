"""What an algorithm is: a schedule and a closed form, two independent answers that must meet."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from commsim.collectives.collective import Collective
from commsim.collectives.schedule import Schedule
from commsim.errors import CollectiveError
from commsim.units import BytesPerSecond, Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Rounds, and the bytes that the busiest rank moves one way in them, one after the other."""

    rounds: int
    nbytes: float

    def duration(self, latency: Seconds, bandwidth: BytesPerSecond) -> Seconds:
        """Seconds: rounds * latency + nbytes / bandwidth (Hockney's alpha-beta model)."""
        return self.rounds * latency + self.nbytes / bandwidth


class Algorithm(ABC):
    """One way to carry out some operations: who sends what after what."""

    __slots__ = ()
    operations: ClassVar[frozenset[str]]

    @abstractmethod
    def schedule(self, collective: Collective, n: int, channels: int = 1) -> Schedule:
        """The schedule on a group of `n` ranks, each buffer shared out over `channels`.

        Raises CollectiveError for an operation it does not serve.
        """

    @abstractmethod
    def cost(self, collective: Collective, n: int, channels: int = 1) -> Cost:
        """Rounds and bytes on n ranks that are all joined by equal links of their own."""

    def check(self, collective: Collective) -> None:
        """Raise CollectiveError unless the algorithm serves the operation."""
        if collective.operation not in self.operations:
            raise CollectiveError(
                f"{type(self).__name__}: expected one of {', '.join(sorted(self.operations))}, "
                f"got {collective.operation}"
            )
