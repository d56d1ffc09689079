"""Sensitivity, reliability, scaling, several clusters, placement: against values worked by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import commsim
from commsim.errors import PlanError
from commsim.planning import sensitivity
from commsim.planning.comparison import compare
from commsim.planning.placement import Traffic, cost, mappings, orders
from commsim.planning.plans import Plans, plan
from commsim.planning.prices import Price, price_of
from commsim.planning.prices import cost as price_for
from commsim.planning.reliability import (
    GPU_MTBF,
    best_interval,
    checkpoint_duration,
    goodput,
    reliability,
    with_slow_node,
)
from commsim.planning.scaling import doublings, scaling
from commsim.workload.layout import Layout


def small_plan(model: commsim.Model, cluster: commsim.Cluster, **more: Any) -> Plans:
    return plan(
        model, cluster, global_batch=64, seq_len=2048, top=2,
        only={"micro_batch": (1,), "cp": (1,), "recompute": ("none", "full")}, **more,
    )  # fmt: skip


# Sensitivity ---------------------------------------------------------------------------------


def test_parts_of_a_node_and_of_a_cluster(cluster: commsim.Cluster) -> None:
    alone = sensitivity.parts_of(replace(cluster, nodes=1))
    both = sensitivity.parts_of(cluster)
    assert {"GPU compute", "GPU memory bandwidth", "NVLink", "PCIe"} <= alone.keys()
    assert both.keys() - alone.keys() == {"NICs", "switches above the nodes"}


def test_each_change_changes_its_part_alone(cluster: commsim.Cluster) -> None:
    parts = sensitivity.parts_of(cluster)
    nics = parts["NICs"](cluster, 2.0)
    assert [n.rate for n in nics.node.nics] == [2 * n.rate for n in cluster.node.nics]
    assert nics.node.links == cluster.node.links
    assert nics.gpu == cluster.gpu
    links = parts["NVLink"](cluster, 2.0).node.links
    for old, new in zip(cluster.node.links, links, strict=True):
        factor = 2 if old.kind == "nvlink" else 1
        assert (new.width, new.bandwidth) == (factor * old.width, factor * old.bandwidth)
    slower = parts["switches above the nodes"](cluster, 0.5)
    assert slower.fabric.oversubscription == 2 * cluster.fabric.oversubscription
    fast = parts["GPU compute"](cluster, 2.0).gpu
    assert dict(fast.flops)["bfloat16"] == 2 * dict(cluster.gpu.flops)["bfloat16"]
    assert sensitivity.with_memory(cluster, 0.5).gpu.memory == cluster.gpu.memory // 2


def test_compute_matters_most_where_nothing_is_sent(model: commsim.Model) -> None:
    one = commsim.load_cluster("dgx-h100", **{"node.gpus": 1, "node.nics.count": 1})
    layout = Layout(micro_batch=8, global_batch=32, seq_len=2048)  # much to do for each weight
    found = {s.part: s for s in sensitivity.sensitivities(model, one, layout)}
    assert max(found.values(), key=lambda s: s.elasticity).part == "GPU compute"
    assert found["PCIe"].elasticity == 0
    total = found["GPU compute"].elasticity + found["GPU memory bandwidth"].elasticity
    assert 0 < total <= 1 + 1e-9  # the rest is launches and the framework's own time


def test_a_better_part_never_slows_the_step(model: commsim.Model, cluster: commsim.Cluster) -> None:
    layout = Layout(tp=2, dp=8, global_batch=16, seq_len=2048)
    for found in sensitivity.sensitivities(model, cluster, layout):
        assert found.doubled <= found.base * (1 + 1e-9) <= found.halved * (1 + 1e-9) ** 2
        assert found.saved == found.base - found.doubled


def test_replicas_over_slow_nics_want_faster_nics(model: commsim.Model) -> None:
    slow = commsim.load_cluster(
        "dgx-h100", nodes=8, **{"node.nics.count": 1, "node.nics.rate": "25Gbit/s"}
    )
    layout = Layout(dp=64, global_batch=64, seq_len=512, zero_stage=0)
    found = {s.part: s.elasticity for s in sensitivity.sensitivities(model, slow, layout)}
    assert max(found, key=lambda part: found[part]) == "NICs"


def test_memory_is_worth_the_layouts_it_makes_possible(
    model: commsim.Model, cluster: commsim.Cluster
) -> None:
    step = small_plan(model, cluster).best.step
    times = {2.0: 0.5, 1.1: 0.9, 1 / 1.1: 1.1, 0.5: math.inf}

    def plan_on(changed: commsim.Cluster) -> float:
        return times[min(times, key=lambda f: abs(changed.gpu.memory / cluster.gpu.memory - f))]

    found = sensitivity.memory_sensitivity(cluster, step, plan_on)
    assert (found.doubled, found.halved) == (0.5, math.inf)
    assert found.elasticity == pytest.approx(math.log(1.1 / 0.9) / (2 * math.log(1.1)))


# Reliability ---------------------------------------------------------------------------------


def test_a_gpus_time_between_failures_is_that_of_llama_3() -> None:
    # 419 unexpected interruptions of 16,384 GPUs in 54 days: one in 3.09 hours.
    assert pytest.approx(54 * 24 / 419) == GPU_MTBF / 16384 / 3600


def test_the_best_interval_is_youngs_where_checkpoints_are_short() -> None:
    found = reliability(1, checkpoint=1.0, restart=0.0, gpu_mtbf=1e6)
    assert found.interval == pytest.approx(found.young, rel=1e-3)
    assert found.young == pytest.approx(math.sqrt(2e6))


@pytest.mark.parametrize(("mtbf", "checkpoint"), [(1e4, 60.0), (1e4, 3000.0), (3e5, 10.0)])
def test_no_other_interval_is_better(mtbf: float, checkpoint: float) -> None:
    best = best_interval(mtbf, checkpoint)
    most = goodput(mtbf, checkpoint, 300.0, best)
    for factor in (0.5, 0.9, 0.99, 1.01, 1.1, 2.0):
        assert goodput(mtbf, checkpoint, 300.0, best * factor) < most


def test_goodput_against_failures_thrown_at_random() -> None:
    mtbf, checkpoint, restart, interval = 4000.0, 100.0, 50.0, 800.0
    generator = np.random.default_rng(7)
    useful = passed = 0.0
    until = generator.exponential(mtbf)
    for _ in range(20_000):  # segments of work and checkpoint; a failure repeats the segment
        while until < interval + checkpoint:
            passed += until
            until = generator.exponential(mtbf)
            while until < restart:  # fails again before it is up
                passed += until
                until = generator.exponential(mtbf)
            passed += restart
            until -= restart
        until -= interval + checkpoint
        passed += interval + checkpoint
        useful += interval
    assert useful / passed == pytest.approx(goodput(mtbf, checkpoint, restart, interval), rel=0.01)


def test_a_checkpoint_of_a_billion_parameters() -> None:
    model = commsim.load_model("llama3.2-1b")
    # 14 bytes a parameter over 14 GB/s: as many seconds as billions of parameters.
    assert checkpoint_duration(model, 14e9) == pytest.approx(model.parameters / 1e9)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"gpus": 0, "checkpoint": 1.0}, "gpus: expected more than 0"),
        ({"gpus": 8, "checkpoint": -1.0}, "checkpoint: expected more than 0"),
        ({"gpus": 8, "checkpoint": 1.0, "restart": -1.0}, "restart: expected 0 s or more"),
        ({"gpus": 8, "checkpoint": 1.0, "gpu_mtbf": math.inf}, "gpu_mtbf: expected"),
    ],
)
def test_what_cannot_be_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        reliability(**arguments)


def test_a_slow_node_holds_up_everyone(model: commsim.Model, cluster: commsim.Cluster) -> None:
    layout = Layout(dp=16, global_batch=32, seq_len=2048)
    step = commsim.predict_step(model, cluster, layout)
    # Without a pipeline the step's passes take 10 % longer, the rest does not.
    passes = step.pipeline.duration
    assert with_slow_node(step, 1.1) == pytest.approx(step.duration + 0.1 * passes)
    assert with_slow_node(step, 1.0) == pytest.approx(step.duration)
    staged = commsim.predict_step(model, cluster, replace(layout, pp=2, dp=8))
    slow = with_slow_node(staged, 1.1)
    assert staged.duration < slow < staged.duration + 0.1 * staged.pipeline.duration
    with pytest.raises(PlanError, match="slowdown of 1 or more"):
        with_slow_node(step, 0.9)


# Scaling and several clusters ----------------------------------------------------------------


def test_doublings() -> None:
    assert doublings(8) == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048]
    assert doublings(4)[-1] * 4 == 16384


def test_scaling_says_how_efficient_and_what_changes(
    model: commsim.Model, cluster: commsim.Cluster
) -> None:
    points = scaling(cluster, lambda c: small_plan(model, c), [1, 2, 4])
    assert [p.gpus for p in points] == [8, 16, 32]
    assert points[0].efficiency == 1
    for before, after in pairwise(points):
        assert after.plan is not None
        assert before.plan is not None
        rate = after.plan.step.tokens_per_second_per_gpu
        assert after.efficiency == pytest.approx(
            rate / before.plan.step.tokens_per_second_per_gpu * before.efficiency
        )
        old, new = before.plan.layout, after.plan.layout
        assert (f"tp {old.tp} -> {new.tp}" in after.changed) == (old.tp != new.tp)
        assert (f"pp {old.pp} -> {new.pp}" in after.changed) == (old.pp != new.pp)


def test_scaling_goes_on_where_nothing_fits(cluster: commsim.Cluster) -> None:
    model = commsim.load_model("llama3-70b")
    points = scaling(cluster, lambda c: small_plan(model, c), [1, 4])
    assert points[0].plan is None
    assert "the least that would do is" in points[0].why
    assert points[1].plan is not None
    assert points[1].efficiency == 1


def test_the_cheaper_cluster_and_the_faster_one(model: commsim.Model) -> None:
    fast = commsim.load_cluster("dgx-h100", price_per_gpu_hour="30 USD")
    cheap = commsim.load_cluster("dgx-a100", price_per_gpu_hour="1 USD")
    dear = commsim.load_cluster("dgx-a100", price_per_gpu_hour="99 USD")
    by_time = compare([cheap, fast, dear], lambda c: small_plan(model, c))
    assert by_time[0].cluster is fast
    by_cost = compare([fast, dear, cheap], lambda c: small_plan(model, c), "cost")
    assert [offer.cluster for offer in by_cost] == [cheap, fast, dear]
    assert [offer.front for offer in by_cost] == [True, True, False]
    best = by_cost[0]
    assert best.plan is not None
    seconds = 1e12 / (64 * 2048) * best.plan.duration
    assert best.duration == pytest.approx(seconds)
    assert best.cost == pytest.approx(1.0 * 8 * seconds / 3600)


def test_a_cluster_without_a_price_comes_last_by_cost(model: commsim.Model) -> None:
    known = commsim.load_cluster("dgx-h100", price_per_gpu_hour="3 USD")
    unknown = replace(
        known, price_per_gpu_hour=None, gpu=replace(known.gpu, name="GPU of next year")
    )
    assert price_of(unknown) is None
    found = compare([unknown, known], lambda c: small_plan(model, c), "cost")
    assert [offer.cluster for offer in found] == [known, unknown]
    assert found[1].cost is None
    plans = small_plan(model, unknown)
    assert plans.best.cost_per_trillion_tokens is None
    assert any("no price" in note for note in plans.notes)


def test_prices() -> None:
    h100 = commsim.load_cluster("dgx-h100")
    assert price_for(Price(usd_per_gpu_hour=2.0, date="", source=""), 8, 1800.0) == 8.0
    stated = price_of(h100)
    assert stated is not None
    assert stated.usd_per_gpu_hour == h100.price_per_gpu_hour
    listed = price_of(replace(h100, price_per_gpu_hour=None))
    assert listed is not None
    assert listed.date == "2026-05-20"
    assert "https://" in listed.source


# Placement -----------------------------------------------------------------------------------


def test_groups_that_talk_are_brought_together(cluster: commsim.Cluster) -> None:
    far = Traffic(
        kind="tp", groups=tuple(tuple(range(i, 16, 2)) for i in range(2)),
        operation="all_reduce", nbytes=1 << 28, count=80,
    )  # fmt: skip
    near = Traffic(
        kind="dp", groups=tuple((2 * i, 2 * i + 1) for i in range(8)), operation="all_reduce",
        nbytes=1 << 20,
    )  # fmt: skip
    found = mappings([far, near], cluster)
    best = found[0]
    for group in far.groups:
        assert len({best.ranks[rank] // 8 for rank in group}) == 1
    assert sorted(best.ranks) == list(range(16))
    assert best.duration == cost([far, near], best.ranks, cluster)
    assert best.duration < next(m for m in found if m.name == "as numbered").duration


def test_two_groups_of_three_on_two_nodes_by_swapping() -> None:
    # Only swapping finds this where a group straddles the machines' boundary when packed.
    cluster = commsim.load_cluster("dgx-h100", nodes=2, **{"node.gpus": 4, "node.nics.count": 4})
    traffic = Traffic(
        kind="trio", groups=((0, 3, 6), (1, 4, 7)), operation="all_reduce", nbytes=1 << 28
    )
    best = mappings([traffic], cluster)[0]
    for group in traffic.groups:
        assert len({best.ranks[rank] // 4 for rank in group}) == 1


def test_groups_with_a_rank_twice_are_refused(cluster: commsim.Cluster) -> None:
    bad = Traffic(kind="tp", groups=((0, 1), (1, 2)), operation="all_reduce", nbytes=8)
    with pytest.raises(PlanError, match="tp: expected each of the ranks 0 to 15 at most once"):
        mappings([bad], cluster)


def test_tensor_parallel_ranks_belong_in_one_machine(
    model: commsim.Model, cluster: commsim.Cluster
) -> None:
    layout = Layout(tp=8, dp=2, global_batch=16, seq_len=2048)
    found = orders(model, cluster, layout)
    assert found[0][0].startswith("tp")
    assert found[0][1] < found[-1][1]
    assert found[-1][0].startswith("dp")
