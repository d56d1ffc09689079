"""`python -m validation.diagnosis --data DIR`: how often `commsim.diagnose` is right.

DIR holds published logs: index.csv, rows.csv, clusters.json, and diagnosis.json, which has the true
causes of degraded ones and each cluster as it should be. Only sizes and times are shown: no
file name, no comment. Prints the confusion matrix, how often the true cause is among the first
three, how many healthy logs are called sick, and every miss. `--left-out` does so without the
platform of each log: constants fitted again (validation.fit), a threshold that the other platforms
set, priors without its incidents.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from commsim.collectives.collective import Collective, bus_factor
from commsim.cost.profile import Profile
from commsim.diagnosis.examination import diagnose
from commsim.diagnosis.fault import faults
from commsim.libraries.library import Library
from commsim.libraries.lookup import library as find_library
from commsim.measurements.measurement import Measurement
from commsim.measurements.names import dtype as read_dtype
from commsim.measurements.names import operation as read_operation
from commsim.topology.cluster import Cluster
from commsim.topology.load import load_cluster
from validation.published import read_points

FIRST = 3
ALARMS = 0.025  # share of the other platforms' healthy logs that a left-out threshold may call sick
INCIDENTS = {
    "nccl issue 2409": "issue 2409", "nccl issue 949": "issue 949", "nccl issue 837": "issue 837",
    "Polaris": "Polaris", "GCP a3": "gcp_gpu", "Alps": "Alps", "shared box": "4 GPUs",
    "l40s": "L40S", "issue 332": "issue 332", "MI250X": "issue 1490",
}  # fmt: skip
"""What a platform's name holds, and what the incidents of faults that were found on it hold."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One log: its true causes (none: healthy), and what the diagnosis is shown of it."""

    name: str
    platform: str
    cause: str
    also: tuple[str, ...]
    cluster: Cluster
    library: Library
    measurements: tuple[Measurement, ...]


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A case and its verdict: causes in their order."""

    case: Case
    likelihood: float
    sick: bool
    causes: tuple[str, ...]
    summary: str

    @property
    def rank(self) -> int:
        """Of the true cause, from 1; one past the end where it is not listed."""
        known = (*self.causes, self.case.cause)
        return known.index(self.case.cause) + 1

    @property
    def hit(self) -> bool:
        return self.rank <= FIRST


@lru_cache(maxsize=1024)
def _machine(text: str) -> tuple[Cluster, Library]:
    """Equal descriptions share one cluster, and so all that is kept of it."""
    given = json.loads(text)
    launch = given.get("launch") or "processes"
    return load_cluster(given["cluster"]), find_library(given["library"], given["env"], launch)


def read_cases(folder: Path) -> list[Case]:
    """Labelled logs, then healthy ones: those that are scored, and the controls."""
    rows = defaultdict(list)
    with (folder / "rows.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            rows[row["log_id"]].append(row)
    with (folder / "index.csv").open(encoding="utf-8") as file:
        index = {row["id"]: row for row in csv.DictReader(file)}
    clusters = json.loads((folder / "clusters.json").read_text(encoding="utf-8"))
    labels = json.loads((folder / "diagnosis.json").read_text(encoding="utf-8"))
    known = {entry["id"]: entry for group in labels.values() for entry in group}
    controls = {name for entry in known.values() for name in entry["controls"]}
    cases = [
        _case(name, index[name], rows[name], entry["given"], entry["cause"], entry["also"])
        for name, entry in known.items()
    ]
    for name, record in clusters.items():
        healthy = index[name]["condition"] == "healthy" and (record["score"] or name in controls)
        if healthy and name not in known and record["cluster"]:
            cases.append(_case(name, index[name], rows[name], record, "healthy", ()))
    return [case for case in cases if case.measurements]


def _case(
    name: str,
    about: Mapping[str, str],
    rows: list[dict[str, str]],
    given: Mapping[str, Any],
    cause: str,
    also: Any,
) -> Case:
    wanted = {key: given.get(key) for key in ("cluster", "library", "env", "launch")}
    cluster, library = _machine(json.dumps(wanted, sort_keys=True))
    ranks = tuple(given["ranks"]) if given["ranks"] else None
    measurements = []
    for row in rows:
        asked = Collective(
            read_operation(row["op"]), int(row["bytes"]), read_dtype(row["dtype"]), ranks=ranks
        )
        if duration := _duration(row, asked):
            measurements.append(
                Measurement(asked, duration=duration, cluster=cluster, library=library)
            )
    return Case(
        name=name, platform=about["platform"], cause=cause, also=tuple(also), cluster=cluster,
        library=library, measurements=tuple(measurements),
    )  # fmt: skip


def _duration(row: Mapping[str, str], asked: Collective) -> float:
    """s, from the time or a bandwidth; 0 where the row holds neither."""
    for half in ("oop", "ip"):
        if row[f"time_us_{half}"]:
            return float(row[f"time_us_{half}"]) * 1e-6
        if row[f"algbw_{half}"]:
            return asked.nbytes / float(row[f"algbw_{half}"]) * 1e-9
        if row[f"busbw_{half}"]:
            factor = bus_factor(asked.operation, int(row["nranks"]))
            return asked.nbytes * factor / float(row[f"busbw_{half}"]) * 1e-9
    return 0.0


def judge(case: Case, profile: Profile | None, without: str = "") -> Judged:
    """The verdict; `without`: incidents that hold this text do not count."""
    found = diagnose(case.measurements, case.cluster, library=case.library, profile=profile)
    weights = {h.cause: h.likelihood for h in found.hypotheses}
    for fault in faults():
        left = [text for text in fault.incidents if not without or without not in text]
        if fault.cause in weights:
            weights[fault.cause] *= (1 + len(left)) / fault.prior
    return Judged(
        case=case, likelihood=found.likelihood, sick=not found.healthy,
        causes=tuple(sorted(weights, key=lambda cause: -weights[cause])), summary=found.summary,
    )  # fmt: skip


def judge_left_out(cases: list[Case]) -> list[Judged]:
    """Every case by constants, priors and a threshold that have not seen its platform."""
    profiles = _profiles_left_out()
    judged = []
    for case in cases:
        without = next((text for part, text in INCIDENTS.items() if part in case.platform), "")
        judged.append(judge(case, profiles.get(case.platform), without))
    return [replace(j, sick=_is_sick(j, judged)) for j in judged]


def _is_sick(one: Judged, others: list[Judged]) -> bool:
    """By a threshold at which few healthy logs of other platforms would be called sick."""
    well = [
        j.likelihood
        for j in others
        if j.case.cause == "healthy" and j.case.platform != one.case.platform
    ]
    return one.sick and one.likelihood < min(0.5, float(np.quantile(well, ALARMS)))


def _profiles_left_out() -> dict[str, Profile]:
    """A profile for each platform of the published measurements, fitted without it."""
    from validation import fit  # takes seconds to load and minutes to run

    points = read_points()
    fitter = fit.Fitter(points, ("public",))
    platforms = sorted({point.platform for point in points})
    solutions = {name: fitter.fit(name) for name in platforms}
    left_out = np.full(len(points), np.nan)
    for name, solution in solutions.items():
        mine = fitter.platform == name
        left_out[mine] = solution.durations[mine]
    return {
        name: replace(
            fit.to_profile(fitter, solution, left_out),
            spreads=fit.spreads(fitter, left_out, without=name),
            fitted=fit.fitted([p for p in points if not p.platform.startswith(name)]),
        )
        for name, solution in solutions.items()
    }


def report(judged: list[Judged]) -> str:
    """The figures, the confusion matrix and the misses, as text."""
    sick = [j for j in judged if j.case.cause != "healthy"]
    well = [j for j in judged if j.case.cause == "healthy"]
    hits = sum(j.hit for j in sick)
    also = sum(j.hit or bool({*j.case.also} & {*j.causes[:FIRST]}) for j in sick)
    alarms = [j for j in well if j.sick]
    lines = [
        f"true cause among the first {FIRST}: {hits} of {len(sick)} ({hits / len(sick):.1%}); "
        f"that or another true cause: {also}; first: {sum(j.rank == 1 for j in sick)}",
        f"degraded logs called sick: {sum(j.sick for j in sick)} of {len(sick)}",
        f"healthy logs called sick: {len(alarms)} of {len(well)} ({len(alarms) / len(well):.1%})",
        "",
        "among the first three, by platform (mean "
        f"{np.mean([np.mean([j.hit for j in of]) for of in _by_platform(sick).values()]):.1%})",
    ]
    for platform, of in _by_platform(sick).items():
        lines.append(f"  {platform[:58]:<58} {sum(j.hit for j in of):>3} of {len(of)}")
    lines += [
        "",
        "true cause against the first (healthy: called so)",
        *_matrix(judged),
        "",
        "misses",
    ]
    for j in sick:
        if not j.hit:
            lines.append(
                f"  {j.case.name}: {j.case.cause} is number {j.rank}; first "
                f"{', '.join(j.causes[:FIRST])}; {j.summary}"
            )
    lines += ["", "false alarms"]
    lines += [f"  {j.case.name}: {j.causes[0]} ({j.likelihood:.2f}); {j.summary}" for j in alarms]
    return "\n".join(lines)


def _by_platform(judged: list[Judged]) -> dict[str, list[Judged]]:
    groups: dict[str, list[Judged]] = defaultdict(list)
    for j in judged:
        groups[j.case.platform].append(j)
    return groups


def _matrix(judged: list[Judged]) -> list[str]:
    """Rows: what is true. Columns: the verdict, the first cause where it is sick."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for j in judged:
        counts[j.case.cause][j.causes[0] if j.sick else "healthy"] += 1
    columns = sorted({said for row in counts.values() for said in row})
    lines = [" " * 18 + "".join(f"{name[:15]:>16}" for name in columns)]
    for cause in sorted(counts):
        cells = "".join(f"{counts[cause][name] or '.':>16}" for name in columns)
        lines.append(f"  {cause:<16}{cells}")
    return lines


def main() -> None:
    """Prints the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with diagnosis.json")
    parser.add_argument("--left-out", action="store_true", help="without each log's platform")
    args = parser.parse_args()
    cases = read_cases(args.data)
    judged = judge_left_out(cases) if args.left_out else [judge(case, None) for case in cases]
    print(report(judged))


if __name__ == "__main__":
    main()
