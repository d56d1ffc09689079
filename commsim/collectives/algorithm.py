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
    """Latencies and bytes that pass one after the other on the longest path.

    exact: on the algorithm's ideal network this holds to the last digit if all chunks are equally
    large; else it neglects what the algorithm's docstring says.
    """

    rounds: float
    nbytes: float
    exact: bool = True

    def duration(self, latency: Seconds, bandwidth: BytesPerSecond) -> Seconds:
        """Seconds: rounds * latency + nbytes / bandwidth (Hockney's alpha-beta model)."""
        return self.rounds * latency + self.nbytes / bandwidth


class Algorithm(ABC):
    """One way to carry out some operations: who sends what after what.

    ideal: the network on which the closed form holds: "ports" (each rank one port out and one in,
    at a switch that blocks nothing) or "pairs" (each ordered pair a link of its own).
    """

    __slots__ = ()
    operations: ClassVar[frozenset[str]]
    ideal: ClassVar[str] = "ports"

    @abstractmethod
    def schedule(self, collective: Collective, n: int, channels: int = 1) -> Schedule:
        """The schedule on a group of `n` ranks, each buffer shared out over `channels`.

        Raises CollectiveError for an operation it does not serve.
        """

    @abstractmethod
    def cost(self, collective: Collective, n: int, channels: int = 1) -> Cost:
        """Rounds and bytes on n ranks of the `ideal` network."""

    def check(self, collective: Collective) -> None:
        """Raise CollectiveError unless the algorithm serves the operation."""
        if collective.operation not in self.operations:
            raise CollectiveError(
                f"{type(self).__name__}: expected one of {', '.join(sorted(self.operations))}, "
                f"got {collective.operation}"
            )
