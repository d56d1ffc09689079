"""From measurements of a machine to a profile of it."""

from __future__ import annotations

import datetime
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from commsim import __version__
from commsim.calibration.batch import Array
from commsim.calibration.findings import learnt, outliers, undetermined
from commsim.calibration.held_out import Check, checks, rows
from commsim.calibration.model import Fitted, Problem, fit, problem
from commsim.calibration.points import Point, family, points
from commsim.cost.calibrated import (
    Calibration,
    Correction,
    Covered,
    Report,
    calibrated_class,
    class_of,
    regime,
)
from commsim.cost.profile import Constant, Profile, Spread, shipped, to_toml
from commsim.errors import CalibrationError
from commsim.measurements.measurement import Measurement

BEFOREHAND = 4.0
"""Points that the base's interval weighs as, in the interval of a class of points."""
LEAST = 0.01  # ln, of an interval to either side


def calibrate(
    measurements: Iterable[Measurement],
    base: Profile | str | Path | None = None,
    *,
    name: str = "calibrated",
    watch: Callable[[int, int], None] | None = None,
) -> Profile:
    """A profile of the machines that were measured; `.report` says how far it can be trusted.

    First the constants, from the base's as prior knowledge: least squares on ln(predicted /
    measured), robust (commsim.calibration.fit). Then what is left, smooth in the size
    (commsim.calibration.smooth). Sizes, operations and node counts are held back in turn for the
    error and the interval. Clusters may differ; the library may not. Ignored: that points of one
    run share its disturbances.

    base: the profile to start from; None is the one that comes with commsim. watch: is told how
    many of how many fits are done. Raises CalibrationError where a measurement names no cluster or
    there is nothing to fit, ProfileError for a base that cannot be used.

    >>> from commsim.collectives.collective import Collective
    >>> from commsim.topology.load import load_cluster
    >>> machine = load_cluster("dgx-h100")
    >>> slow = [
    ...     Measurement(Collective("all_reduce", nbytes=n), duration=t, cluster=machine)
    ...     for n, t in ((1 << 10, 30e-6), (1 << 20, 60e-6), (1 << 30, 6e-3))
    ... ]
    >>> profile = calibrate(slow)
    >>> profile.report.points
    3
    """
    given = list(measurements)
    kind = family(given)
    start = base if isinstance(base, Profile) else shipped(kind) if base is None else None
    start = start or Profile.load(Path(str(base)))
    asked = problem(points(given, kind), start, kind)
    if not asked.points:
        raise CalibrationError(
            "measurements: expected one at least with the right result and some bytes, "
            f"got {len(given)} without"
        )
    tell = watch or _nobody
    whole = fit(asked)
    tested = checks(asked, tell)
    report = Report(
        measurements=len(given),
        points=len(asked.points),
        fitted=float(np.median(np.abs(whole.predicted / asked.measured - 1))),
        held_out=rows(asked, tested),
        learnt=learnt(asked, whole, start),
        undetermined=undetermined(asked, whole, start),
        outliers=outliers(asked, whole),
    )
    made = Calibration(
        made=str(datetime.date.today()), commsim=__version__, base=f"{start.name} ({start.source})",
        files=_files(given), covered=_covered(asked, start),
        corrections=(*_kept(asked, start), *whole.smooth.corrections()), report=report,
    )  # fmt: skip
    profile = Profile(
        name=name,
        source=f"commsim calibrate, {made.made}, {report.points} points of "
        f"{', '.join(made.files) or 'measurements without a file'}",
        constants=_constants(asked, whole, start, report),
        spreads={**start.spreads, **_spreads(asked, tested, start)},
        fitted=_fitted(asked, start),
        calibration=made,
    )
    return Profile.read(to_toml(profile))  # with the digits that its file has


def _nobody(done: int, of: int) -> None:
    """Is told of fits and does nothing."""


def _files(given: Sequence[Measurement]) -> tuple[str, ...]:
    names = (dict(m.provenance).get("file", "") for m in given)
    return tuple(name for name in dict.fromkeys(names) if name)


