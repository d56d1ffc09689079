"""`python -m validation.training`: training steps against published ones.

Fits the constants of commsim/workload to published steps (validation/published/training.json, each
with its source), writes the shipped profile, then refits with each source left out: from that come
the left-out error and the interval. `--quick` only judges the shipped profile. Writes
validation/sections/training.md.

Minimises the robust sum of squared ln(predicted / measured), every source weighing alike, plus the
priors of validation/priors_training.toml. Repeats of one configuration are one point.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import math
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from commsim.cost.profile import Constant, Profile, Spread
from commsim.topology.cluster import Cluster
from commsim.topology.load import load_cluster
from commsim.workload.layout import Layout
from commsim.workload.load import load_model
from commsim.workload.model import Model
from commsim.workload.step import step_with
from commsim.workload.trust import SHIPPED, shipped, tags_of
from validation.priors import Prior

Array = NDArray[np.float64]
TABLE = Path(__file__).parent / "published" / "training.json"
REPORT = Path(__file__).with_name("sections") / "training.md"
KINDS = ("generation", "stack", "framework")
STEP = 1e-4  # of ln(constant), for derivatives
NOISE = 0.07  # ln residuals below count squared, above linearly
EFFECTIVE = 25.0  # a source's points together weigh as this many at most
STEPS, TRIES = 6, 8  # of a fit; dampings that a step tries
DAMPING = 1e-3, 1e-2  # the first; the least after a step that failed
ENOUGH = 0.02  # a step that lowers the sum of squares by less is the last
TIE = 0.02  # costs closer than this are one


@dataclass
class Point:
    """One configuration and what was measured of it, s."""

    name: str
    family: str
    sweep: str
    model: Model
    cluster: Cluster
    layout: Layout
    times: list[float] = field(default_factory=list)

    @property
    def measured(self) -> float:
        """s: the median of its repeats."""
        return float(np.median(self.times))

    @property
    def cost(self) -> float:
        """GPU seconds for a token, but for the time."""
        return self.layout.world / (self.layout.global_batch * self.layout.seq_len)


def read_points() -> list[Point]:
    """Every published step."""
    data = json.loads(TABLE.read_text(encoding="utf-8"))
    models = {name: load_model(config) for name, config in data["models"].items()}
    clusters: dict[tuple[str, int], Cluster] = {}
    found: dict[Any, Point] = {}
    for row in data["steps"]:
        if "step_s" not in row:
            continue
        place = row["cluster"], row["nodes"]
        if place not in clusters:
            clusters[place] = load_cluster({**data["clusters"][place[0]], "nodes": place[1]})
        layout = Layout(**row["layout"])
        key = row.get("repeat", row["id"]), row["model"], place, layout
        point = found.setdefault(
            key,
            Point(row["id"], row["family"], row.get("sweep", ""), models[row["model"]],
                  clusters[place], layout),
        )  # fmt: skip
        point.times.append(row["step_s"])
    return list(found.values())


def read_priors() -> dict[str, Prior]:
    """What is believed of every constant beforehand."""
    path = Path(__file__).with_name("priors_training.toml")
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    return {n: Prior(**{**row, "limits": tuple(row["limits"])}) for n, row in data.items()}


class Fitter:
    """All ln(constants) and the deviations of generations and frameworks as one vector."""

    def __init__(self, points: list[Point]) -> None:
        self.points = points
        self.priors = read_priors()
        self.tags = [dict(tags_of(p.cluster, p.layout)) for p in points]
        present: dict[str, set[str]] = defaultdict(set)
        for tags in self.tags:
            for kind, tag in tags.items():
                present[kind].add(tag)
        self.keys: list[tuple[str, str, str]] = []
        mean, sd = [], []
        for name, prior in self.priors.items():
            self.keys.append((name, "", ""))
            mean.append(math.log(prior.value))
            sd.append(prior.sd)
            for kind, spread in prior.by.items():
                for tag in sorted(present[kind]):
                    self.keys.append((name, kind, tag))
                    mean.append(0.0)
                    sd.append(spread)
        self.mean, self.sd = np.array(mean), np.array(sd)
        self.place = {key: i for i, key in enumerate(self.keys)}
        self.columns = {
            name: np.array(
                [[self.place.get((name, kind, tags[kind]), -1) for kind in KINDS]
                 for tags in self.tags]
            )
            for name in self.priors
        }  # fmt: skip
        self.logm = np.log([p.measured for p in points])
        sizes = Counter(p.family for p in points)
        self.weight = np.array([min(1, math.sqrt(EFFECTIVE / sizes[p.family])) for p in points])

    def values(self, theta: Array, i: int, moved: str = "") -> dict[str, float]:
        """The constants of point i under theta."""
        padded = np.append(theta, 0.0)
        found = {}
        for name, prior in self.priors.items():
            total = padded[self.place[name, "", ""]] + padded[self.columns[name][i]].sum()
            low, high = prior.limits
            found[name] = min(max(math.exp(total + STEP * (name == moved)), low), high)
        return found

    def predict(self, theta: Array, use: NDArray[np.bool_], moved: str = "") -> Array:
        """ln(s) of the points in use."""
        out = np.zeros(len(self.points))
        for i, p in enumerate(self.points):
            if use[i]:
                values = self.values(theta, i, moved)
                out[i] = math.log(step_with(p.model, p.cluster, p.layout, values).duration)
        return out

    def fit(self, leave_out: str = "") -> tuple[Array, Array]:
        """ln of the constants and their standard errors, without the points of one source.

        Gauss-Newton from the priors' means, damped in units of the priors' widths (Levenberg, 1944)
        by more until a step lowers the sum: where messages begin to show, times have kinks, over
        which a trust region of scipy's did not come (left-out fits that had not arrived).
        """
        use = np.array([p.family != leave_out for p in self.points])
        weight = self.weight * use
        theta, damping = self.mean.copy(), DAMPING[0]
        r = self._residuals(theta, use, weight)
        damped = np.diag(1 / self.sd**2)
        for _ in range(STEPS):
            jacobian = self._jacobian(theta, use, weight)
            before = r @ r
            for _ in range(TRIES):
                step = np.linalg.solve(jacobian.T @ jacobian + damping * damped, -jacobian.T @ r)
                there = self._residuals(theta + step, use, weight)
                if there @ there < before:
                    theta, r, damping = theta + step, there, max(damping / 5, DAMPING[0] / 1000)
                    break
                damping = max(6 * damping, DAMPING[1])
            if before - r @ r < ENOUGH:
                break
        error = np.sqrt(np.diag(np.linalg.inv(jacobian.T @ jacobian)))
        return theta, error

    def _residuals(self, theta: Array, use: NDArray[np.bool_], weight: Array) -> Array:
        r = _robust(self.predict(theta, use) - self.logm) * weight
        return np.concatenate([r, (theta - self.mean) / self.sd])

    def _jacobian(self, theta: Array, use: NDArray[np.bool_], weight: Array) -> Array:
        # A point depends on the sums of its constants' logarithms only.
        out = np.zeros((len(self.points) + len(theta), len(theta)))
        out[len(self.points) :] = np.diag(1 / self.sd)
        base = _robust(self.predict(theta, use) - self.logm) * weight
        for name in self.priors:
            moved = _robust(self.predict(theta, use, name) - self.logm) * weight
            d = (moved - base) / STEP
            out[: len(d), self.place[name, "", ""]] = d
            for column in self.columns[name].T:
                has = np.nonzero((column >= 0) & use)[0]
                np.add.at(out, (has, column[has]), d[has])
        return out


def _robust(r: Array) -> Array:
    z = (r / NOISE) ** 2
    return np.sign(r) * np.sqrt(2 * (np.sqrt(1 + z) - 1))


def macro(points: list[Point], predicted: Array) -> float:
    """Mean over sources of their median absolute percentage error."""
    errors: dict[str, list[float]] = defaultdict(list)
    for p, t in zip(points, predicted, strict=True):
        errors[p.family].append(abs(t / p.measured - 1))
    return float(np.mean([np.median(e) for e in errors.values()]))


def profile_of(f: Fitter, theta: Array, error: Array, spread: Spread) -> Profile:
    """The fit as a profile."""
    today = datetime.date.today().isoformat()
    constants = {}
    for name, prior in f.priors.items():
        by: dict[str, dict[str, float]] = defaultdict(dict)
        for i, (mine, kind, tag) in enumerate(f.keys):
            if mine == name and kind:
                by[kind][tag] = float(math.exp(theta[i]))
        at = f.place[name, "", ""]
        constants[name] = Constant(
            value=float(math.exp(theta[at])), unit=prior.unit, meaning=prior.meaning,
            birthplace=f"fit {today}; before: {prior.value:g}, {prior.source}",
            error=float(error[at]), limits=prior.limits, by=by,
        )  # fmt: skip
    fitted = {kind: tuple(sorted({tags[kind] for tags in f.tags})) for kind in KINDS}
    return Profile(
        name="training", source=f"{len(f.points)} published training steps, fit of {today}",
        constants=constants, spreads={"all": spread}, fitted=fitted,
    )  # fmt: skip


def spread_of(points: list[Point], left_out: Array) -> Spread:
    """Quantiles of ln(measured / left-out prediction), every source weighing the same."""
    sizes = Counter(p.family for p in points)
    r = np.log([p.measured for p in points]) - np.log(left_out)
    weight = np.array([1 / sizes[p.family] for p in points])
    order = np.argsort(r)
    share = np.cumsum(weight[order]) / weight.sum()
    low, high = (float(r[order][np.searchsorted(share, q)]) for q in (0.1, 0.9))
    return Spread(low=min(low, 0.0), high=max(high, 0.0), points=len(points))


# ---- the report ----


def kendall(true: Iterable[float], predicted: Iterable[float]) -> float:
    """Kendall's tau-b of two orders of cost; within TIE they are one. nan: nothing to order."""

    def signs(values: Iterable[float]) -> Array:
        return np.array([
            0.0 if abs(math.log(a / b)) <= TIE else math.copysign(1, a - b)
            for a, b in itertools.combinations(values, 2)
        ])  # fmt: skip

    t, p = signs(true), signs(predicted)
    if not t.any():
        return math.nan
    return float((t * p).sum() / math.sqrt((t != 0).sum() * (p != 0).sum())) if p.any() else 0.0


