"""Searches of small spaces drawn at random, against trying all of them one by one."""

from __future__ import annotations

import random
from dataclasses import asdict, replace
from itertools import product
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import commsim
from commsim.errors import PlanError
from commsim.planning.buckets import best, with_size
from commsim.planning.engine import Engine
from commsim.planning.plans import plan
from commsim.planning.prices import cost, price_of
from commsim.planning.search import search
from commsim.planning.space import ABILITIES, PP_BEFORE_DP, Space, layouts
from commsim.workload.layout import Layout
from commsim.workload.layouts.rules import divisors, may_be_uneven, problems
from commsim.workload.memory import memory
from commsim.workload.step import predict_step
from commsim.workload.trust import shipped


def model_of(layers: int, heads: int, experts: int, hidden: int = 384) -> commsim.Model:
    config: dict[str, Any] = {
        "model_type": "mixtral" if experts else "llama", "hidden_size": hidden,
        "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": heads,
        "intermediate_size": 2 * hidden, "vocab_size": 32000, "max_position_embeddings": 4096,
        "tie_word_embeddings": False,
    }  # fmt: skip
    if experts:
        config |= {"num_local_experts": experts, "num_experts_per_tok": 2}
    return commsim.load_model(config)


@st.composite
def spaces(draw: st.DrawFn) -> Space:
    """A small model on 1 to 8 GPUs, some of whose memory is so small that layouts do not fit."""
    gpus = draw(st.sampled_from([1, 2, 3, 4, 7]))
    nodes = draw(st.sampled_from([1, 2])) if gpus <= 3 else 1
    cluster = commsim.load_cluster(
        "hgx-h100", nodes=nodes, **{"node.gpus": gpus, "node.nics.count": gpus}
    )
    model = model_of(
        draw(st.integers(1, 4)), draw(st.sampled_from([4, 6])), draw(st.sampled_from([0, 0, 4]))
    )
    memory_gib = draw(st.sampled_from([2, 3, 6, 80]))
    part = replace(cluster.gpu, memory=memory_gib << 30)
    only: dict[str, tuple[Any, ...]] = draw(
        st.sampled_from([{}, {"cp": (1,)}, {"tp": (1, 2)}, {"micro_batch": (1, 2)}])
    )
    return Space(
        model=model, cluster=replace(cluster, gpu=part),
        global_batch=draw(st.sampled_from([1, 4, 6, 12])),
        seq_len=draw(st.sampled_from([256, 768])),
        framework=draw(st.sampled_from(sorted(ABILITIES))), only=only,
    )  # fmt: skip


