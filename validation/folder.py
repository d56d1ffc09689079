"""Measurements in a folder of index.csv, rows.csv and clusters.json: one log a line, one row a
size, and every log's machine as a cluster file."""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from commsim.collectives.collective import Collective
from commsim.libraries.library import Library
from commsim.libraries.lookup import library
from commsim.topology.cluster import Cluster
from commsim.topology.load import load_cluster
from validation.published import Point

DTYPES = {"half": "float16", "float": "float32", "double": "float64"}
OPERATIONS = {"alltoall": "all_to_all", "sendrecv": "send_recv"}


@cache
def _machine(what: str) -> tuple[Cluster, Library, tuple[int, ...] | None]:
    record = json.loads(what)
    ranks = record["ranks"]
    return (
        load_cluster(record["cluster"]),
        library(record["library"], env=record["env"], launch=record["launch"] or "processes"),
        None if ranks is None else tuple(ranks),
    )


def _rows(folder: Path, name: str) -> Iterator[dict[str, str]]:
    with (folder / name).open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def read_folder(path: str) -> list[Point]:
    """Every point of the logs that are to be scored, repeats together."""
    folder = Path(path)
    records: dict[str, Any] = json.loads((folder / "clusters.json").read_text(encoding="utf-8"))
    index = {row["id"]: row for row in _rows(folder, "index.csv")}
    grouped: dict[tuple[str, ...], list[tuple[str, float]]] = defaultdict(list)
    for row in _rows(folder, "rows.csv"):
        log = row["log_id"]
        record = records[log]
        if not record["score"] or int(row["bytes"]) < record.get("score_from", 0):
            continue
        times = [row[f"time_us_{k}"] for k in ("oop", "ip") if row[f"time_us_{k}"]]
        if not times or "bytes_assumed" in row["derived"]:
            continue
        if "time_from" not in record and "time_oop" in row["derived"]:
            continue
        what = {k: record[k] for k in ("cluster", "ranks", "library", "env", "launch")}
        key = (
            index[log]["platform"], OPERATIONS.get(row["op"], row["op"]),
            DTYPES.get(row["dtype"], row["dtype"]), row["bytes"], json.dumps(what),
        )  # fmt: skip
        grouped[key].append((log, float(times[0]) * 1e-6))
    points = []
    for (platform, operation, dtype, nbytes, text), values in grouped.items():
        cluster, lib, ranks = _machine(text)
        points.append(
            Point(
                platform=platform,
                collective=Collective(operation, nbytes=int(nbytes), dtype=dtype, ranks=ranks),
                cluster=cluster, library=lib,
                logs=tuple(v[0] for v in values), times=tuple(v[1] for v in values),
            )
        )  # fmt: skip
    return points