def sweeps(points: list[Point], predicted: Array) -> tuple[float, float, int]:
    """Mean tau, median over sweeps of the median error of pairs' ratios, how many sweeps."""
    groups: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for p, t in zip(points, predicted, strict=True):
        if p.sweep:
            groups[p.sweep].append((p.measured * p.cost, float(t) * p.cost))
    taus, errors = [], []
    for members in groups.values():
        if len(members) < 4:
            continue
        taus.append(kendall(*zip(*members, strict=True)))
        errors.append(np.median([
            abs((p / q) / (a / b) - 1) for (a, p), (b, q) in itertools.combinations(members, 2)
        ]))  # fmt: skip
    decided = [t for t in taus if not math.isnan(t)]
    return float(np.mean(decided)), float(np.median(errors)), len(errors)


def table(points: list[Point], columns: dict[str, Array], key: Callable[[Point], str]) -> str:
    """Median error and bias of each group of points, for each column of predictions."""
    names = sorted({key(p) for p in points})
    measured = np.array([p.measured for p in points])
    head = "".join(f" {c} | bias |" for c in columns)
    lines = [f"| | points |{head}", "|---|---:|" + "---:|---:|" * len(columns)]
    for name in names:
        mine = np.array([key(p) == name for p in points])
        line = f"| {name} | {mine.sum()} |"
        for predicted in columns.values():
            r = predicted[mine] / measured[mine]
            bias = np.exp(np.mean(np.log(r)))
            line += f" {100 * np.median(abs(r - 1)):.1f} % | {bias:.2f} |"
        lines.append(line)
    return "\n".join(lines)


