"""What a format is in which a played step can be written."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod

from commsim.traces.replay import Replay


class StepWriter(ABC):
    """A format that can hold a step: what each rank computes and communicates, in order."""

    __slots__ = ()

    @abstractmethod
    def write_step(self, replay: Replay, path: str | os.PathLike[str]) -> tuple[str, ...]:
        """Write a step as it was played; the files written. ScheduleError names what the format
        cannot express."""
