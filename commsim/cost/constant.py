"""One number of the cost model, and how far predictions with it lie from measurements."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from commsim.errors import ProfileError

_V = TypeVar("_V")


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """One number of the model: value x factors.

    by: for every kind of tag (generation, transport ...) the factor of each tag that was fitted; a
    tag that is missing has factor 1. limits: what physics allows. error: standard error of
    ln(value) in the fit. machines: standard deviation of ln(value) from one machine to the next of
    the same tags, which is how far a calibration may move it.
    """

    value: float
    unit: str
    meaning: str
    birthplace: str
    error: float = 0.0
    machines: float = 0.0
    limits: tuple[float, float] = (0.0, math.inf)
    by: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Left-out residuals of one class of points: quantiles of ln(measured / predicted)."""

    low: float
    high: float
    points: int


class Known(dict[str, _V]):
    """A table of a profile; a key that it lacks is a ProfileError, not a KeyError."""

    def __init__(self, where: str, values: Mapping[str, _V]) -> None:
        dict.__init__(self, values)
        self.where = where

    def __missing__(self, key: str) -> _V:
        raise ProfileError(
            f"{self.where}: {key!r} is missing; use a profile made for this library and version"
        )
