"""The constants of the NCCL cost model with their prior knowledge (validation/priors.toml).

Priors are log-normal: value x exp(sd x N(0, 1)). A deviation (by generation, transport ...) is a
factor with its own sd, so that hardware with few measurements stays near the average of the others;
`expect` moves the centre of one ("transport:efa-v1") where public knowledge says that this hardware
differs; some of these were chosen after seeing published runs of that hardware, so the left-out
error is reckoned without them. The fit moves them all; nothing here reaches a prediction
without it.
"""

from __future__ import annotations

import tomllib
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
    expect: dict[str, float] = field(default_factory=dict)


def _read() -> dict[str, Prior]:
    data = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    return {
        name: Prior(**{**row, "limits": tuple(row.get("limits", (0.0, float("inf"))))})
        for name, row in data.items()
    }


PRIORS: dict[str, Prior] = _read()
