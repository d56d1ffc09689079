"""`python -m validation.fit`: fits the NCCL/RCCL constants to the published measurements and
writes the shipped profile.

Minimises, over ln(constants) and their deviations, the robust sum of squared ln(predicted /
measured), every platform weighing the same, plus the priors of validation/priors.py. Then refits
with each platform left out, from which come the left-out error and the intervals.
"""

from __future__ import annotations

import datetime
import sys
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from commsim.calibration.batch import Array, Batch, Parameters, placed
from commsim.calibration.fit import Solution, solve
from commsim.calibration.nccl_batches import batches
from commsim.cost import nccl as nccl_cost
from commsim.cost.calibrated import WIDEN, class_of
from commsim.cost.features import machine
from commsim.cost.profile import Constant, Profile, Spread
from validation import report
from validation.priors import PRIORS
from validation.published import Point, read_points

PROFILE = Path(nccl_cost.__file__).with_name("profiles") / "nccl.toml"
REPORT = Path(__file__).with_name("sections") / "collectives.md"

EVENNESS = 0.5
"""How far platforms weigh the same in the interval: 0 every point, 1 every platform."""
EFFECTIVE = 120.0
"""Points of one platform are not independent: together they weigh as this many."""
LEAST_TRUSTED = {
    "ALCF Polaris (HPE Apollo 6500 Gen10+)": 0.5,
    "ALCF Polaris (HPE Apollo 6500 Gen10+), sockets": 0.5,
}
"""Platforms whose residuals are not hardware (environment noise), with their weight."""


def parameters(batches: list[Batch], tables: Collection[str]) -> Parameters:
    """All ln(constants) and ln(factors) as one vector, with their priors.

    tables: which of the priors' tables ("public", "seen") move the centre of a deviation.
    """
    p = Parameters(
        limits={name: prior.limits for name, prior in PRIORS.items()},
        kinds={name: tuple(prior.by) for name, prior in PRIORS.items()},
    )
    for name, prior in PRIORS.items():
        p.add((name, "", ""), float(np.log(prior.value)), prior.sd)
    present: dict[str, set[str]] = defaultdict(set)
    for batch in batches:
        for tags in batch.tags:
            for kind, tag in tags.items():
                present[kind].add(tag)
    for name, prior in PRIORS.items():
        for kind, sd in prior.by.items():
            for tag in sorted((present[kind] | prior.tags(kind)) - {"none"}):
                centre = prior.centre(kind, tag, tables)
                p.add((name, kind, tag), float(np.log(centre)), sd)
    return p


class Fitter:
    def __init__(self, points: list[Point], tables: Collection[str] = ("public", "seen")) -> None:
        self.points = points
        asked = [
            (p.collective, p.cluster, p.library.choose(p.collective, p.cluster)) for p in points
        ]
        found = batches(asked)
        self.p = parameters(found, tables)
        self.placed = placed(found, self.p)
        self.measured = np.array([pt.measured for pt in points])
        self.platform = np.array([pt.platform for pt in points])
        self.judged = np.array([pt.judged for pt in points])
        self.platforms = sorted(set(self.platform[self.judged]))
        self.weight = np.zeros(len(points))
        for name in sorted(set(self.platform)):
            mine = self.platform == name
            trust = LEAST_TRUSTED.get(name, 1.0)
            self.weight[mine] = trust * np.sqrt(min(1.0, EFFECTIVE / mine.sum()))

    def fit(self, leave_out: str | None = None, start: Array | None = None) -> Solution:
        """The constants, from all platforms but one."""
        out = np.array([leave_out is not None and p.startswith(leave_out) for p in self.platform])
        weight = np.where(out, 0.0, self.weight)
        return solve(self.p, self.placed, self.measured, weight, start)

    def headline(self, predicted: Array) -> tuple[float, dict[str, float]]:
        ape = np.abs(predicted / self.measured - 1)
        by = {name: float(np.median(ape[self.platform == name])) for name in self.platforms}
        return float(np.mean(list(by.values()))), by

    def leave_one_out(self) -> Array:
        """Predictions of every platform by constants that never saw it; each fit starts from the
        priors."""
        out = np.full(len(self.points), np.nan)
        for i, name in enumerate(self.platforms):
            print(f"  left out {i + 1}/{len(self.platforms)}: {name}", file=sys.stderr)
            mine = self.platform == name
            out[mine] = self.fit(name).durations[mine]
        return out


def _class(point: Point) -> str:
    facts: Any = point.library.choose(point.collective, point.cluster).facts
    return class_of(facts.communicator.nodes, point.collective.nbytes)


