"""What a trace format is: it reads traces from files, writes them, or both."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass

from commsim.collectives.collective import Collective
from commsim.collectives.schedule import Schedule


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace:
    """A collective, and who sends what after what to carry it out."""

    collective: Collective
    schedule: Schedule
    name: str = "commsim"


class TraceReader(ABC):
    """A format that can be read. What its files leave open are fields of the class."""

    __slots__ = ()

    @abstractmethod
    def read(self, path: str | os.PathLike[str]) -> Trace:
        """The trace in a file; SpecError lists every problem found. Whether its schedule computes
        its collective is for `verify` to say.
        """


class TraceWriter(ABC):
    """A format that can be written. What a trace leaves open are fields of the class."""

    __slots__ = ()

    @abstractmethod
    def write(self, trace: Trace, path: str | os.PathLike[str]) -> None:
        """Write a trace; ScheduleError names what the format cannot express."""
