"""The table of published measurements is whole: sources, machines, libraries, no point twice."""

from __future__ import annotations

import csv
from collections import Counter
from functools import lru_cache
from pathlib import Path

import pytest

from commsim.collectives.collective import DTYPES, OPERATIONS
from commsim.cost.bound import bound
from commsim.libraries.lookup import library
from commsim.topology.load import load_cluster
from commsim.topology.placement import place
from validation.published import FOLDER, clusters, read_points


@lru_cache(maxsize=2)
def rows(name: str) -> tuple[dict[str, str], ...]:
    with (FOLDER / name).open(encoding="utf-8") as file:
        return tuple(csv.DictReader(file))


LOGS, POINTS = rows("logs.csv"), rows("points.csv")


def test_every_log_is_named_once_and_has_its_platform_and_source() -> None:
    names = Counter(log["log"] for log in LOGS)
    assert [name for name, count in names.items() if count > 1] == []
    for log in LOGS:
        assert log["platform"], log["log"]
        assert log["source"].startswith("https://"), log["log"]


def test_every_log_asks_for_something_that_exists() -> None:
    for log in LOGS:
        assert log["operation"] in OPERATIONS, log["log"]
        assert log["dtype"] in DTYPES, log["log"]
        assert log["launch"] in ("", "processes", "threads", "single"), log["log"]
        assert log["cluster"] in clusters(), log["log"]


def test_every_cluster_loads_and_is_used() -> None:
    used = {log["cluster"] for log in LOGS}
    assert set(clusters()) == used
    for name, tables in clusters().items():
        assert load_cluster(tables).n_ranks >= 2, name


@pytest.mark.parametrize("text", sorted({f"{x['library']}|{x['env']}|{x['launch']}" for x in LOGS}))
def test_every_library_parses(text: str) -> None:
    name, env, launch = text.split("|")
    pairs = [pair.split("=", 1) for pair in env.split()]
    assert all(len(pair) == 2 and pair[0].isupper() for pair in pairs)
    found = library(name, env=dict(pair for pair in pairs if len(pair) == 2), launch=launch or None)
    assert found.name == name.split("@")[0]


def test_ranks_lie_on_their_cluster() -> None:
    for log in LOGS:
        ranks = tuple(map(int, log["ranks"].split())) or None
        place(load_cluster(clusters()[log["cluster"]]), ranks)  # raises on a rank that is not there


def test_every_point_belongs_to_a_log_and_every_log_has_points() -> None:
    assert {point["log"] for point in POINTS} == {log["log"] for log in LOGS}
    for point in POINTS:
        assert int(point["nbytes"]) > 0
        assert 1.0 < float(point["time_us"]) < 60e6, point


def test_no_point_stands_twice() -> None:
    seen = Counter((p["log"], p["nbytes"]) for p in POINTS)
    assert [key for key, count in seen.items() if count > 1] == []


def test_repeats_are_one_point_and_their_median_the_truth() -> None:
    points = read_points()
    assert sum(len(p.times) for p in points) == len(POINTS)
    repeated = [p for p in points if len(p.times) > 2]
    assert repeated
    for p in repeated:
        assert min(p.times) <= p.measured <= max(p.times)
        below = sum(t <= p.measured for t in p.times)
        assert below >= len(p.times) / 2


def test_no_measurement_beats_the_physical_bound() -> None:
    # Data-sheet rates are of the payload, so a run may only come near them: 1 % for clocks.
    for p in read_points():
        least = bound(p.collective, p.cluster, place(p.cluster, p.collective.ranks))
        assert min(p.times) >= 0.99 * least, (p.platform, p.collective, min(p.times), least)


def test_the_report_counts_what_is_there() -> None:
    text = (Path(FOLDER).parent / "REPORT.md").read_text(encoding="utf-8")
    platforms = {p.platform for p in read_points()}
    for name in platforms:
        assert name in text, name