def summary(points: list[Point], name: str, predicted: Array) -> str:
    """One line of figures."""
    r = predicted / np.array([p.measured for p in points])
    tau, pairs, n = sweeps(points, predicted)
    return (
        f"| {name} | {100 * macro(points, predicted):.1f} % | {100 * np.median(abs(r - 1)):.1f} % |"
        f" {100 * np.quantile(abs(r - 1), 0.9):.1f} % | {np.exp(np.mean(np.log(r))):.3f} |"
        f" {tau:.2f} | {100 * pairs:.1f} % ({n}) |"
    )


def report(points: list[Point], columns: dict[str, Array], spread: Spread) -> str:
    """The page."""
    r = columns["fitted"] / np.array([p.measured for p in points])
    worst = sorted(range(len(points)), key=lambda i: -abs(math.log(r[i])))[:15]
    lines = [
        "# Training steps against published ones",
        "",
        "`python -m validation.training` writes this page. The headline is the mean over sources of"
        " the median absolute percentage error of the step time; left out: constants fitted without"
        " the source judged.",
        "",
        "| | headline | median | 90th percentile | bias | tau in sweeps | pair ratios (sweeps) |",
        "|---|---:|---:|---:|---:|---:|---:|",
        *(summary(points, name, predicted) for name, predicted in columns.items()),
        "",
        f"Interval: {math.exp(spread.low):.2f} to {math.exp(spread.high):.2f} of the prediction,"
        " the central 80 % of what was left out.",
        "",
        "## By source",
        "",
        table(points, columns, lambda p: p.family),
        "",
        "## By GPU",
        "",
        table(points, columns, lambda p: p.cluster.gpu.name),
        "",
        "## By dtype and framework",
        "",
        table(points, columns, lambda p: f"{p.layout.framework} {p.layout.dtype}"),
        "",
        "## The worst rows, fitted",
        "",
        "| row | predicted / measured | measured | GPUs | layout |",
        "|---|---:|---:|---|---|",
    ]
    for i in worst:
        p = points[i]
        x = p.layout
        lines.append(
            f"| {p.name} | {r[i]:.2f} | {p.measured:.3g} s | {x.world} x {p.cluster.gpu.name} |"
            f" {p.model.name}: {x.framework} tp {x.tp} pp {x.pp} dp {x.dp} cp {x.cp} ep {x.ep}"
            f" zero {x.zero_stage} {x.dtype} |"
        )
    return "\n".join([*lines, "", EXPLAINED])


