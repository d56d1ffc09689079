"""One fit of a machine: its constants, then what its formulas still miss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from commsim.calibration.batch import Array, Batch, Parameters, Placed, Values, placed
from commsim.calibration.fit import Solution, solve
from commsim.calibration.points import FAMILIES, Point
from commsim.calibration.smooth import Smooth, smooth
from commsim.cost.calibrated import Case
from commsim.cost.profile import Profile
from commsim.errors import ProfileError

HARDWARE = ("generation", "vendor", "link", "transport", "attach", "pair", "cpu")
"""Kinds of tags that tell machines apart; any other is a word of the setting."""
KINDS = ("generation", "transport")
"""Where machines in one calibration differ by these tags, each gets deviations of its own."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Problem:
    """The points of a calibration and the constants that they may move."""

    points: tuple[Point, ...]
    parameters: Parameters
    placed: list[Placed]
    measured: Array
    nbytes: Array
    cases: tuple[Case, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fitted:
    """Constants and corrections. predicted: s of every point, those without a say too."""

    solution: Solution
    smooth: Smooth
    predicted: Array


def problem(points: Sequence[Point], base: Profile, family: str) -> Problem:
    """What is to be fitted: every constant that a point's formula asks for and that differs from
    machine to machine, with the base's value as the centre of its prior."""
    found: list[Batch] = FAMILIES[family].batches(
        [(p.collective, p.cluster, p.choice) for p in points]
    )
    limits = {name: c.limits for name, c in base.constants.items()}
    nobody: Mapping[str, Sequence[str]] = dict.fromkeys(limits, ())

    def fixed(batch: Batch) -> Mapping[str, Array]:
        known = [base.values(tuple(tags.items())) for tags in batch.tags]
        return {name: np.log([max(k[name], 1e-300) for k in known]) for name in limits}

    still = Parameters(limits=limits, kinds=nobody)
    used: set[str] = set()
    for at in placed(found, still, fixed):
        asked = Values(np.zeros(0), still, at)
        try:
            at.batch.duration(asked)
        except KeyError as error:
            raise ProfileError(
                f"profile {base.name}: constants: {error} is missing; use a profile made for this "
                "library and version"
            ) from error
        used |= set(asked.used)
    several = _several([tags for batch in found for tags in batch.tags])
    free = [n for n in base.constants if n in used and base.constants[n].machines > 0]
    p = Parameters(
        limits=limits, kinds={name: tuple(several) if name in free else () for name in limits}
    )
    for name in free:
        p.add((name, "", ""), 0.0, base.constants[name].machines)
    for name in free:
        for kind, tags in several.items():
            for tag in tags:
                p.add((name, kind, tag), 0.0, base.constants[name].machines)
    return Problem(
        points=tuple(points), parameters=p, placed=placed(found, p, fixed),
        measured=np.array([point.measured for point in points]),
        nbytes=np.array([float(point.collective.nbytes) for point in points]),
        cases=tuple(point.case for point in points),
    )  # fmt: skip


def _several(tags: Sequence[Mapping[str, str]]) -> dict[str, list[str]]:
    """The values of every kind of tag by which these points differ: of hardware, KINDS; of
    settings, any, where not being set is one more way."""
    found = {}
    for kind in dict.fromkeys(kind for each in tags for kind in each):
        if kind in KINDS or kind not in HARDWARE:
            values = {each.get(kind, "none") for each in tags}
            known = sorted(values - {"none"})
            if len(known if kind in KINDS else values) > 1:
                found[kind] = known
    return found


def fit(
    asked: Problem,
    use: NDArray[np.bool_] | None = None,
    steps: int = 40,
    tolerance: float = 1e-5,
) -> Fitted:
    """The fit to the points in `use` (None: all)."""
    if use is None:
        use = np.ones(len(asked.points), dtype=np.bool_)
    found = solve(
        asked.parameters, asked.placed, asked.measured, use.astype(np.float64),
        steps=steps, tolerance=tolerance,
    )  # fmt: skip
    rest = smooth(asked.cases, asked.nbytes, np.log(asked.measured / found.durations), use)
    by = np.exp(rest.at(asked.cases, asked.nbytes))
    return Fitted(solution=found, smooth=rest, predicted=found.durations * by)
