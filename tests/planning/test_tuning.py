"""Settings are worth what the step, predicted under them, takes; the search against all of them."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

import commsim
from commsim.planning import buckets
from commsim.planning.plans import plan
from commsim.planning.space import Space, layouts
from commsim.planning.tuning import WORTH, Search, Setting, Tuned, tune, with_variables
from commsim.workload import bucketing
from commsim.workload.layout import Layout
from commsim.workload.memory import memory


def step_of(model: commsim.Model, name: str, nodes: int = 2, **more: Any) -> commsim.StepPrediction:
    cluster = commsim.load_cluster(name, nodes=nodes)
    asked = {"dp": cluster.n_ranks, "global_batch": 2 * cluster.n_ranks, "seq_len": 512} | more
    return commsim.predict_step(model, cluster, Layout(**asked))


CASES: list[tuple[str, dict[str, Any]]] = [
    ("dgx-h100", {}),
    ("dgx-h100", {"zero_stage": 0, "overlap_grad_reduce": False}),
    ("dgx-h100", {"tp": 2, "dp": 8, "zero_stage": 0, "sequence_parallel": False}),
    ("dgx-a100", {"framework": "deepspeed", "zero_stage": 0}),
    ("dgx-a100", {"framework": "ddp", "zero_stage": 0}),
    ("l40sx8", {"tp": 2, "pp": 2, "dp": 4}),
]


@pytest.fixture(scope="module", params=CASES, ids=lambda c: f"{c[0]}-{len(c[1])}")
def step(request: pytest.FixtureRequest, model: commsim.Model) -> commsim.StepPrediction:
    name, more = request.param
    return step_of(model, name, **more)


def every(search: Search) -> list[Setting]:
    """All combinations of what is searched."""
    found = []
    for network in search.networks():
        *ways, sizes = search.changes(Setting(network))
        for chosen in product(*([Setting(network), *one] for one in (*ways, sizes))):
            joined: dict[str, tuple[str, str]] = {}
            for one in chosen[:-1]:
                joined |= one.ways
            found.append(Setting(network, joined, chosen[-1].bucket))
    return found


def test_the_search_loses_nothing_to_trying_every_combination(
    step: commsim.StepPrediction,
) -> None:
    search = Search(step)
    least = min(map(search.took, every(search)))
    found = tune(step, worth=1e-9)
    # One by one may miss what only two changes together bring: it must be less than is worth it.
    assert found.duration <= least * (1 + WORTH / 5)
    assert found.duration == search.took(Search(step).best(1e-9))
    assert found.saved == pytest.approx(step.duration - found.duration, abs=1e-12)


def test_no_setting_beats_the_least_that_is_said_of_it(step: commsim.StepPrediction) -> None:
    search = Search(step)
    for network in search.networks():
        plain = Setting(network)
        for others in search.changes(plain):
            for one in others:
                assert search.least(one, plain) <= search.took(one) * (1 + 1e-12)


def test_buckets_of_the_frameworks_own_size_change_nothing(step: commsim.StepPrediction) -> None:
    own = bucketing.bucket_size(step.layout, first=True)
    if 0 < own < float("inf"):
        again = buckets.with_size(step, own)
        assert again.duration == pytest.approx(step.duration, abs=1e-12)
        assert again.messages == step.messages
    else:
        assert buckets.sizes(step.layout) == ()


def test_where_a_bucket_is_a_layer_there_is_no_size_to_set(model: commsim.Model) -> None:
    sharded = step_of(model, "dgx-h100", framework="fsdp", zero_stage=3)
    alone = step_of(model, "dgx-h100", nodes=1, tp=8, dp=1)
    assert buckets.sizes(sharded.layout) == buckets.sizes(alone.layout) == ()


def test_larger_buckets_are_fewer_messages(model: commsim.Model) -> None:
    # All in one bucket: nothing is reduced before the last gradient is there.
    step = step_of(model, "dgx-h100", framework="ddp", zero_stage=0)
    plain = step_of(model, "dgx-h100", framework="ddp", zero_stage=0, overlap_grad_reduce=False)
    whole = buckets.with_size(step, 1e15).exchange
    (one,) = plain.exchanges
    assert whole >= one.gradients / one.reduced_in


def test_a_setting_is_what_nccl_itself_does_with_the_variables(model: commsim.Model) -> None:
    step = step_of(model, "dgx-h100", 4, zero_stage=0, overlap_grad_reduce=False)
    (sent,) = [one for one in step.messages if one.message.operation == "all_reduce"]
    search = Search(step)
    there = search.of(Setting(ways={"all_reduce": ("tree", "Simple")}))
    library = commsim.Nccl(
        version="2.30.7", env={"NCCL_ALGO": "allreduce:Tree", "NCCL_PROTO": "allreduce:Simple"}
    )
    alone = commsim.predict(
        commsim.Collective("all_reduce", nbytes=sent.message.nbytes), step.cluster, library
    )
    (forced,) = [one for one in there.messages if one.message.operation == "all_reduce"]
    assert forced.message.algorithm == "tree Simple"
    assert forced.message.duration == alone.duration


def test_before_2_24_a_way_holds_for_all_operations(model: commsim.Model) -> None:
    step = step_of(model, "dgx-h100")
    old = replace(step.cluster, default_library="nccl@2.20.5")
    search = Search(commsim.predict_step(model, old, step.layout))
    ways, _ = search.changes(Setting())
    assert ways
    for one in ways:
        assert len(set(one.ways.values())) == 1
        names = dict(one.variables(search.by_operation))
        assert ":" not in names["NCCL_ALGO"] + names["NCCL_PROTO"]
        assert search.of(one).duration > 0  # the release understands it


def test_only_what_is_worth_it_is_named(step: commsim.StepPrediction) -> None:
    assert tune(step, worth=1.0) == Tuned(step.duration)
    found = tune(step)
    assert found.saved == 0 or found.saved >= WORTH * step.duration
    assert bool(found.text) == bool(found.saved)


def test_other_libraries_have_buckets_alone(model: commsim.Model) -> None:
    search = Search(step_of(model, "mi300x", 2))
    assert list(search.networks()) == [()]
    assert len(list(search.changes(Setting()))) == 1


def test_as_a_shell_takes_it() -> None:
    found = Tuned(
        1.0, 0.5,
        (("NCCL_ALGO", "allgather:Ring;allreduce:Tree"), ("NCCL_MIN_CTAS", "32")), 2e7,
    )  # fmt: skip
    assert found.text == (
        "NCCL_ALGO='allgather:Ring;allreduce:Tree' NCCL_MIN_CTAS=32, buckets of 20,000,000 elements"
    )
    assert found.to_dict()["bucket_elements"] == 2e7


def test_variables_travel_with_the_cluster(cluster: commsim.Cluster) -> None:
    variables = (("NCCL_ALGO", "allreduce:Ring"), ("NCCL_PROTO", "allreduce:LL"))
    there = with_variables(cluster, variables)
    asked = commsim.Collective("all_reduce", nbytes=1 << 26)
    found = commsim.predict(asked, there)
    assert (found.algorithm, found.protocol) == ("ring", "LL")
    assert commsim.predict(asked, cluster).protocol != "LL"


@pytest.mark.parametrize(
    ("name", "nodes", "framework"),
    [("dgx-h100", 2, "megatron"), ("rtx4090x8", 1, "deepspeed"), ("dgx-a100", 1, "nemo")],
)
def test_the_settings_of_the_best_few_find_the_best_of_all(
    name: str, nodes: int, framework: str, model: commsim.Model
) -> None:
    # Layouts and settings are searched one after the other: here every layout is given its best
    # settings, and none beats what the plan found among its first five.
    cluster = commsim.load_cluster(name, nodes=nodes)
    only: dict[str, tuple[Any, ...]] = {
        "cp": (1,), "recompute": ("none",), "interleave": (1,), "overlap_grad_reduce": (True,),
        "overlap_param_gather": (True,), "tp_comm_overlap": (False,),
    }  # fmt: skip
    asked = {"global_batch": 32, "seq_len": 1024, "framework": framework, "only": only}
    space = Space(model=model, cluster=cluster, **asked)
    found = plan(model, cluster, top=10, tuned=5, **asked)
    best = found.best.tuned
    assert best is not None
    everything = [
        tune(step, buckets.best(step)).duration
        for one in list(layouts(space))[::5]
        if memory(model, cluster, one).fits
        for step in (commsim.predict_step(model, cluster, one),)
    ]
    assert len(everything) > 8
    assert best.duration <= min(everything) * (1 + 1e-12)
    ranked = [one.tuned.duration for one in found[:5] if one.tuned is not None]
    assert ranked == sorted(ranked)