def _covered(asked: Problem, base: Profile) -> tuple[Covered, ...]:
    """What the points cover, and what the base covered of other operations and hardware."""
    groups: dict[tuple[str, str], list[Point]] = defaultdict(list)
    for point in asked.points:
        groups[point.case.hardware, point.case.operation].append(point)
    found = [
        Covered(
            hardware=hardware, operation=operation, points=len(mine),
            ranks=_ends(p.case.ranks for p in mine), nodes=_ends(p.case.nodes for p in mine),
            sizes=_ends(p.collective.nbytes for p in mine),
            settings=tuple(dict.fromkeys(" ".join(p.case.setting) for p in mine if p.case.setting)),
        )
        for (hardware, operation), mine in groups.items()
    ]  # fmt: skip
    before = base.calibration.covered if base.calibration else ()
    return (*(c for c in before if (c.hardware, c.operation) not in groups), *found)


def _kept(asked: Problem, base: Profile) -> list[Correction]:
    """The base's corrections of operations and hardware that were not measured again."""
    again = {(case.hardware, case.operation) for case in asked.cases}
    before = base.calibration.corrections if base.calibration else ()
    return [c for c in before if (c.hardware, c.operation) not in again]


def _ends(values: Iterable[int]) -> tuple[int, int]:
    known = list(values)
    return min(known), max(known)


def _constants(
    asked: Problem, found: Fitted, base: Profile, report: Report
) -> Mapping[str, Constant]:
    """The base's constants, moved; the others as they were."""
    p, theta, error = asked.parameters, found.solution.theta, found.solution.error
    out = dict(base.constants)
    for (name, kind, tag), i in p.place.items():
        constant, by = out[name], math.exp(theta[i])
        if kind:
            factors = {k: dict(v) for k, v in constant.by.items()}
            own = factors.setdefault(kind, {})
            own[tag] = own.get(tag, 1.0) * by
            out[name] = replace(constant, by=factors)
        else:
            out[name] = replace(
                constant, value=constant.value * by, error=float(error[i]),
                birthplace=f"calibrated on {report.points} points, x {by:.4g} of: "
                f"{constant.birthplace}",
            )  # fmt: skip
    return out


def _spreads(asked: Problem, tested: Sequence[Check], base: Profile) -> Mapping[str, Spread]:
    """The interval by class: quantiles of what was held back by size, with the base's as
    BEFOREHAND points."""
    off = np.full(len(asked.points), np.nan)
    for check in tested:
        if check.left_out == "size":
            off = np.log(asked.measured / check.predicted)
    kinds = [
        (class_of(case.nodes, n), calibrated_class(case.nodes, n), regime(n))
        for case, n in zip(asked.cases, asked.nbytes, strict=True)
    ]
    widest = max(base.spreads.values(), key=lambda s: s.high - s.low)
    found = {"calibrated": _spread(off[np.isfinite(off)], base.spreads.get("all", widest))}
    for kind, calibrated, size in dict.fromkeys(kinds):
        mine = np.array([kind == other for other, *_ in kinds]) & np.isfinite(off)
        before = base.spreads.get(kind) or base.spreads.get(size) or widest
        found[calibrated] = _spread(off[mine], before)
    return found


def _spread(off: Array, before: Spread) -> Spread:
    n = len(off)
    low, high = np.quantile(off, (0.1, 0.9)) if n else (0.0, 0.0)

    def joined(mine: float, theirs: float) -> float:
        return math.sqrt((n * mine**2 + BEFOREHAND * theirs**2) / (n + BEFOREHAND))

    return Spread(
        low=-joined(min(float(low), -LEAST), before.low),
        high=joined(max(float(high), LEAST), before.high),
        points=n,
    )


def _fitted(asked: Problem, base: Profile) -> Mapping[str, tuple[str, ...]]:
    """What base and calibration were fitted on together."""
    out = dict(base.fitted)
    for at in asked.placed:
        for tags in at.batch.tags:
            for kind, tag in tags.items():
                if kind in out and tag not in (*out[kind], "none"):
                    out[kind] = tuple(sorted((*out[kind], tag)))
    tops = {
        "max_nodes": max(case.nodes for case in asked.cases),
        "max_ranks": max(case.ranks for case in asked.cases),
    }
    for key, top in tops.items():
        if key in out:
            out[key] = (str(max(int(out[key][0]), top)),)
    for key in ("operation", "operations"):
        if key in out:
            names = {case.operation for case in asked.cases}
            out[key] = tuple(sorted({*out[key], *names}))
    return out
