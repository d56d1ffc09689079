"""The cores that run all ranks of a lab: how many, and how much slower than the profile's."""

from __future__ import annotations

import os
from dataclasses import dataclass

from commsim.cost.host_speed import Speed

AS_FITTED = Speed()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cores:
    """How many cores there are, and how many times longer than on the machine on which the
    constants were fitted they take."""

    number: int
    speed: Speed = AS_FITTED

    def __str__(self) -> str:
        by = self.speed
        return (
            f"{self.number} cores; times the profile's: messages {by.messages:.2f}, "
            f"bytes {by.nbytes:.2f}, copies {by.copies:.2f}"
        )


HERE = Cores(number=os.cpu_count() or 1)
"""This machine's, taken to be as fast as the profile's."""