def spreads(fitter: Fitter, left_out: Array, without: str = "") -> dict[str, Spread]:
    """10 % and 90 % quantiles of ln(measured / left-out prediction) by class, weighted between
    points and platforms."""
    r = np.log(fitter.measured / left_out)
    classes = np.array([_class(p) for p in fitter.points])
    out = {}
    for name in ["all", *sorted(set(classes))]:
        mine = fitter.judged & ((classes == name) if name != "all" else True)
        w = np.zeros(len(r))
        for platform in fitter.platforms:
            both = mine & (fitter.platform == platform)
            if both.any() and platform != without:
                w[both] = 1 / both.sum() ** EVENNESS
        if not w.any():
            continue
        order = np.argsort(r[mine])
        c = np.cumsum(w[mine][order])
        c = (c - c[0] / 2) / c[-1]
        low, high = np.interp([0.1, 0.9], c, r[mine][order])
        out[name] = Spread(
            low=float(min(low, -0.01)), high=float(max(high, 0.01)), points=int(mine.sum())
        )
    return out


def to_profile(fitter: Fitter, fit: Solution, left_out: Array) -> Profile:
    p, n = fitter.p, len(fitter.points)
    birth = (
        f"fit of {datetime.date.today()} to {n} published points of {len(fitter.platforms)} "
        "platforms (validation/published, python -m validation.fit); prior: "
    )
    constants = {}
    for name, prior in PRIORS.items():
        at = p.place[name, "", ""]
        by: dict[str, dict[str, float]] = {}
        for (other, kind, tag), i in p.place.items():
            if other == name and kind:
                by.setdefault(kind, {})[tag] = float(np.exp(fit.theta[i]))
        constants[name] = Constant(
            value=float(np.exp(fit.theta[at])),
            unit=prior.unit,
            meaning=prior.meaning,
            birthplace=birth + prior.source,
            error=float(fit.error[at]),
            machines=prior.machines,
            by=by,
            limits=prior.limits,
        )
    return Profile(
        name="nccl",
        source="published nccl-tests and rccl-tests results, validation/published/logs.csv",
        constants=constants,
        spreads=spreads(fitter, left_out),
        fitted=fitted(fitter.points) | {"platforms": tuple(fitter.platforms)},
    )


def coverage(fitter: Fitter, left_out: Array) -> tuple[float, dict[str, float]]:
    """Share of left-out measurements inside the interval that a profile without their platform
    would give."""
    classes = np.array([_class(p) for p in fitter.points])
    inside: dict[str, float] = {}
    counts = []
    for platform in fitter.platforms:
        others = spreads(fitter, left_out, platform)
        known = fitted([p for p in fitter.points if not p.platform.startswith(platform)])
        hit = []
        for i in np.flatnonzero(fitter.platform == platform):
            point = fitter.points[i]
            facts: Any = point.library.choose(point.collective, point.cluster).facts
            doubtful = nccl_cost.doubts(
                point.collective.operation,
                facts.communicator.nodes,
                machine(point.cluster, facts),
                known,
            )
            s = others.get(classes[i], others["all"])
            widen = WIDEN ** len(doubtful)
            low, high = left_out[i] * np.exp(s.low * widen), left_out[i] * np.exp(s.high * widen)
            hit.append(np.mean([low <= t <= high for t in point.times]))
        inside[platform] = float(np.mean(hit))
        counts += hit
    return float(np.mean(counts)), inside


def fitted(points: list[Point]) -> dict[str, tuple[str, ...]]:
    """What these points cover: tags of every kind, the largest group, the operations."""
    tags: dict[str, set[str]] = defaultdict(set)
    nodes = ranks = 0
    for point in points:
        facts: Any = point.library.choose(point.collective, point.cluster).facts
        for kind, tag in machine(point.cluster, facts).tags:
            tags[kind].add(tag)
        nodes = max(nodes, facts.communicator.nodes)
        ranks = max(ranks, facts.placement.n)
    return {kind: tuple(sorted(v - {"none"})) for kind, v in sorted(tags.items())} | {
        "max_nodes": (str(nodes),), "max_ranks": (str(ranks),),
        "operations": tuple(sorted({p.collective.operation for p in points})),
    }  # fmt: skip


def main() -> None:
    print(
        "reading validation/published and asking the libraries for their choices", file=sys.stderr
    )
    points = read_points()
    fitter = Fitter(points)
    print(f"fitting {len(fitter.p.keys)} values to {len(points)} points", file=sys.stderr)
    full = fitter.fit()
    print("leaving platforms out, priors without what platforms suggested", file=sys.stderr)
    left_out = Fitter(points, ("public",)).leave_one_out()
    print("leaving platforms out, priors without any centre", file=sys.stderr)
    bare = Fitter(points, ()).leave_one_out()
    to_profile(fitter, full, left_out).save(PROFILE)
    of = fitter.judged
    judged = [p for p in points if p.judged]
    text = report.document(
        judged,
        {"fitted": full.durations[of], "left out": left_out[of], "bare": bare[of]},
        [_class(p) for p in judged],
        coverage(fitter, left_out),
        [p for p in points if not p.judged],
        full.durations[~of],
    )
    REPORT.write_text(text, encoding="utf-8")
    print(f"wrote {PROFILE} and {REPORT}", file=sys.stderr)


if __name__ == "__main__":
    main()
