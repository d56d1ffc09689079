"""Predicted against measured, for files of measurements: how far a profile can be believed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from commsim.calibration.points import Point, family, points
from commsim.cost.calibrated import class_of, regime
from commsim.cost.profile import Profile
from commsim.errors import CalibrationError
from commsim.measurements.measurement import Measurement
from commsim.prediction import Prediction, predict


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Compared:
    """One question, its measured answers, and the predicted one."""

    point: Point
    prediction: Prediction

    @property
    def ratio(self) -> float:
        """Predicted over measured."""
        return self.prediction.duration / self.point.measured

    @property
    def inside(self) -> float:
        """Share of the measurements within the predicted 80 % interval."""
        low, high = self.prediction.interval
        each = [low <= m.duration <= high for m in self.point.measurements]
        return sum(each) / len(each)


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How far predictions of a group of points are off, as shares (1 = 100 %).

    kind: what it is grouped by. worst_tenth: the error that a tenth of the points exceed. bias:
    geometric mean of predicted over measured. inside: measurements within the 80 % interval.
    """

    kind: str
    group: str
    points: int
    median: float
    mean: float
    worst_tenth: float
    bias: float
    inside: float


KINDS: dict[str, Callable[[Compared], str]] = {
    "all": lambda c: "all",
    "nodes/regime": lambda c: class_of(c.point.case.nodes, c.point.collective.nbytes),
    "regime": lambda c: regime(c.point.collective.nbytes),
    "operation": lambda c: c.point.case.operation,
    "nodes": lambda c: str(c.point.case.nodes),
    "ranks": lambda c: str(c.point.case.ranks),
}


def compare(
    measurements: Iterable[Measurement], profile: Profile | str | Path | None = None
) -> tuple[Compared, ...]:
    """Every question of the measurements with its prediction, repeats as their median.

    profile: None is the one that comes with commsim for each measurement's library; a profile of
    another library than the measurements' is refused. Raises CalibrationError where a measurement
    names no cluster, or none is left to compare.
    """
    if profile is not None and not isinstance(profile, Profile):
        profile = Profile.load(profile)
    by: dict[str, list[Measurement]] = {}
    for m in measurements:
        by.setdefault(family([m]), []).append(m)
    found = [
        Compared(point=p, prediction=predict(p.collective, p.cluster, p.library, profile=profile))
        for name, mine in by.items()
        for p in points(mine, name)
    ]
    if not found:
        raise CalibrationError(
            "measurements: expected one at least with the right result and some bytes, got none"
        )
    return tuple(found)


def agreement(compared: Sequence[Compared]) -> tuple[Agreement, ...]:
    """The errors of all points, then by nodes and regime, regime, operation, nodes and ranks."""
    rows = []
    for kind, group_of in KINDS.items():
        groups: dict[str, list[Compared]] = {}
        for c in compared:
            groups.setdefault(group_of(c), []).append(c)
        rows += [_row(kind, group, mine) for group, mine in sorted(groups.items(), key=_order)]
    return tuple(rows)


def _order(item: tuple[str, list[Compared]]) -> tuple[float, str]:
    """Numbers by their value, classes from small to large sizes, other names by letter."""
    name = item[0]
    place = {"latency": 0.0, "middle": 1.0, "bandwidth": 2.0}.get(name.rpartition("/")[2], 0.0)
    multi = 10.0 * name.startswith("multi-node")
    return (float(name) if name.isdigit() else place + multi, name)


def _row(kind: str, group: str, mine: Sequence[Compared]) -> Agreement:
    ratio = np.array([c.ratio for c in mine])
    error = np.abs(ratio - 1)
    return Agreement(
        kind=kind, group=group, points=len(mine), median=float(np.median(error)),
        mean=float(np.mean(error)), worst_tenth=float(np.quantile(error, 0.9)),
        bias=float(np.exp(np.mean(np.log(ratio)))),
        inside=float(np.mean([c.inside for c in mine])),
    )  # fmt: skip
