"""`python -m validation.calibration`: what a calibration on few points is worth, on the others.

Three questions, each answered by `commsim.calibrate` on published measurements:

* three or five sizes of one curve (platform, operation, type, group, library): how far are its
  other sizes off? The sizes are the smallest, the largest, and between them the nearest to equal
  steps of ln(size); or, as documented for users, the same from a tenth of that span to nine tenths,
  as the very first size is often disturbed. `--random N` draws them instead, N times.
* machines with few nodes: how far are eight nodes off?
* how long do 10,000 points take?

The profile that a calibration starts from is refitted without the platform that is judged, and
without the priors' centres that platforms suggested (validation.fit). Beside it: the same profile
uncalibrated, and a plain alpha-beta model t = a + b S (least squares of (predicted - measured) /
measured, a and b >= 0) on the same sizes.

`--data DIR` takes another folder of index.csv, rows.csv and clusters.json instead; there
calibrations start from the shipped profile.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.optimize import nnls

from commsim.calibration.batch import Array
from commsim.calibration.calibration import calibrate
from commsim.calibration.fit import Solution
from commsim.cost.profile import Constant, Profile, shipped
from commsim.measurements.measurement import Measurement
from commsim.prediction import PROFILES, predict
from validation.fit import Fitter
from validation.folder import read_folder
from validation.published import Point, read_points

FEWEST = 7
"""Sizes of a curve from which it counts, so that three and five leave some."""
WITHIN = 0.1
"""Share of the span of ln(size) that lies outside the sizes chosen, at either end."""
MANY = 10_000

Bases = Callable[[str], Profile]


@dataclass
class Errors:
    """|predicted / measured - 1| by platform and curve, of each model; and hits of the interval."""

    by: dict[str, dict[str, list[Array]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    inside: dict[str, list[bool]] = field(default_factory=lambda: defaultdict(list))

    def add(self, platform: str, model: str, predicted: Array, measured: Array) -> None:
        self.by[model][platform].append(np.abs(predicted / measured - 1))

    def summary(self, model: str) -> tuple[float, ...]:
        """Mean over platforms of medians and of means; mean over curves; median and mean over
        points."""
        platforms = [np.concatenate(curves) for curves in self.by[model].values()]
        curves = [float(c.mean()) for mine in self.by[model].values() for c in mine]
        return (
            float(np.mean([np.median(p) for p in platforms])),
            float(np.mean([np.mean(p) for p in platforms])),
            float(np.mean(curves)),
            float(np.median(np.concatenate(platforms))),
            float(np.mean(np.concatenate(platforms))),
        )


def left_out_bases(points: Sequence[Point]) -> Bases:
    """The NCCL profile without a platform, worked out when asked for."""
    fitter = Fitter([p for p in points if PROFILES[p.library.name] == "nccl"], ("public",))
    known: dict[str, Profile] = {}

    def base(platform: str) -> Profile:
        if platform not in known:
            print(f"  the profile without {platform}", file=sys.stderr)
            known[platform] = moved(shipped("nccl"), fitter, fitter.fit(platform))
        return known[platform]

    return base


def moved(profile: Profile, fitter: Fitter, found: Solution) -> Profile:
    """The profile with the constants of a fit."""
    constants: dict[str, Constant] = dict(profile.constants)
    for (name, kind, tag), i in fitter.p.place.items():
        value = float(np.exp(found.theta[i]))
        if kind:
            by = {k: dict(v) for k, v in constants[name].by.items()}
            by.setdefault(kind, {})[tag] = value
            constants[name] = replace(constants[name], by=by)
        else:
            constants[name] = replace(constants[name], value=value)
    return Profile(
        name="nccl, left out", source=profile.source, constants=constants, spreads=profile.spreads,
        fitted=profile.fitted,
    )  # fmt: skip


def curves(points: Iterable[Point]) -> dict[tuple[object, ...], list[Point]]:
    """Points of one question at several sizes, by size."""
    found: dict[tuple[object, ...], list[Point]] = defaultdict(list)
    for p in points:
        c = p.collective
        found[p.platform, c.operation, c.dtype, p.cluster, c.ranks, p.library].append(p)
    return {
        key: sorted(mine, key=lambda p: p.collective.nbytes)
        for key, mine in found.items()
        if len(mine) >= FEWEST
    }


def evenly(sizes: Array, count: int, margin: float = 0.0) -> list[int]:
    """Where sizes nearest to equal steps of ln(size) stand, from the smallest to the largest, or
    that share of the span within."""
    logs = np.log(sizes)
    chosen: list[int] = []
    within = margin * (logs[-1] - logs[0])
    for target in np.linspace(logs[0] + within, logs[-1] - within, count):
        order = np.argsort(np.abs(logs - target), kind="stable")
        chosen.append(next(int(i) for i in order if i not in chosen))
    return sorted(chosen)


def alpha_beta(sizes: Array, times: Array, asked: Array) -> Array:
    """t = a + b S through (sizes, times), at the sizes asked."""
    (a, b), _ = nnls(np.stack([1 / times, sizes / times], axis=1), np.ones(len(times)))
    return np.asarray(a + b * asked)


def measurements(points: Iterable[Point]) -> list[Measurement]:
    return [
        Measurement(
            p.collective, duration=t, cluster=p.cluster, library=p.library,
            provenance={"file": log},
        )
        for p in points
        for log, t in zip(p.logs, p.times, strict=True)
    ]  # fmt: skip


def judge(errors: Errors, name: str, profile: Profile, points: Sequence[Point]) -> None:
    """What a profile says of points that it has not seen."""
    found = [predict(p.collective, p.cluster, p.library, profile) for p in points]
    truth = np.array([p.measured for p in points])
    errors.add(points[0].platform, name, np.array([f.duration for f in found]), truth)
    for p, f in zip(points, found, strict=True):
        low, high = f.interval
        errors.inside[name] += [low <= t <= high for t in p.times]


def few_sizes(
    points: Sequence[Point], bases: Bases, count: int, draws: int = 0, margin: float = 0.0
) -> Errors:
    """Calibrations on `count` sizes of every curve, judged on its others."""
    errors = Errors()
    random = np.random.default_rng(0)
    for (platform, *_), mine in curves(points).items():
        sizes = np.array([float(p.collective.nbytes) for p in mine])
        times = np.array([p.measured for p in mine])
        ways = [sorted(random.choice(len(mine), count, replace=False)) for _ in range(draws)]
        for chosen in ways or [evenly(sizes, count, margin)]:
            rest = [i for i in range(len(mine)) if i not in chosen]
            held = [mine[i] for i in rest]
            base = bases(str(platform))
            judge(errors, "base", base, held)
            judge(
                errors, "calibrated",
                calibrate(measurements(mine[i] for i in chosen), base), held,
            )  # fmt: skip
            errors.add(
                str(platform), "alpha-beta",
                alpha_beta(sizes[chosen], times[chosen], sizes[rest]), times[rest],
            )  # fmt: skip
    return errors


def between_neighbours(points: Sequence[Point]) -> None:
    """How far a size is from the line between the two beside it, in ln over ln: what no smooth
    curve through fewer points can be expected to beat."""
    by: dict[str, list[Array]] = defaultdict(list)
    for (platform, *_), mine in curves(points).items():
        x = np.log([p.collective.nbytes for p in mine])
        y = np.log([p.measured for p in mine])
        line = y[:-2] + (y[2:] - y[:-2]) * (x[1:-1] - x[:-2]) / (x[2:] - x[:-2])
        by[str(platform)].append(np.abs(np.expm1(line - y[1:-1])))
    off = [np.concatenate(found) for found in by.values()]
    print(
        "Between its two neighbours a size is off, mean over platforms of the median "
        f"{100 * np.mean([np.median(o) for o in off]):.1f} %, of the mean "
        f"{100 * np.mean([o.mean() for o in off]):.1f} %; mean over points "
        f"{100 * np.concatenate(off).mean():.1f} %."
    )


def few_nodes(points: Sequence[Point], bases: Bases) -> None:
    """Calibrations on small groups of each platform, judged on its largest."""
    print("\n## Few nodes, predicting many (median and mean error, %)\n")
    print("One profile for all settings of a platform, or one for each library and environment.\n")
    print("| platform | fitted on | judged on | points | base | one profile | one each | inside |")
    print("|---|---|---|---:|---:|---:|---:|---:|")
    by: dict[str, list[Point]] = defaultdict(list)
    for p in points:
        by[p.platform].append(p)
    medians: dict[str, list[float]] = defaultdict(list)
    for platform, mine in by.items():
        nodes = sorted({p.cluster.nodes for p in mine})
        held = [p for p in mine if p.cluster.nodes == nodes[-1]]
        tops = [n for n in nodes[:-1] if n > 1] or nodes[:-1]
        for top in tops if nodes[-1] >= 4 else ():
            seen = [p for p in mine if p.cluster.nodes <= top]
            errors = Errors()
            base = bases(platform)
            judge(errors, "base", base, held)
            judge(errors, "one profile", calibrate(measurements(seen), base), held)
            for library in dict.fromkeys(p.library for p in held):
                own = [p for p in seen if p.library == library]
                if own:
                    asked = [p for p in held if p.library == library]
                    judge(errors, "one each", calibrate(measurements(own), base), asked)
            cells = []
            for model in ("base", "one profile", "one each"):
                off = np.concatenate(errors.by[model][platform] or [np.array([np.nan])])
                cells.append(f"{100 * np.median(off):.1f}, {100 * np.mean(off):.1f}")
                medians[model].append(float(np.median(off)))
            inside = 100 * np.mean(errors.inside["one profile"])
            print(
                f"| {platform} | up to {top} | {nodes[-1]} nodes | {len(held)} | "
                f"{' | '.join(cells)} | {inside:.0f} % |",
                flush=True,
            )
    means = ", ".join(f"{name} {100 * np.nanmean(v):.1f} %" for name, v in medians.items())
    print(f"\nMean of the medians: {means}.")


def show(title: str, errors: Errors) -> None:
    models = ("alpha-beta", "base", "calibrated")
    print(f"\n## {title}\n")
    print("| error, % | " + " | ".join(models) + " |")
    print("|---|" + "---:|" * len(models))
    rows = ("platforms, medians", "platforms, means", "curves, means", "points, median",
            "points, mean")  # fmt: skip
    for row, values in zip(rows, zip(*map(errors.summary, models), strict=True), strict=True):
        print(f"| {row} | " + " | ".join(f"{100 * v:.1f}" for v in values) + " |")
    print("\n| platform (median, mean) | curves | " + " | ".join(models) + " |")
    print("|---|---:|" + "---:|" * len(models))
    for platform, mine in errors.by["calibrated"].items():
        cells = [np.concatenate(errors.by[model][platform]) for model in models]
        text = " | ".join(f"{100 * np.median(e):.1f}, {100 * e.mean():.1f}" for e in cells)
        print(f"| {platform} | {len(mine)} | {text} |")
    inside = 100 * np.mean(errors.inside["calibrated"])
    print(f"\nInside the calibrated 80 % interval: {inside:.0f} % of the sizes held back.")


def speed(points: Sequence[Point]) -> None:
    """10,000 points: those of the platform with most, their sizes shifted a little."""
    by: dict[str, list[Point]] = defaultdict(list)
    for p in points:
        if PROFILES[p.library.name] == "nccl":
            by[p.platform].append(p)
    mine = max(by.values(), key=len)
    made: list[Measurement] = []
    for shift in range(1, 100):
        for p in mine:
            nbytes = p.collective.nbytes + 64 * shift
            c = replace(p.collective, nbytes=nbytes)
            made.append(Measurement(c, duration=p.measured, cluster=p.cluster, library=p.library))
    began, cpu = time.perf_counter(), time.process_time()
    profile = calibrate(made[:MANY])
    print(
        f"\n## Speed\n\n{profile.calibration.report.points:,} points of {mine[0].platform} "  # type: ignore[union-attr]
        f"with every check: {time.perf_counter() - began:.1f} s, "
        f"{time.process_time() - cpu:.1f} s of CPU."
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m validation.calibration", description=__doc__)
    parser.add_argument("--data", help="folder of index.csv, rows.csv and clusters.json")
    parser.add_argument("--random", type=int, default=0, metavar="N", help="draw sizes N times")
    parser.add_argument("--only", choices=["sizes", "nodes", "speed"])
    asked = parser.parse_args()
    if asked.data:
        points = judged = read_folder(asked.data)
        bases: Bases = lambda platform: shipped("nccl")  # noqa: E731
    else:
        points = read_points()
        judged = [p for p in points if p.judged]
        bases = left_out_bases(points)
    if asked.only in (None, "sizes"):
        between_neighbours(judged)
        for count in (3, 5):
            if asked.random:
                found = few_sizes(judged, bases, count, draws=asked.random)
                show(f"{count} sizes of a curve, drawn {asked.random} times", found)
                continue
            for margin, how in ((0.0, "smallest to largest"), (WITHIN, "within the span")):
                found = few_sizes(judged, bases, count, margin=margin)
                show(f"{count} sizes of a curve, {how}", found)
    if asked.only in (None, "nodes"):
        few_nodes(judged, bases)
    if asked.only in (None, "speed"):
        speed(judged)


if __name__ == "__main__":
    main()
