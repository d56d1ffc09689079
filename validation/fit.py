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
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares
from scipy.sparse import csr_matrix

from commsim.cost import nccl as nccl_cost
from commsim.cost.features import features, machine
from commsim.cost.formulas import FORMULAS
from commsim.cost.profile import Constant, Profile, Spread
from validation import report
from validation.priors import PRIORS
from validation.published import Point, read_points

Array = NDArray[np.float64]

STEP = 1e-5
"""Step of ln(constant) for derivatives."""

PROFILE = Path(nccl_cost.__file__).with_name("profiles") / "nccl.toml"
REPORT = Path(__file__).with_name("REPORT.md")

NOISE = 0.08
"""Scale of ln(predicted / measured) below which a residual counts squared, above which linearly."""
EVENNESS = 0.5
"""How far platforms weigh the same in the interval: 0 every point, 1 every platform."""
EFFECTIVE = 120.0
"""Points of one platform are not independent: together they weigh as this many."""
LEAST_TRUSTED = {
    "ALCF Polaris (HPE Apollo 6500 Gen10+)": 0.5,
    "ALCF Polaris (HPE Apollo 6500 Gen10+), sockets": 0.5,
}
"""Platforms whose residuals are not hardware (environment noise), with their weight."""


@dataclass
class Group:
    """Points of one formula and protocol, as arrays."""

    formula: Any
    rows: NDArray[np.int64]
    f: SimpleNamespace
    tags: list[dict[str, str]]
    floor: Array
    names: tuple[str, ...] = ()
    index: dict[str, list[NDArray[np.int64]]] | None = None


class Parameters:
    """All ln(constants) and ln(factors) as one vector, with their priors.

    informed: whether `expect` moves the centre of a deviation. Some of these centres were chosen
    after seeing the platforms that they help, so a left-out fit must do without them.
    """

    def __init__(self, groups: list[Group], informed: bool) -> None:
        self.keys: list[tuple[str, str, str]] = []
        self.mean: list[float] = []
        self.sd: list[float] = []
        self.place: dict[tuple[str, str, str], int] = {}
        for name, prior in PRIORS.items():
            self._add((name, "", ""), float(np.log(prior.value)), prior.sd)
        present: dict[str, set[str]] = defaultdict(set)
        for g in groups:
            for tags in g.tags:
                for kind, tag in tags.items():
                    present[kind].add(tag)
        for name, prior in PRIORS.items():
            for kind, sd in prior.by.items():
                expected = {e.split(":")[1] for e in prior.expect if e.startswith(kind + ":")}
                for tag in sorted((present[kind] | expected) - {"none"}):
                    centre = prior.expect.get(f"{kind}:{tag}", 1.0) if informed else 1.0
                    self._add((name, kind, tag), float(np.log(centre)), sd)
        for g in groups:
            g.index = {
                name: [
                    np.array([self.place.get((name, kind, t.get(kind, "")), -1) for t in g.tags])
                    for kind in PRIORS[name].by
                ]
                for name in PRIORS
            }

    def _add(self, key: tuple[str, str, str], mean: float, sd: float) -> None:
        self.place[key] = len(self.keys)
        self.keys.append(key)
        self.mean.append(mean)
        self.sd.append(sd)


class Lazy(Mapping[str, Any]):
    """Constants of a group's points under a parameter vector, worked out when a formula asks."""

    def __init__(self, theta: Array, p: Parameters, g: Group, moved: str = "") -> None:
        self.theta = np.append(theta, 0.0)
        self.p, self.g, self.moved = p, g, moved
        self.used: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self.used:
            assert self.g.index is not None
            total: Any = self.theta[self.p.place[name, "", ""]] + STEP * (name == self.moved)
            for column in self.g.index[name]:
                total = total + self.theta[column]
            low, high = PRIORS[name].limits
            self.used[name] = np.clip(np.exp(total), low, high)
        return self.used[name]

    def __iter__(self) -> Any:
        return iter(PRIORS)

    def __len__(self) -> int:
        return len(PRIORS)


def build(points: list[Point]) -> list[Group]:
    """Points sorted by formula, with the library's own choice of algorithm and protocol."""
    sorted_: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for i, point in enumerate(points):
        choice = point.library.choose(point.collective, point.cluster)
        m = machine(point.cluster, choice.facts)
        f = features(point.collective, choice.chosen, choice.facts, m)
        floor = (
            nccl_cost.SINGLE_LAUNCH * choice.facts.placement.max_per_host
            if choice.facts.launch == "single"
            else 0.0
        )
        sorted_[choice.chosen.algorithm, choice.chosen.protocol].append((i, f, dict(m.tags), floor))
    groups = []
    for (algorithm, _), rows in sorted_.items():
        joined = SimpleNamespace()
        for name, value in vars(rows[0][1]).items():
            if isinstance(value, str):
                setattr(joined, name, value)
            else:
                setattr(joined, name, np.array([getattr(r[1], name) for r in rows]))
        groups.append(
            Group(
                formula=FORMULAS[algorithm],
                rows=np.array([r[0] for r in rows]),
                f=joined,
                tags=[r[2] for r in rows],
                floor=np.array([r[3] for r in rows]),
            )
        )
    return groups


