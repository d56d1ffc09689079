"""What `commsim.plan` promises: ranked, rejected with reasons, clear where nothing fits."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import commsim
from commsim.errors import PlanError, UnknownNameError
from commsim.planning.engine import Engine
from commsim.planning.least import least_bytes, least_nodes
from commsim.planning.plans import TIE, Plans, plan
from commsim.planning.reasons import explain
from commsim.planning.space import Space, layouts
from commsim.workload.memory import memory


@pytest.fixture(scope="module")
def plans(model: commsim.Model, cluster: commsim.Cluster) -> Plans:
    return plan(model, cluster, global_batch=32, seq_len=2048, top=5, only={"cp": (1,)})


def test_the_best_is_first_and_all_fit(plans: Plans) -> None:
    durations = [one.duration for one in plans]
    assert durations == sorted(durations)
    assert [one.place for one in plans] == [1, 2, 3, 4, 5]
    assert all(one.step.memory.fits and one.headroom >= 0 for one in plans)
    assert plans[0] is plans.best
    assert plans[:2] == plans.plans[:2]
    assert len(plans) == 5


def test_ties_are_those_within_what_predictions_tell_apart(plans: Plans) -> None:
    for one in plans:
        assert one.tie == (one.duration <= plans.best.duration * (1 + TIE))
        low, high = plans.best.step.interval
        assert one.inside == (low <= one.duration <= high)


def test_every_layout_is_ranked_or_counted_with_a_reason(
    plans: Plans, model: commsim.Model, cluster: commsim.Cluster
) -> None:
    space = Space(model=model, cluster=cluster, global_batch=32, seq_len=2048, only={"cp": (1,)})
    every = list(layouts(space))
    missing = sum(not memory(model, cluster, one).fits for one in every)
    counted = {r.reason: r.count for r in plans.rejected}
    assert plans.searched == len(every)
    assert sum(n for reason, n in counted.items() if reason.startswith("do not fit")) == missing
    assert counted["fit, but are worse"] > 0
    assert all(
        r.of in ("layouts", "structures", "micro-batches") and r.count > 0 for r in plans.rejected
    )
    for one in every[:: max(1, len(every) // 50)]:
        reason = plans.why(one)
        if memory(model, cluster, one).fits:
            assert "a step against" in reason
        else:
            assert reason.startswith("does not fit: ")
    broken = replace(every[0], tp=3)
    assert plans.why(broken).startswith("layout")


def test_cost_follows_from_price_and_time(plans: Plans, cluster: commsim.Cluster) -> None:
    best = plans.best
    assert cluster.price_per_gpu_hour is not None
    tokens_per_hour = 32 * 2048 / best.duration * 3600
    assert best.cost_per_trillion_tokens == pytest.approx(
        1e12 / tokens_per_hour * cluster.n_ranks * cluster.price_per_gpu_hour
    )


def test_the_bottleneck_is_the_largest_part(plans: Plans) -> None:
    name, share = plans.best.bottleneck
    parts = plans.best.step.breakdown
    assert parts[name] == max(parts.values())
    assert share == parts[name] / plans.best.duration


def test_an_explanation_accounts_for_the_difference(plans: Plans) -> None:
    lines = explain(plans[0], plans[-1])
    assert lines[0].startswith("it differs in ")
    assert " less a step " in lines[1]
    assert any(line.startswith("memory: ") for line in lines)
    assert explain(plans[0], plans[0])[0] == "it differs in nothing"


def test_plain_data(plans: Plans) -> None:
    found = json.loads(json.dumps(plans.to_dict()))
    assert found["n_ranks"] == 16
    assert [p["place"] for p in found["plans"]] == [1, 2, 3, 4, 5]
    assert found["plans"][0]["duration_s"] == plans.best.duration
    assert found["rejected"][0].keys() == {"reason", "count", "of"}
    assert found["price"]["usd_per_gpu_hour"] > 0
    assert found["front"]


def test_memory_as_the_objective(model: commsim.Model, cluster: commsim.Cluster) -> None:
    found = plan(
        model, cluster, global_batch=32, seq_len=2048, objective="memory", top=3,
        only={"cp": (1,)},
    )  # fmt: skip
    assert [one.tie for one in found] == [True, False, False]  # of steps, and it is not by them
    rooms = [one.headroom for one in found]
    assert rooms == sorted(rooms, reverse=True)


def test_several_frameworks_are_ranked_together(
    model: commsim.Model, cluster: commsim.Cluster
) -> None:
    both = plan(
        model, cluster, global_batch=32, seq_len=2048, framework=("fsdp", "deepspeed"), top=4
    )
    alone = [
        plan(model, cluster, global_batch=32, seq_len=2048, framework=name, top=4)
        for name in ("fsdp", "deepspeed")
    ]
    assert both.best.duration == min(one.best.duration for one in alone)
    assert both.searched == sum(one.searched for one in alone)


def test_the_best_are_played_by_the_event_engine(
    model: commsim.Model, cluster: commsim.Cluster
) -> None:
    found = plan(
        model, cluster, global_batch=32, seq_len=2048, top=4, simulate=2,
        only={"cp": (1,), "micro_batch": (1,)},
    )  # fmt: skip
    played = [one.simulated for one in found]
    assert played[2:] == [None, None]
    assert played[0] is not None
    assert played[1] is not None
    assert played[0] <= played[1]
    assert played[0] == pytest.approx(found[0].duration, rel=0.2)


def test_a_cluster_too_small_names_the_least_that_would_do() -> None:
    with pytest.raises(PlanError, match="the least that would do is") as caught:
        plan(
            commsim.load_model("llama3-70b"), commsim.load_cluster("dgx-h100"),
            global_batch=48, seq_len=4096,
        )  # fmt: skip
    gpus = caught.value.least_gpus
    assert gpus is not None
    # 70.6e9 parameters x 16 bytes (weights and Adam's states) are 1.13 TB: at least 15 GPUs.
    assert 16 <= gpus <= 32
    nodes = gpus // 8
    model = commsim.load_model("llama3-70b")
    fits = []
    for count in (nodes - 1, nodes):
        there = commsim.load_cluster("dgx-h100", nodes=count)
        space = Space(model=model, cluster=there, global_batch=48, seq_len=4096)
        fits.append(any(memory(model, there, one).fits for one in layouts(space)))
    assert fits == [False, True]


def test_the_least_is_found_upwards_from_what_a_copy_takes(cluster: commsim.Cluster) -> None:
    model = commsim.load_model("llama3.2-1b")
    space = Space(model=model, cluster=cluster, global_batch=8, seq_len=2048)
    assert least_bytes(space) == 6 * model.parameters
    assert least_nodes(space) == 1


def test_no_layout_at_all_says_which_rule_broke(model: commsim.Model) -> None:
    cluster = commsim.load_cluster("dgx-h100")
    with pytest.raises(PlanError, match="no layout is possible"):
        plan(model, cluster, global_batch=8, seq_len=2048, only={"tp": (3,)})
    with pytest.raises(PlanError, match="stages and chunks"):
        plan(model, cluster, global_batch=8, seq_len=2048, only={"pp": (8,)})


@pytest.mark.parametrize(
    "only",
    [
        {"overlap_grad_reduce": (False,)},
        {"overlap_param_gather": (False,), "zero_stage": (0,)},
        {"tp_comm_overlap": (False,), "order": ("tp-cp-ep-pp-dp",)},
        {"sequence_parallel": (False,), "tp": (2, 4)},
        {"hsdp": (None,), "recompute": ("full",), "schedule": ("1f1b",), "interleave": (1, 2)},
    ],
)
def test_what_is_held_is_kept(
    only: dict[str, tuple[object, ...]], model: commsim.Model, cluster: commsim.Cluster
) -> None:
    space = Space(model=model, cluster=cluster, global_batch=32, seq_len=2048, only=only)
    every = list(layouts(space))
    assert every
    for one in every:
        exchanged = one.dp * one.cp > 1
        for name, values in only.items():
            if not (name.startswith("overlap") and not exchanged):
                assert getattr(one, name) in values


def test_a_list_of_parts_is_planned_for_data_parallelism() -> None:
    model, cluster = commsim.load_model("resnet50"), commsim.load_cluster("dgx-h100")
    found = plan(model, cluster, global_batch=256, seq_len=1, framework="ddp", top=3)
    assert all((one.layout.tp, one.layout.pp) == (1, 1) for one in found)


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"objective": "beauty"}, UnknownNameError, "unknown objective"),
        ({"framework": "jax"}, UnknownNameError, "unknown framework"),
        ({"dtype": "int4"}, UnknownNameError, "unknown dtype"),
        ({"only": {"tq": (1,)}}, UnknownNameError, "did you mean 'tp'|dimension"),
        ({"only": {"tp": ()}}, PlanError, "expected at least one value"),
        ({"only": {"tp": ("four",)}}, PlanError, "only tp: expected values such as 1, got 'four'"),
        ({"only": {"pp": (0,)}}, PlanError, "only pp: expected values such as 1, got 0"),
        ({"only": {"recompute": ("some",)}}, UnknownNameError, "unknown recompute 'some'"),
        ({"only": {"order": ("tp-dp",)}}, PlanError, "only order: layout.order: expected"),
        ({"only": {"tp_comm_overlap": (1,)}}, PlanError, "expected values such as False, got 1"),
        ({"global_batch": 0}, PlanError, "global_batch: expected a whole number"),
        ({"seq_len": 1.5}, PlanError, "seq_len: expected a whole number"),
        ({"top": 0}, PlanError, "top of 1 or more"),
    ],
)
def test_bad_questions(
    arguments: dict[str, object],
    kind: type[Exception],
    message: str,
    model: commsim.Model,
    cluster: commsim.Cluster,
) -> None:
    asked: dict[str, object] = {"global_batch": 32, "seq_len": 2048} | arguments
    with pytest.raises(kind, match=message):
        plan(model, cluster, **asked)  # type: ignore[arg-type]


def test_the_public_name_is_this_one() -> None:
    assert commsim.plan is plan
    assert commsim.Plans is Plans
    assert Engine().where == "auto"
