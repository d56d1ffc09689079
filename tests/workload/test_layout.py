"""What a layout must keep to, worked out by hand from the frameworks' rules."""

from __future__ import annotations

from dataclasses import replace

import pytest

import commsim
from commsim.errors import LayoutError
from commsim.workload.layout import Layout
from commsim.workload.layouts.validity import check, nearest, problems
from commsim.workload.model import Attention, Experts, FeedForward, Layer, Model


def attention(heads: int, kv_heads: int) -> Attention:
    return Attention(heads=heads, kv_heads=kv_heads, head_dim=128, value_dim=128)


def llama(layers: int = 80, heads: int = 64, kv_heads: int = 8) -> Model:
    layer = Layer(attention=attention(heads, kv_heads), feed=FeedForward(width=28672, gated=True))
    return Model(name="llama", hidden=8192, vocab=128256, stacks=((layer, layers),))


def mixture(layers: int = 32, experts: int = 8, mtp: int = 0) -> Model:
    layer = Layer(attention=attention(32, 8), feed=Experts(count=experts, per_token=2, width=14336))
    return Model(name="mixture", hidden=4096, vocab=32000, stacks=((layer, layers),), mtp=mtp)


GOOD = Layout(tp=8, pp=4, dp=2, global_batch=64, micro_batch=1, seq_len=8192)


def test_a_good_layout_passes() -> None:
    check(GOOD, llama(), commsim.load_cluster("dgx-h100", nodes=8))


def test_it_is_public() -> None:
    assert commsim.Layout is Layout
    assert commsim.LayoutError is LayoutError
    assert issubclass(LayoutError, commsim.CommsimError)


@pytest.mark.parametrize(
    ("changes", "where", "what"),
    [
        ({"tp": 6, "dp": 1}, "layout.tp", "64 attention heads"),
        ({"dp": 3}, "layout.global_batch", "3 x 1 = 3, got 64"),
        ({"dp": 3, "global_batch": 63}, "layout: tp x cp", "= 96, expected the cluster's 64"),
        ({"micro_batch": 3}, "layout.global_batch", "the nearest is 66"),
        ({"pp": 7, "dp": 1}, "layout.pp", "80 layers"),
        ({"interleave": 3}, "layout.pp", "4 x 3 = 12 parts"),
        ({"interleave": 4, "global_batch": 36}, "layout.interleave", "= 18"),
        ({"pp": 1, "interleave": 4}, "layout.interleave", "pp=1"),
        ({"ep": 2}, "layout.ep", "has no experts"),
        ({"hsdp": 3}, "layout.hsdp", "the nearest is 2"),
        ({"zero_stage": 4}, "layout.zero_stage", "got 4"),
        ({"zero_stage": 3, "framework": "deepspeed"}, "layout.zero_stage", "DeepSpeed"),
        ({"dtype": "bfloat"}, "layout.dtype", "did you mean 'bfloat16'"),
        ({"schedule": "1fb1"}, "layout.schedule", "did you mean '1f1b'"),
        ({"recompute": "selectiv"}, "layout.recompute", "did you mean 'selective'"),
        ({"framework": "megatorn"}, "layout.framework", "did you mean 'megatron'"),
        ({"seq_len": 8190}, "layout.seq_len", "multiple of 8"),
        ({"cp": 2, "dp": 1, "seq_len": 4098}, "layout.seq_len", "multiple of 16"),
        ({"tp": 0}, "layout.tp", "got 0"),
        ({"micro_batch": 1.5}, "layout.micro_batch", "got 1.5"),
        ({"etp": True}, "layout.etp", "got True"),
        ({"order": "tp-dp"}, "layout.order", "'tp-dp'"),
        ({"placement": (0, 1, 1)}, "layout.placement", "0 to 63"),
        ({"schedule": "dualpipe", "global_batch": 8}, "layout.schedule", "4 micro-batches"),
        ({"pp": 90, "dp": 1}, "layout.pp", "more than the 80 layers"),
    ],
)  # fmt: skip
def test_a_broken_rule_is_named(changes: dict[str, object], where: str, what: str) -> None:
    layout = replace(GOOD, **changes)  # type: ignore[arg-type]
    with pytest.raises(LayoutError) as caught:
        check(layout, llama(), commsim.load_cluster("dgx-h100", nodes=8))
    lines = [line for line in caught.value.problems if line.startswith(where)]
    assert any(what in line for line in lines), caught.value.problems


def test_every_broken_rule_is_listed_at_once() -> None:
    layout = replace(GOOD, tp=6, pp=7, micro_batch=5, ep=4)
    found = problems(layout, llama(), commsim.load_cluster("dgx-h100", nodes=8))
    assert [line.split(":")[0] for line in found] == [
        "layout.global_batch", "layout.seq_len", "layout", "layout.tp", "layout.pp", "layout.ep",
    ]  # fmt: skip


