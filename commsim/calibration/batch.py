"""Many points under one formula at once, as functions of a vector of ln(constants).

Every constant is the sum of a fixed part (what a profile says for the point's hardware) and of some
entries of the vector: one for all points, and one for each tag (generation, transport ...) that it
may differ by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

Array = NDArray[np.float64]
Rows = NDArray[np.int64]
Key = tuple[str, str, str]
"""Constant, kind and tag; kind and tag are empty for the entry that all points share."""

STEP = 1e-5
"""Step of ln(constant) for derivatives."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batch:
    """Points of one formula. rows: where they stand among all points. tags: of each one's hardware.
    duration: s of each, from the constants by name."""

    rows: Rows
    tags: Sequence[Mapping[str, str]]
    duration: Callable[[Mapping[str, Any]], Array]


@dataclass(kw_only=True, eq=False)
class Parameters:
    """The vector's entries with their priors: ln(value) is mean +- sd. limits: of each constant,
    what physics allows."""

    limits: Mapping[str, tuple[float, float]]
    kinds: Mapping[str, Sequence[str]]
    keys: list[Key] = field(default_factory=list)
    mean: list[float] = field(default_factory=list)
    sd: list[float] = field(default_factory=list)
    place: dict[Key, int] = field(default_factory=dict)

    def add(self, key: Key, mean: float, sd: float) -> None:
        """One more entry."""
        self.place[key] = len(self.keys)
        self.keys.append(key)
        self.mean.append(mean)
        self.sd.append(sd)


@dataclass(frozen=True, kw_only=True, eq=False)
class Placed:
    """A batch and where its constants stand in the vector: for each, one column of entries for each
    kind of tag, -1 where a point has none. fixed: what is added to each, ln."""

    batch: Batch
    columns: Mapping[str, Sequence[Rows]]
    fixed: Mapping[str, Array]


def placed(
    batches: Sequence[Batch],
    p: Parameters,
    fixed: Callable[[Batch], Mapping[str, Array]] | None = None,
) -> list[Placed]:
    """Every batch with its columns."""
    return [
        Placed(
            batch=batch,
            columns={
                name: [
                    np.array([p.place.get((name, kind, t.get(kind, "")), -1) for t in batch.tags])
                    for kind in p.kinds[name]
                ]
                for name in p.limits
            },
            fixed=fixed(batch) if fixed else {},
        )
        for batch in batches
    ]


class Values(Mapping[str, Any]):
    """The constants of a batch's points under a vector, worked out when a formula asks. used: those
    that were asked for."""

    def __init__(self, theta: Array, p: Parameters, at: Placed) -> None:
        self.theta = np.append(theta, 0.0)  # entry -1: no deviation
        self.p, self.at = p, at
        self.used: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self.used:
            if name not in self.p.limits:
                raise KeyError(name)
            self.used[name] = self.value(name)
        return self.used[name]

    def value(self, name: str, more: float = 0.0) -> Any:
        """A constant within its limits, `more` added to its ln."""
        total: Any = self.at.fixed.get(name, 0.0) + more
        total = total + self.theta[self.p.place.get((name, "", ""), -1)]
        for column in self.at.columns[name]:
            total = total + self.theta[column]
        low, high = self.p.limits[name]
        return np.clip(np.exp(total), low, high)

    def moved(self, name: str) -> dict[str, Any]:
        """The constants that were used, one of them a STEP larger."""
        return {**self.used, name: self.value(name, STEP)}

    def __contains__(self, name: object) -> bool:
        return name in self.p.limits

    def __iter__(self) -> Iterator[str]:
        return iter(self.p.limits)

    def __len__(self) -> int:
        return len(self.p.limits)


def durations(theta: Array, p: Parameters, points: Sequence[Placed], n: int) -> Array:
    """s of every point under a vector."""
    out = np.empty(n)
    for at in points:
        out[at.batch.rows] = at.batch.duration(Values(theta, p, at))
    return out


def derivatives(
    theta: Array, p: Parameters, points: Sequence[Placed], n: int
) -> tuple[Array, csr_matrix]:
    """ln(duration) of every point, and its derivatives by every entry: a row for every point.

    A duration depends on its own constants only, so one step of one constant for all points at once
    gives the derivative by every entry that this constant sums.
    """
    logs = np.empty(n)
    rows, columns, slopes = [], [], []
    for at in points:
        known = Values(theta, p, at)
        logs[at.batch.rows] = before = np.log(at.batch.duration(known))
        for name in list(known.used):
            main = p.place.get((name, "", ""), -1)
            entries = [column for column in at.columns[name] if (column >= 0).any()]
            if main >= 0:
                entries.append(np.full(len(before), main))
            if entries:
                slope = (np.log(at.batch.duration(known.moved(name))) - before) / STEP
            for entry in entries:
                has = entry >= 0
                rows.append(at.batch.rows[has])
                columns.append(entry[has])
                slopes.append(slope[has])
    shape = (n, len(theta))
    if not rows:
        return logs, csr_matrix(shape)
    where = (np.concatenate(rows), np.concatenate(columns))
    return logs, csr_matrix((np.nan_to_num(np.concatenate(slopes)), where), shape=shape)
