"""The published measurements that constants are fitted on and judged by (validation/published)."""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import Any

from commsim.collectives.collective import Collective
from commsim.libraries.library import Library
from commsim.libraries.lookup import library
from commsim.topology.cluster import Cluster
from commsim.topology.load import load_cluster

FOLDER = Path(__file__).with_name("published")


@dataclass(frozen=True, kw_only=True)
class Point:
    """One configuration at one size; repeats are one point, their median the truth. times in s.

    judged: counts in the headline. The others teach only: sockets where a better network was meant,
    which is what really ran, but no machine that anyone would judge a prediction by.
    """

    platform: str
    collective: Collective
    cluster: Cluster
    library: Library
    logs: tuple[str, ...]
    times: tuple[float, ...]
    judged: bool = True

    @property
    def measured(self) -> float:
        return median(self.times)


@lru_cache(maxsize=1)
def clusters() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((FOLDER / "clusters.json").read_text(encoding="utf-8"))
    return loaded


@lru_cache(maxsize=256)
def _cluster(name: str) -> Cluster:
    return load_cluster(clusters()[name])


@lru_cache(maxsize=256)
def _library(text: str, env: str, launch: str) -> Library:
    pairs = dict(pair.split("=", 1) for pair in env.split())
    return library(text, env=pairs, launch=launch or "processes")


def _rows(name: str) -> list[dict[str, str]]:
    with (FOLDER / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def read_points() -> list[Point]:
    """Every point of the table, in the order of the logs."""
    logs = {row["log"]: row for row in _rows("logs.csv")}
    grouped: dict[tuple[str, ...], list[tuple[str, float]]] = defaultdict(list)
    what = (
        "platform",
        "operation",
        "dtype",
        "cluster",
        "ranks",
        "library",
        "env",
        "launch",
        "role",
    )
    for row in _rows("points.csv"):
        log = logs[row["log"]]
        key = (*(log[k] for k in what), row["nbytes"])
        grouped[key].append((row["log"], float(row["time_us"]) * 1e-6))
    points = []
    for key, values in grouped.items():
        platform, operation, dtype, cluster, ranks, lib, env, launch, role, nbytes = key
        points.append(
            Point(
                platform=platform,
                collective=Collective(
                    operation, nbytes=int(nbytes), dtype=dtype,
                    ranks=tuple(map(int, ranks.split())) if ranks else None,
                ),
                cluster=_cluster(cluster),
                library=_library(lib, env, launch),
                logs=tuple(v[0] for v in values),
                times=tuple(v[1] for v in values),
                judged=role == "judged",
            )
        )  # fmt: skip
    return points