EXPLAINED = """\
What the worst rows have in common:

* OF-014, OF-016, OF-028: tensor and data parallelism over 2 and 4 machines with one NIC each, where
  an all_reduce reached 8 and 6 GB/s of the 11 that its NIC carries elsewhere.
* KF-020: 70B on 8 GPUs, at the edge of memory; the source's own neighbours contradict it.
* TT-023, -024, -029, -030: 8-bit products with row-wise scales, which the layout cannot tell from
  tensor-wise ones (the source measured 25 to 35 % between them).
* BS-092: a micro-batch of one sequence, 38 % slower than two of them; the same work for each GPU at
  tensor parallelism 8 (BS-108) took 13 % less. A snapshot of one iteration.

SC21-011 to -016, ZeRO-3 of early 2021 on up to 2,240 GPUs, took one and the same time on twice the
GPUs with half the work: its messages bind, beside compute, at 16 GB/s a GPU however many there are.
That rate is a constant that only these rows know (`listed`), so they are far off when left out.

Orders that sweeps have and a layout does not say: 70B in FP8 (tau below 0: the release of 2025-04
with PP 8 was 9 % faster than that of 2024-11 with PP 4 and CP 2), row-wise against tensor-wise
scales (two sweeps), compiled or not (fsdp2-basic), and weak scaling within 2 %. Grok-1's layout
leaves open how experts are cut; the table has etp 1, megatron-core 0.8 would have cut them by TP.
"""


def main() -> None:
    """Fits, judges, writes profile and page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="judge the shipped profile only")
    quick = parser.parse_args().quick
    points = read_points()
    f = Fitter(points)
    everything = np.ones(len(points), bool)
    if quick:
        predicted = np.array([
            step_with(p.model, p.cluster, p.layout, shipped().values(tuple(t.items()))).duration
            for p, t in zip(points, f.tags, strict=True)
        ])  # fmt: skip
        print(summary(points, "shipped", predicted))
        return
    families = sorted({p.family for p in points})
    left_out = np.zeros(len(points))
    theta, error = f.fit()
    fitted = np.exp(f.predict(theta, everything))
    print(summary(points, "fitted", fitted), flush=True)
    for family in families:
        mine = np.array([p.family == family for p in points])
        left_out[mine] = np.exp(f.predict(f.fit(family)[0], mine))[mine]
        wrong = macro([p for p in points if p.family == family], left_out[mine])
        print(f"  {family} left out: {100 * wrong:.1f} %", flush=True)
    spread = spread_of(points, left_out)
    profile_of(f, theta, error, spread).save(SHIPPED)
    columns = {"fitted": fitted, "left out": left_out}
    REPORT.write_text(report(points, columns, spread), encoding="utf-8")
    print(summary(points, "left out", left_out))


if __name__ == "__main__":
    main()
