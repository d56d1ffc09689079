"""`python -m validation.extrapolation`: calibrated on a few machines, how far are hundreds off?

No published machine was measured on 2 and on 256 nodes with sizes and settings told, so the truth
is made up: the shipped profile with every constant moved as machines of one kind differ (TWICE the
width that a calibration allows for, at random), and noise of 4 % on what the calibration sees.
Nothing but constants and noise separates model and machine here: it shows that what is learnt on
few nodes grows as hops, rates and cuts do, and does not run away. What the formulas miss on real
machines is validation.calibration's question.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from commsim.calibration.calibration import calibrate
from commsim.collectives.collective import Collective
from commsim.cost.profile import Profile, shipped
from commsim.libraries.lookup import library as find_library
from commsim.measurements.measurement import Measurement
from commsim.prediction import PROFILES, predict
from commsim.topology.load import load_cluster

PRESETS = ("dgx-h100", "alps", "polaris")
OPERATIONS = ("all_reduce", "all_gather", "all_to_all")
SIZES = tuple(1 << power for power in range(10, 31, 2))
MEASURED = (1, 2, 4, 8)
ASKED = (16, 64, 256)
NOISE = 0.04
TWICE = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One operation on so many nodes: |predicted / true - 1| at each size, calibrated and not, and
    the share of sizes inside the calibrated 80 % interval."""

    preset: str
    measured: int
    nodes: int
    operation: str
    base: tuple[float, ...]
    calibrated: tuple[float, ...]
    inside: float


def made_up(base: Profile, random: np.random.Generator) -> Profile:
    """A machine of the same kind."""
    constants = {
        name: replace(
            c, value=float(np.clip(
                c.value * np.exp(TWICE * c.machines * random.normal()), *c.limits
            )),
        )
        for name, c in base.constants.items()
    }  # fmt: skip
    return Profile(
        name="made up", source="made up", constants=constants, spreads=base.spreads,
        fitted=base.fitted,
    )  # fmt: skip


def judged(
    preset: str,
    tops: Sequence[int] = (2, 8),
    asked: Sequence[int] = ASKED,
    sizes: Sequence[int] = SIZES,
    operations: Sequence[str] = OPERATIONS,
    seed: int = 7,
) -> Iterator[Judged]:
    """Calibrations on up to `tops` nodes of one made-up machine, judged on those `asked`."""
    library = find_library(load_cluster(preset, nodes=2).default_library)
    base = shipped(PROFILES[library.name])
    random = np.random.default_rng([seed, *preset.encode()])
    truth = made_up(base, random)
    questions = [Collective(op, nbytes=size) for op in operations for size in sizes]
    seen = []
    for nodes in MEASURED:
        machine = load_cluster(preset, nodes=nodes)
        for c in questions:
            exact = predict(c, machine, library, truth).duration
            noisy = float(exact * np.exp(NOISE * random.normal()))
            seen.append((nodes, Measurement(c, duration=noisy, cluster=machine, library=library)))
    for top in tops:
        profile = calibrate([m for nodes, m in seen if nodes <= top], base)
        for nodes in asked:
            machine = load_cluster(preset, nodes=nodes)
            for operation in operations:
                mine = [c for c in questions if c.operation == operation]
                true = np.array([predict(c, machine, library, truth).duration for c in mine])
                plain = np.array([predict(c, machine, library, base).duration for c in mine])
                found = [predict(c, machine, library, profile) for c in mine]
                said = np.array([p.duration for p in found])
                hits = [
                    p.interval[0] <= t <= p.interval[1] for p, t in zip(found, true, strict=True)
                ]
                yield Judged(
                    preset=preset, measured=top, nodes=nodes, operation=operation,
                    base=tuple(np.abs(plain / true - 1)),
                    calibrated=tuple(np.abs(said / true - 1)), inside=float(np.mean(hits)),
                )  # fmt: skip


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="python -m validation.extrapolation", description=__doc__)
    parser.add_argument("--preset", action="append", help="one of these only. Repeatable.")
    args = parser.parse_args()
    print("| preset | fitted on | nodes | operation | uncalibrated: median, mean % | calibrated: "
          "median, mean, worst % | inside |\n|---|---|---:|---|---:|---:|---:|")  # fmt: skip
    for preset in args.preset or PRESETS:
        for j in judged(preset):
            b, c = np.array(j.base) * 100, np.array(j.calibrated) * 100
            print(
                f"| {j.preset} | 1 to {j.measured} | {j.nodes} | {j.operation} | "
                f"{np.median(b):.1f}, {b.mean():.1f} | {np.median(c):.1f}, {c.mean():.1f}, "
                f"{c.max():.1f} | {j.inside:.0%} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
