"""What the pictures hold: figures that were worked out here, or that the library gives."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from commsim.calibration.agreement import Agreement, compare
from commsim.collectives.collective import Collective
from commsim.libraries.lookup import library
from commsim.measurements.measurement import Measurement
from commsim.prediction import predict
from commsim.report.explanation import Stage
from commsim.report.plots.curves import curves
from commsim.report.plots.gantt import step_timeline, timeline
from commsim.report.plots.heat import link_heat
from commsim.report.plots.regions import regions
from commsim.report.plots.residuals import coverage, residuals
from commsim.report.plots.scaling import scaling, step_scaling
from commsim.report.plots.step_waterfall import step_waterfall
from commsim.report.plots.style import COLOURS, log_ticks, styled
from commsim.report.plots.topology import topology
from commsim.report.plots.waterfall import waterfall
from commsim.report.regions import Region
from commsim.simulation import simulate
from commsim.topology.cluster import Cluster
from commsim.topology.load import load_cluster
from commsim.workload.layout import Layout
from commsim.workload.load import load_model
from commsim.workload.simulated_step import StepTimeline, simulate_step
from commsim.workload.step import predict_step


@pytest.fixture(scope="module")
def two() -> Cluster:
    return load_cluster("dgx-h100", nodes=2)


@pytest.fixture(scope="module")
def played_step() -> StepTimeline:
    layout = Layout(tp=8, pp=2, global_batch=4, seq_len=4096)
    return simulate_step(load_model("llama3-8b"), load_cluster("dgx-h100", nodes=2), layout)


def rows(chart: Any) -> list[dict[str, Any]]:
    """Every row of data in a chart."""
    return [row for rows in styled(chart).to_dict()["datasets"].values() for row in rows]


def titles(chart: Any) -> set[str]:
    """Titles of axes."""
    found: set[str] = set()

    def walk(part: Any) -> None:
        if isinstance(part, dict):
            axis = part.get("axis")
            if isinstance(axis, dict) and axis.get("title"):
                found.add(axis["title"])
            for value in part.values():
                walk(value)
        elif isinstance(part, list):
            for value in part:
                walk(value)

    walk(styled(chart).to_dict())
    return found


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([3.0], [2.0, 5.0]),
        ([1.0, 7.0], [1.0, 2.0, 5.0, 10.0]),
        ([2e-6, 3e-5], [2e-6, 5e-6, 1e-5, 2e-5, 5e-5]),
        ([2e-6, 0.5], [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0]),
    ],
)
def test_ticks_are_round_and_hold_all_values(values: list[float], ticks: list[float]) -> None:
    assert log_ticks(values) == pytest.approx(ticks)


def test_colours_are_eight_different_ones() -> None:
    assert len(set(COLOURS)) == 8


def test_curves_show_prediction_interval_and_measurements(two: Cluster) -> None:
    asked = [Collective("all_reduce", nbytes=n) for n in (1 << 10, 1 << 30)]
    predictions = [predict(c, two) for c in asked]
    measured = [Measurement(asked[1], duration=0.01, cluster=two)]
    chart = curves({"ours": predictions}, measured)
    found = rows(chart)
    assert titles(chart) == {"size", "bus bandwidth (GB/s)", "time"}
    large = next(r for r in found if r.get("line") == "ours" and r["size"] == 1 << 30)
    low, high = predictions[1].interval
    factor = 2 * 15 / 16 * (1 << 30) / 1e9  # nccl-tests: bus bandwidth of 16 ranks, GB
    assert large["time"] == predictions[1].duration
    assert large["bandwidth_low"] == pytest.approx(factor / high)
    assert large["bandwidth_high"] == pytest.approx(factor / low)
    point = next(r for r in found if "line" not in r)
    assert point["time"] == 0.01
    assert point["bandwidth"] == pytest.approx(factor / 0.01)


def test_a_stage_of_the_waterfall_begins_where_the_one_before_ended() -> None:
    stages = [
        Stage(name="raw", bandwidth=400e9, reason="link"),
        Stage(name="protocol", bandwidth=300e9, reason="flags"),
        Stage(name="algorithm", bandwidth=600e9, reason="counts more"),
    ]
    found = {r["stage"]: r for r in rows(waterfall(stages, "t"))}
    assert (found["raw"]["bandwidth"], found["raw"]["end"]) == (400, 400)
    assert (found["protocol"]["bandwidth"], found["protocol"]["end"]) == (300, 400)
    assert (found["algorithm"]["bandwidth"], found["algorithm"]["end"]) == (600, 600)
    assert found["protocol"]["text"] == "300 GB/s  (x 0.75)"


def test_regions_carry_their_choice() -> None:
    chart = regions({"2 nodes": [Region(low=8, high=1024, choice="tree/LL")]}, "t")
    assert [(r["row"], r["size"], r["end"], r["choice"]) for r in rows(chart)] == [
        ("2 nodes", 8, 1024, "tree/LL")
    ]


def test_parts_of_a_step_follow_one_another_up_to_its_duration(played_step: StepTimeline) -> None:
    step = played_step.predicted
    found = rows(step_waterfall(step))
    parts = [r for r in found if "kind" in r]
    unique = list({r["part"]: r for r in parts}.values())
    assert unique[0]["begin"] == 0
    for before, after in pairwise(unique):
        assert after["begin"] == pytest.approx(before["end"])
    assert unique[-1]["end"] == pytest.approx(step.duration)
    whole = next(r for r in found if r["part"] == "step")
    assert (whole["low"], whole["high"]) == step.interval


def test_a_ring_is_drawn_rank_by_rank(two: Cluster) -> None:
    asked = Collective("all_reduce", 1 << 20, ranks=(0, 1, 2, 3))
    found = simulate([(asked, 0.0)], two, library("nccl"), algorithm="ring", fold=False)
    bars = rows(timeline(found))
    assert {r["row"] for r in bars} == {f"rank {i}" for i in range(4)}
    assert {r["kind"] for r in bars} == {"sends", "sends, reduced there"}
    first = min(float(s.begun) for s in found.spans)
    assert min(r["begin"] for r in bars) == pytest.approx(first)
    assert max(r["end"] for r in bars) <= found.duration * (1 + 1e-9)
    heat = rows(link_heat(found))
    hottest = next(iter(found.link_utilization))
    assert heat[0]["link"] == hottest
    # what a link carried in all is the mean over time
    mine = [r for r in heat if r["link"] == hottest]
    for before, after in pairwise(mine):
        assert after["begin"] == before["end"]
    carried = sum(r["share"] * (r["end"] - r["begin"]) for r in mine)
    assert carried / (mine[-1]["end"] - mine[0]["begin"]) == pytest.approx(
        found.link_utilization[hottest], rel=0.02
    )


def test_every_stage_and_stream_of_a_played_step_has_its_lane(played_step: StepTimeline) -> None:
    bars = rows(step_timeline(played_step))
    assert {r["row"] for r in bars} == {"stage 0", "stage 1"}
    spans = list(played_step.spans)
    assert {(r["row"], r["lane"]) for r in bars} == {(f"stage {s.stage}", s.stream) for s in spans}
    assert max(r["end"] for r in bars) == pytest.approx(max(s.end for s in spans))
    assert len(bars) <= len(spans)


def test_scaling_shows_each_count_once(two: Cluster) -> None:
    asked = Collective("all_reduce", nbytes=1 << 28)
    found = [predict(asked, replace(two, nodes=n)) for n in (1, 2, 4)]
    unique = {r["count"]: r for r in rows(scaling(found))}
    assert [unique[n]["ranks"] for n in (1, 2, 4)] == [8, 16, 32]
    assert unique[4]["time"] == found[2].duration


def test_a_step_scales_beside_the_fewest_gpus() -> None:
    model, machine = load_model("llama3-8b"), load_cluster("dgx-h100")
    steps = [
        predict_step(
            model, replace(machine, nodes=n),
            Layout(tp=8, dp=n, global_batch=n, seq_len=4096),
        )
        for n in (1, 2)
    ]  # fmt: skip
    found = {r["count"]: r for r in rows(step_scaling(steps, "t"))}
    assert found[16]["ideal"] == steps[0].tokens_per_second_per_gpu
    assert found[16]["rate"] == steps[1].tokens_per_second_per_gpu


def test_residuals_show_every_point_and_its_error(two: Cluster) -> None:
    asked = Collective("all_reduce", nbytes=1 << 20)
    predicted = predict(asked, two).duration
    found = compare([Measurement(asked, duration=1.25 * predicted, cluster=two)])
    point = next(r for r in rows(residuals(found, "t")) if "operation" in r)
    assert point["measured"] == 1.25 * predicted
    assert point["predicted"] == predicted
    assert point["error"] == pytest.approx(-0.2)  # 1 / 1.25 - 1
    assert (point["operation"], point["nodes"]) == ("all_reduce", "several nodes")


def test_coverage_says_how_many_of_how_many() -> None:
    row = Agreement(
        kind="all", group="all", points=12, median=0.1, mean=0.1, worst_tenth=0.2, bias=1.0,
        inside=0.75,
    )  # fmt: skip
    hidden = replace(row, kind="ranks", group="16")
    found = [r for r in rows(coverage([row, hidden])) if "group" in r]
    assert {(r["group"], r["inside"], r["text"]) for r in found} == {
        ("all points", 0.75, "75% of 12 points")
    }


def test_hot_links_lie_on_top_of_cold_ones(two: Cluster) -> None:
    load = {"node0/gpu0 -> node0/nvswitch": 0.9}
    wires = [r for r in rows(topology(two, load)) if "load" in r]
    assert wires[-1]["load"] == 0.9
    assert all(w["load"] == 0 for w in wires[:-1])


def test_links_that_bind_stand_out_on_top(two: Cluster) -> None:
    wires = [r for r in rows(topology(two, binds="nic")) if "shown" in r]
    bound = [w for w in wires if w["shown"] == "binds"]
    assert len(bound) == 2 * 8 * 2  # of two machines eight NICs, each with its port and its cable
    assert wires[-len(bound) :] == bound
    assert not [w for w in rows(topology(two)) if w.get("shown") == "binds"]
