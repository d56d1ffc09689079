"""`python -m validation.synthetic`: faults put into the model itself, with noise, and what
`commsim.diagnose` makes of them.

Each fault of each preset is predicted under one of its ways, drawn by its share, at ten sizes of
one operation or of three; every time is then off by a normal 4 % of its logarithm. Nothing but the
noise separates model and machine here, so this shows which causes look alike, and that the search
finds what it is able to predict. How it fares on real machines is validation.diagnosis.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from commsim.collectives.collective import Collective
from commsim.cost.profile import shipped
from commsim.diagnosis.examination import diagnose
from commsim.diagnosis.fault import Setup, Variant, faults, healthy, variants
from commsim.errors import CommsimError
from commsim.libraries.lookup import library as find_library
from commsim.measurements.measurement import Measurement
from commsim.prediction import PROFILES
from commsim.topology.load import load_cluster

Array = NDArray[np.float64]
PRESETS = (
    "dgx-h100", "dgx-a100", "dgx-b200", "hgx-h200", "alps", "polaris", "aws-p5", "mi300x",
    "azure-nd-a100-v4", "l40sx8",
)  # fmt: skip
NODES = 4
SIZES = tuple(4**k for k in range(5, 16))
OPERATIONS = ("all_reduce", "all_gather", "all_to_all")
NOISE = 0.04
"""Standard deviation of ln(time): a run on a quiet machine."""
HEALTHY = 10
"""Healthy draws of each preset and set of operations."""
PLAIN = 0.1
"""ln of a time by which a fault must slow some size: less is within what machines differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One draw: what was put in, and what was said. among: whether the cause is in the first
    three."""

    preset: str
    operations: int
    cause: str
    detail: str
    sick: bool
    first: str
    among: bool


def judged(
    presets: Sequence[str],
    draws: int,
    seed: int = 0,
    sizes: Sequence[int] = SIZES,
    sets: Sequence[Sequence[str]] = (OPERATIONS[:1], OPERATIONS),
) -> Iterator[Judged]:
    """`draws` of each fault that a preset can have and that its sizes can show, and HEALTHY times
    as many of none, for each set of operations."""
    for name in presets:
        cluster = load_cluster(name, nodes=NODES)
        library = find_library(cluster.default_library)
        setup = Setup(cluster=cluster, library=library, profile=shipped(PROFILES[library.name]))
        random = np.random.default_rng([seed, *name.encode()])
        for operations in sets:
            asked = [Collective(op, nbytes=size) for op in operations for size in sizes]
            well = np.array([healthy(setup).cost(c).duration for c in asked])
            for _ in range(HEALTHY * draws):
                yield _judge(setup, name, operations, asked, well, "healthy", "", random)
            for fault in faults():
                ways = variants(fault, setup)
                shares = np.array([way.share for way in ways])
                for _ in range(draws if ways else 0):
                    way = ways[int(random.choice(len(ways), p=shares / shares.sum()))]
                    times = _times(way, asked)
                    if times is None or np.log(times / well).max() < PLAIN:
                        continue
                    times = times * np.exp(way.scatter * random.normal(size=len(asked)))
                    yield _judge(
                        setup, name, operations, asked, times, fault.cause, way.detail, random
                    )


def _times(
    way: Variant, asked: Sequence[Collective]
) -> np.ndarray[tuple[int], np.dtype[np.float64]] | None:
    try:
        return np.array([way.cost(c).duration for c in asked])
    except CommsimError:
        return None


def _judge(
    setup: Setup, preset: str, operations: Sequence[str], asked: Sequence[Collective],
    times: Array, cause: str, detail: str,
    random: np.random.Generator,
) -> Judged:  # fmt: skip
    noisy = times * np.exp(NOISE * random.normal(size=len(times)))
    found = diagnose(
        [
            Measurement(c, duration=float(t), cluster=setup.cluster, library=setup.library)
            for c, t in zip(asked, noisy, strict=True)
        ],
        setup.cluster, library=setup.library,
    )  # fmt: skip
    causes = [h.cause for h in found.hypotheses]
    return Judged(
        preset=preset, operations=len(operations), cause=cause, detail=detail,
        sick=not found.healthy, first=causes[0] if causes else "", among=cause in causes[:3],
    )  # fmt: skip


def report(found: Sequence[Judged]) -> str:
    """Shares and the confusion matrix, as Markdown."""
    lines = ["| operations | draws | cause among the first three | first | called sick | healthy "
             "called sick |", "|---|---:|---:|---:|---:|---:|"]  # fmt: skip
    for count in sorted({j.operations for j in found}):
        mine = [j for j in found if j.operations == count]
        sick = [j for j in mine if j.cause != "healthy"]
        well = [j for j in mine if j.cause == "healthy"]
        lines.append(
            f"| {count} | {len(sick)} | {_share([j.among for j in sick])} | "
            f"{_share([j.first == j.cause for j in sick])} | {_share([j.sick for j in sick])} | "
            f"{sum(j.sick for j in well)} of {len(well)} |"
        )
    said = [(j.cause, j.first if j.sick else "healthy") for j in found]
    columns = sorted({first for _, first in said})
    lines += ["", "| put in, and what came first | " + " | ".join(columns) + " | among three |",
              "|---|" + "---:|" * (len(columns) + 1)]  # fmt: skip
    for cause in sorted({j.cause for j in found}):
        counts = Counter(first for true, first in said if true == cause)
        cells = " | ".join(str(counts[c] or "") for c in columns)
        among = "" if cause == "healthy" else _share([j.among for j in found if j.cause == cause])
        lines.append(f"| {cause} | {cells} | {among} |")
    return "\n".join(lines)


def _share(hits: Sequence[bool]) -> str:
    return f"{np.mean(hits):.0%}" if hits else "-"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m validation.synthetic", description=__doc__)
    parser.add_argument("--draws", type=int, default=2, metavar="N", help="of each fault")
    parser.add_argument("--preset", action="append", help="one of these only. Repeatable.")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    print(report(list(judged(args.preset or PRESETS, args.draws, args.seed))))


if __name__ == "__main__":
    main()
