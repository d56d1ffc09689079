"""The constants of the NCCL cost model with their prior knowledge (validation/priors.toml).

Priors are log-normal: value x exp(sd x N(0, 1)). A deviation (by generation, transport ...) is a
factor with its own sd, so that hardware with few measurements stays near the average of the others.
Two tables move its centre ("transport:tcp"): `public`, what published figures of that class of
hardware say, each with its source, and `seen`, what published runs of the very platforms suggested,
which the left-out error is reckoned without. The fit moves them all; nothing here reaches a
prediction without it.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Prior:
    """What is believed of one constant before any measurement. limits: what physics allows."""

    value: float
    sd: float
    unit: str
    meaning: str
    source: str
    by: dict[str, float] = field(default_factory=dict)
    limits: tuple[float, float] = (0.0, float("inf"))
    public: dict[str, float] = field(default_factory=dict)
    seen: dict[str, float] = field(default_factory=dict)

    def centre(self, kind: str, tag: str, tables: Collection[str]) -> float:
        """Around which a factor lies before any measurement, by these of the tables "public" and
        "seen"; the later one counts."""
        at = 1.0
        for name in ("public", "seen"):
            if name in tables:
                at = getattr(self, name).get(f"{kind}:{tag}", at)
        return at

    def tags(self, kind: str) -> set[str]:
        """Those of a kind that any table names."""
        named = (key.split(":") for key in (*self.public, *self.seen))
        return {tag for k, tag in named if k == kind}

    @property
    def machines(self) -> float:
        """Standard deviation of ln(value) from one machine to the next of the same tags: half of
        what is not known of any machine beforehand. A half, for of the tried shares (none, 1/4,
        1/2, 1) it predicted best what a calibration on three sizes had not seen, platforms left out
        of the constants (docs/calibration.md)."""
        return MACHINES * math.sqrt(self.sd**2 + sum(sd**2 for sd in self.by.values()))


MACHINES = 0.5


def _read() -> dict[str, Prior]:
    data = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    return {
        name: Prior(**{**row, "limits": tuple(row.get("limits", (0.0, float("inf"))))})
        for name, row in data.items()
    }


PRIORS: dict[str, Prior] = _read()