@settings(
    max_examples=16, derandomize=True, deadline=None, database=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
@given(space=spaces())
def test_no_search_loses_what_trying_everything_finds(space: Space) -> None:
    every = list(layouts(space))
    tried = []
    for layout in every:
        took = memory(space.model, space.cluster, layout)
        if took.fits:
            step = predict_step(space.model, space.cluster, layout)
            duration = with_size(step, best(step)).duration
            tried.append((duration, took.worst.needed, layout))
    asked: dict[str, Any] = {
        "global_batch": space.global_batch, "seq_len": space.seq_len,
        "framework": space.framework, "only": space.only, "top": 3,
    }  # fmt: skip
    if not tried:
        with pytest.raises(PlanError, match="no layout"):
            plan(space.model, space.cluster, **asked)
        return
    least = min(tried, key=lambda t: t[:2])
    by_time = plan(space.model, space.cluster, **asked)
    assert (by_time.best.duration, by_time.best.step.memory.worst.needed) == least[:2]
    by_cost = plan(space.model, space.cluster, objective="cost", **asked)
    price = price_of(space.cluster)
    assert price is not None
    tokens = space.global_batch * space.seq_len
    cheapest = min(cost(price, space.cluster.n_ranks, t) / tokens * 1e12 for t, *_ in tried)
    assert by_cost.best.cost_per_trillion_tokens == pytest.approx(cheapest, rel=1e-12)
    by_memory = plan(space.model, space.cluster, objective="memory", **asked)
    smallest = min(tried, key=lambda t: t[1::-1])
    found = by_memory.best
    assert (found.step.memory.worst.needed, found.duration) == smallest[1::-1]
    # Every layout is shown or counted with its reason.
    for plans in (by_time, by_memory):
        out = sum(one.count for one in plans.rejected if one.of == "layouts")
        assert plans.searched == len(every) == len(plans) + out
        too_large = sum(one.count for one in plans.rejected if one.reason.startswith("do not fit"))
        assert too_large == len(every) - len(tried)
    front, needed = [], float("inf")
    for duration, nbytes, _ in sorted(tried, key=lambda t: t[:2]):
        if nbytes < needed:
            front.append(duration)
            needed = nbytes
    assert [one.duration for one in by_time.front] == front


def told(layout: Layout, space: Space) -> bool:
    """Is it one that the framework can be told, by the documented limits of the search?"""
    able, world = space.able, layout.dp * layout.cp
    inner = {"tp": layout.tp, "cp": layout.cp, "pp": layout.pp, "ep": layout.ep}
    if any(size > 1 and name not in able.inner for name, size in inner.items()):
        return False
    if layout.interleave > 1 and not able.interleaves:
        return False
    chunks = layout.interleave
    whole = space.model.n_layers % layout.model_chunks == 0
    if may_be_uneven(layout, space.model) and chunks & (chunks - 1) and not whole:
        return False
    if layout.zero_stage not in able.stages or (world == 1 and layout.zero_stage != able.stages[0]):
        return False
    if layout.cp > 1 and layout.seq_len // 128 < layout.cp:  # a tile of a product
        return False
    apart = layout.pp > 1 and layout.dp > 1 and layout.cp == layout.ep == 1
    return layout.order != PP_BEFORE_DP or (apart and PP_BEFORE_DP in able.orders)


@pytest.mark.parametrize("framework", ["megatron", "torchtitan", "deepspeed"])
def test_what_is_not_in_the_space_breaks_a_rule(framework: str) -> None:
    # From all combinations of numbers 3,000 at random: each is either in the space, or there is a
    # rule that it breaks, or the framework cannot be told it.
    generator = random.Random(11)
    cluster = commsim.load_cluster("hgx-h100", **{"node.gpus": 4, "node.nics.count": 4})
    model = model_of(4, 4, 0)
    space = Space(
        model=model, cluster=cluster, global_batch=12, seq_len=512, framework=framework,
        only={"recompute": ("none",), "tp_comm_overlap": (False,), "overlap_grad_reduce": (True,)},
    )  # fmt: skip
    inside = {replace(one, overlap_param_gather=True, hsdp=None) for one in layouts(space)}
    sizes = list(product(*[divisors(4)] * 4))
    valid = 0
    for _ in range(3000):
        tp, cp, pp, dp = generator.choice(sizes)
        one = Layout(
            tp=tp, cp=cp, pp=pp, dp=dp, micro_batch=generator.choice((1, 2, 3, 4, 5, 6, 12)),
            interleave=generator.choice((1, 1, 2, 3, 4)), zero_stage=generator.choice((0, 1, 2, 3)),
            order=generator.choice((PP_BEFORE_DP, Layout().order)), global_batch=12, seq_len=512,
            framework=framework,
        )  # fmt: skip
        fine = not problems(one, model, cluster) and told(one, space)
        valid += fine
        assert (one in inside) == fine, str(asdict(one))
    assert valid > 10


def test_structures_and_micro_batches_are_counted_too() -> None:
    # 12 sequences, 4 layers, 4 GPUs, Megatron, one chunk or two a stage, worked by hand. Replicas
    # take 1, 2 or 4 of 12: all go. pp = 2 with dp = 2: micro-batches of 1, 2, 3, 6 leave 6, 3, 2, 1
    # for a replica; two chunks want them even: of 2 and 6 (3 and 1) none.
    cluster = commsim.load_cluster("hgx-h100", **{"node.gpus": 4, "node.nics.count": 4})
    space = Space(
        model=model_of(4, 4, 0), cluster=cluster, global_batch=12, seq_len=512,
        only={"tp": (1,), "cp": (1,), "pp": (2,), "interleave": (1, 2, 4)},
    )  # fmt: skip
    found = search(space, shipped(), Engine(where="serial"))
    # interleave 4 would be 8 parts of 4 layers, embedding and head.
    assert found.broken == {"layout.pp": 1, "micro-batches": 2}
