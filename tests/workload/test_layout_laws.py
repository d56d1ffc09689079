"""Laws that every layout keeps, on layouts, models and clusters drawn at random."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from commsim.errors import LayoutError
from commsim.topology.cluster import Cluster
from commsim.topology.load import load_cluster
from commsim.workload.layout import Layout
from commsim.workload.layouts.validity import check
from commsim.workload.load import load_model
from commsim.workload.model import Model
from commsim.workload.step import StepPrediction, predict_step

MODELS = (
    "gpt2", "bert-large", "llama3-8b", "llama3-405b", "bloom-176b", "mixtral-8x7b",
    "qwen3-30b-a3b", "deepseek-v3",
)  # fmt: skip
CLUSTERS = ("dgx-a100-80", "dgx-h100", "dgx-b200", "mi300x", "dgx-1v", "gb200-nvl72")
FRAMEWORKS = ("megatron", "nemo", "deepspeed", "fsdp", "torchtitan", "ddp", "other")
REACHABLE = 0.75  # of the data sheet: nothing published is above

model = lru_cache(load_model)


@lru_cache
def cluster(name: str, nodes: int) -> Cluster:
    return load_cluster(name, nodes=nodes)


@st.composite
def asked(draw: st.DrawFn) -> tuple[Model, Cluster, Layout]:
    """A layout that a framework would start, most often."""
    pick = lambda *values: draw(st.sampled_from(values))  # noqa: E731
    found, where = model(pick(*MODELS)), cluster(pick(*CLUSTERS), pick(1, 2, 4, 16))
    tp, pp, cp = pick(1, 2, 4, 8), pick(1, 1, 2, 4), pick(1, 1, 2)
    assume(where.n_ranks % (tp * pp * cp) == 0)
    dp, micro = where.n_ranks // (tp * pp * cp), pick(1, 2)
    experts: dict[str, Any] = {}
    if found.active_parameters < found.parameters:
        experts = {"ep": pick(1, 2, 8), "etp": pick(1, None)}
    layout = Layout(
        tp=tp, pp=pp, cp=cp, dp=dp, micro_batch=micro,
        global_batch=dp * micro * 2 * pp * pick(1, 4), seq_len=pick(2048, 8192),
        dtype=pick("bfloat16", "float8", "float16"), framework=pick(*FRAMEWORKS),
        schedule=pick("1f1b", "1f1b", "gpipe", "zero_bubble") if pp > 1 else "1f1b",
        zero_stage=pick(0, 1, 2, 3), recompute=pick("none", "selective", "full"),
        sequence_parallel=pick(True, False), overlap_grad_reduce=pick(True, False),
        overlap_param_gather=pick(True, False), tp_comm_overlap=pick(True, False), **experts,
    )  # fmt: skip
    try:
        check(layout, found, where)
    except LayoutError:
        assume(False)
    return found, where, layout


@settings(max_examples=60, deadline=None)
@given(asked())
def test_a_step_is_the_sum_of_its_parts_and_within_reach(
    question: tuple[Model, Cluster, Layout],
) -> None:
    step = predict_step(*question)
    assert step.duration > 0
    assert 0 < step.mfu <= REACHABLE
    assert min(step.breakdown.values()) >= -1e-9 * step.duration
    assert abs(sum(step.breakdown.values()) / step.duration - 1) < 1e-6
    assert all(v >= 0 for s in step.memory.by_stage for v in s.components.values())


@settings(max_examples=40, deadline=None)
@given(asked())
def test_more_work_takes_longer_and_more_room(question: tuple[Model, Cluster, Layout]) -> None:
    found, where, layout = question
    step = predict_step(*question)

    def instead(**changes: Any) -> StepPrediction:
        return predict_step(found, where, replace(layout, **changes))

    twice = instead(global_batch=2 * layout.global_batch)
    assert step.duration < twice.duration < 2.05 * step.duration
    again = instead(recompute="full")
    assert again.duration >= step.duration * (1 - 1e-9)
    if again.memory.notes == step.memory.notes:  # else gradients are kept in another way
        # of one layer's hidden state, an input is kept beside what is computed anew
        assert again.memory.peak_allocated <= 1.05 * step.memory.peak_allocated
    more = instead(micro_batch=2 * layout.micro_batch, global_batch=2 * layout.global_batch)
    if more.memory.notes == step.memory.notes:
        assert more.memory.peak_allocated >= step.memory.peak_allocated * (1 - 1e-9)