def predict_all(theta: Array, p: Parameters, groups: list[Group], n: int) -> Array:
    out = np.empty(n)
    for g in groups:
        parts = g.formula(g.f, Lazy(theta, p, g))
        out[g.rows] = np.maximum(sum(parts.values()), g.floor)
    return out


def _robust(r: Array) -> Array:
    z = (r / NOISE) ** 2
    return np.sign(r) * np.sqrt(2 * (np.sqrt(1 + z) - 1))


@dataclass
class Fit:
    theta: Array
    error: Array
    predicted: Array


class Fitter:
    def __init__(self, points: list[Point], informed: bool = True) -> None:
        self.points = points
        self.groups = build(points)
        self.p = Parameters(self.groups, informed)
        self.measured = np.array([pt.measured for pt in points])
        self.platform = np.array([pt.platform for pt in points])
        self.judged = np.array([pt.judged for pt in points])
        self.platforms = sorted(set(self.platform[self.judged]))
        self.weight = np.zeros(len(points))
        for name in sorted(set(self.platform)):
            mine = self.platform == name
            trust = LEAST_TRUSTED.get(name, 1.0)
            self.weight[mine] = trust * np.sqrt(min(1.0, EFFECTIVE / mine.sum()))
        self.mean = np.array(self.p.mean)
        self.sd = np.array(self.p.sd)

    def fit(self, leave_out: str | None = None, start: Array | None = None, steps: int = 60) -> Fit:
        out = np.array([leave_out is not None and p.startswith(leave_out) for p in self.platform])
        weight = np.where(out, 0.0, self.weight)
        logm = np.log(self.measured)

        def residuals(theta: Array) -> Array:
            with np.errstate(all="ignore"):
                predicted = predict_all(theta, self.p, self.groups, len(logm))
            r = np.nan_to_num(np.log(predicted) - logm, nan=10.0, posinf=10.0, neginf=-10.0)
            return np.concatenate([_robust(r) * weight, (theta - self.mean) / self.sd])

        def jacobian(theta: Array) -> Any:
            # A prediction depends on its own constants only, so one step of ln(constant) for all
            # points at once gives the derivative by every parameter that this constant sums.
            out = np.zeros((len(logm) + len(theta), len(theta)))
            out[len(logm) :] = np.diag(1 / self.sd)
            for g in self.groups:
                at = Lazy(theta, self.p, g)
                with np.errstate(all="ignore"):
                    base = np.log(np.maximum(sum(g.formula(g.f, at).values()), g.floor))
                    r0 = _robust(base - logm[g.rows]) * weight[g.rows]
                    for name in list(at.used):
                        value = sum(g.formula(g.f, Lazy(theta, self.p, g, name)).values())
                        moved = np.log(np.maximum(value, g.floor))
                        d = (_robust(moved - logm[g.rows]) * weight[g.rows] - r0) / STEP
                        out[g.rows, self.p.place[name, "", ""]] += d
                        for column in g.index[name]:  # type: ignore[index]
                            has = column >= 0
                            np.add.at(out, (g.rows[has], column[has]), d[has])
            return csr_matrix(np.nan_to_num(out))

        solution = least_squares(
            residuals,
            self.mean if start is None else start,
            jac=jacobian,
            max_nfev=steps,
            x_scale=self.sd,
            ftol=1e-5,
            xtol=1e-5,
            tr_solver="lsmr",
            tr_options={"atol": 1e-8, "btol": 1e-8},
        )
        try:
            error = np.sqrt(np.diag(np.linalg.inv((solution.jac.T @ solution.jac).toarray())))
        except np.linalg.LinAlgError:
            error = np.full(len(solution.x), np.nan)
        return Fit(solution.x, error, predict_all(solution.x, self.p, self.groups, len(logm)))

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
            out[mine] = self.fit(name).predicted[mine]
        return out


def _class(point: Point) -> str:
    facts = point.library.choose(point.collective, point.cluster).facts
    nodes = "multi-node" if facts.communicator.nodes > 1 else "one node"  # type: ignore[attr-defined]
    return f"{nodes}/{nccl_cost.regime(point.collective.nbytes)}"


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


def to_profile(fitter: Fitter, fit: Fit, left_out: Array) -> Profile:
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
            widen = nccl_cost.WIDEN ** len(doubtful)
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
    left_out = Fitter(points, informed=False).leave_one_out()
    print("leaving platforms out, priors as shipped", file=sys.stderr)
    informed = fitter.leave_one_out()
    to_profile(fitter, full, left_out).save(PROFILE)
    of = fitter.judged
    judged = [p for p in points if p.judged]
    text = report.document(
        judged,
        {"fitted": full.predicted[of], "left out": left_out[of], "informed": informed[of]},
        [_class(p) for p in judged],
        coverage(fitter, left_out),
        [p for p in points if not p.judged],
        full.predicted[~of],
    )
    REPORT.write_text(text, encoding="utf-8")
    print(f"wrote {PROFILE} and {REPORT}", file=sys.stderr)


if __name__ == "__main__":
    main()