def test_fewer_key_value_heads_than_ranks_are_copied() -> None:
    assert not problems(replace(GOOD, tp=16, dp=1), llama(kv_heads=8))
    assert problems(replace(GOOD, tp=16, dp=1, seq_len=12288), llama(kv_heads=6))


@pytest.mark.parametrize(
    ("layers", "pp", "interleave", "framework", "fits"),
    [
        (126, 8, 8, "megatron", True),  # Llama 3.1 405B: 128 with embedding and head
        (126, 8, 4, "megatron", True),
        (125, 8, 8, "megatron", False),
        (70, 12, 1, "deepspeed", True),  # BLOOM 176B: 72 with embedding and head
        (78, 12, 1, "deepspeed", True),  # 80 parts, balanced by DeepSpeed
        (80, 12, 1, "megatron", False),
        (80, 12, 1, "torchtitan", True),
    ],
)
def test_layers_that_do_not_go_evenly(
    layers: int, pp: int, interleave: int, framework: str, fits: bool
) -> None:
    layout = Layout(
        pp=pp, interleave=interleave, framework=framework, global_batch=pp, sequence_parallel=False
    )
    assert bool(problems(layout, llama(layers=layers))) is not fits


def test_models_with_experts_run_with_layouts_of_their_own() -> None:
    """DeepSeek-V3: 61 layers on 16 stages."""
    layout = Layout(pp=16, dp=4, ep=4, global_batch=64)
    assert not problems(layout, mixture(layers=61, experts=256))


def test_experts_go_into_ranks_and_experts() -> None:
    layout = Layout(tp=2, dp=4, ep=8, etp=1, global_batch=4)
    assert not problems(layout, mixture(experts=8))
    assert "8 experts, got 16" in problems(replace(layout, ep=16), mixture(experts=8))[0]
    [line] = problems(replace(layout, ep=8, etp=2), mixture(experts=8))
    assert "ep x etp = 8 x 2" in line
    assert "nearest ep: 4" in line


def test_sequence_parallelism_without_tensor_parallelism_means_nothing() -> None:
    assert not problems(Layout(dp=8, global_batch=8), llama())


def test_the_nearest_valid_layout() -> None:
    cluster = commsim.load_cluster("dgx-h100", nodes=8)
    found = nearest(replace(GOOD, tp=6), llama(), cluster)
    assert found == GOOD  # 8 is nearer to 6 than 4 is, by ratio; 64 GPUs leave dp=2
    with pytest.raises(LayoutError, match="the nearest valid one has tp=8"):
        check(replace(GOOD, tp=6), llama(), cluster)


@pytest.mark.parametrize(
    "changes",
    [
        {"framework": "megatorn", "dtype": "bf16", "tp": 0, "order": "x"},
        {"dp": 7, "micro_batch": 3, "global_batch": 64},
        {"pp": 5, "interleave": 3, "global_batch": 31},
        {"hsdp": 3, "etp": 0, "zero_stage": 9},
        {"schedule": "dualpipe", "pp": 3},
        {"placement": (1, 2)},
        {"zero_stage": 3, "framework": "deepspeed"},
    ],
)
def test_the_nearest_layout_is_valid(changes: dict[str, object]) -> None:
    layout = replace(GOOD, **changes)  # type: ignore[arg-type]
    cluster = commsim.load_cluster("dgx-h100", nodes=8)
    found = nearest(layout, llama(), cluster)
    assert found is not None
    assert problems(found, llama(), cluster) == ()
    assert problems(layout, llama(), cluster) != ()


def test_a_model_of_parts_is_only_replicated() -> None:
    parts = Model(name="resnet", kind="list")
    assert not problems(Layout(dp=8, global_batch=8), parts)
    assert problems(Layout(tp=2, global_batch=8), parts)
    assert problems(Layout(pp=2, global_batch=8), parts)


@pytest.mark.parametrize(
    ("framework", "interleave", "micro_batches", "starts"),
    [
        ("megatron", 2, 8, True),
        ("megatron", 2, 10, False),  # groups of 4
        ("torchtitan", 2, 10, True),  # 2 rounds of 5
        ("torchtitan", 2, 3, True),  # 1 round
        ("torchtitan", 2, 9, False),  # 2 rounds
        ("torchtitan", 1, 3, False),  # Schedule1F1B wants as many as stages
        ("megatron", 1, 3, True),
    ],
)
def test_micro_batches_of_a_pipeline_as_frameworks_take_them(
    framework: str, interleave: int, micro_batches: int, starts: bool
) -> None:
    """4 stages; ScheduleInterleaved1F1B's own examples (torch 2.13)."""
    layout = Layout(
        pp=4, interleave=interleave, global_batch=micro_batches, framework=framework, zero_stage=0
    )
    assert (not problems(layout)) == starts
