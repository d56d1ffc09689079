"""Memory of a step: states by hand and by the ZeRO paper, laws, who is worst."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import commsim
from commsim.workload.footprint.keeping import keeping
from commsim.workload.layer import Attention, Experts, FeedForward, Layer, Tensor
from commsim.workload.layout import Layout
from commsim.workload.lora import Lora
from commsim.workload.memory import CHANNEL, CONTEXT, USABLE, memory
from commsim.workload.model import Model, Part

CLUSTER = commsim.load_cluster("dgx-h100", nodes=1)


def gpt(layers: int = 8, hidden: int = 1024, vocab: int = 32000, tied: bool = True) -> Model:
    layer = Layer(
        attention=Attention(heads=16, kv_heads=16, head_dim=64, value_dim=64),
        feed=FeedForward(width=4 * hidden, gated=False),
    )
    return Model(name="gpt", hidden=hidden, vocab=vocab, stacks=((layer, layers),), tied=tied)


def flat(parameters: int) -> Model:
    """A model that is nothing but parameters."""
    part = Part(name="all", tensors=(Tensor(name="w", shape=(parameters,)),))
    return Model(name="flat", kind="list", parts=(part,))


def states(layout: Layout, model: Model) -> float:
    worst = memory(model, CLUSTER, layout).worst
    return worst.parameters + worst.gradients + worst.optimizer


@pytest.mark.parametrize(("zero_stage", "gigabytes"), [(0, 120), (1, 31.4), (2, 16.6), (3, 1.9)])
def test_figure_1_of_the_zero_paper(zero_stage: int, gigabytes: float) -> None:
    """Rajbhandari et al., figure 1: 7.5e9 parameters, 64 ranks, 2 + 2 + 12 bytes."""
    layout = Layout(
        dp=64, global_batch=64, zero_stage=zero_stage, framework="deepspeed", dtype="float16"
    )
    kept = replace(keeping(layout), step=0, flat=0, besides=0, gathered=0)
    worst = memory(flat(7_500_000_000), CLUSTER, layout, kept).worst
    found = worst.parameters + worst.gradients + worst.optimizer
    assert found / 1e9 == pytest.approx(gigabytes, rel=0.02)


@pytest.mark.parametrize(
    ("framework", "bytes_each"),
    [
        ("megatron", 2 + 4 + 12 / 8),  # the distributed optimizer
        ("nemo", 2 + 2 + 12 / 8),
        ("ddp", 4 + 8 + 8 / 8),  # zero_stage 1 shards Adam's moments; buckets beside gradients
        ("deepspeed", 2 + 6 + 12 / 8),  # BF16_Optimizer
    ],
)
def test_bytes_of_a_parameter(framework: str, bytes_each: float) -> None:
    layout = Layout(dp=8, global_batch=8, framework=framework)
    assert states(layout, flat(1_000_000_000)) == pytest.approx(bytes_each * 1e9)


def test_fully_sharded() -> None:
    """torchtitan: 16 bytes of each parameter over 8 ranks at the step, and nothing else."""
    layout = Layout(dp=8, global_batch=8, framework="torchtitan", zero_stage=3)
    kept = replace(keeping(layout), gathered=0)
    worst = memory(flat(10**9), CLUSTER, layout, kept).worst
    assert worst.moment in ("backward", "step")
    assert worst.allocated == pytest.approx(16e9 / 8)


def test_shard_groups_hold_more() -> None:
    layout = Layout(dp=8, global_batch=8, framework="torchtitan", zero_stage=3)
    whole = memory(flat(10**9), CLUSTER, layout).worst
    pairs = memory(flat(10**9), CLUSTER, replace(layout, hsdp=2)).worst
    assert pairs.parameters == 4 * whole.parameters


def test_a_small_gpt_by_hand() -> None:
    """One GPU, Megatron, bf16: 8 x 12 h^2 + norms + embedding, s = 512, b = 2."""
    h, v, tokens = 1024, 32000, 1024
    model = gpt()
    layout = Layout(micro_batch=2, global_batch=2, seq_len=512)
    found = memory(model, CLUSTER, layout)
    count = 8 * (12 * h * h + 2 * h) + v * h + h
    assert model.parameters == count
    worst = found.worst
    assert worst.parameters == 2 * count
    assert worst.gradients == 4 * count
    assert worst.optimizer == 12 * count
    assert worst.logits == (2 + 4 + 2) * tokens * v  # 16 bit, exponentials, gradient
    assert worst.activations == pytest.approx(8 * tokens * (32 * h + 4 * 16) + 4 * tokens * h)
    assert worst.nccl == 0
    assert worst.allocated == pytest.approx(
        18 * count + 8 * tokens * v + 8 * tokens * (32 * h + 64) + 4 * tokens * h
    )
    assert found.peak == found.peak_allocated == worst.allocated
    assert found.peak_reserved == pytest.approx(1.05 * worst.allocated)
    assert found.peak_device == pytest.approx(found.peak_reserved + CONTEXT)
    assert sum(worst.components.values()) == pytest.approx(found.peak_device)


def test_tensor_parallelism_cuts_matrices_and_logits() -> None:
    h, v = 1024, 32000
    layout = Layout(tp=8, global_batch=1, seq_len=512)
    worst = memory(gpt(), CLUSTER, layout).worst
    assert worst.parameters == 2 * (8 * (12 * h * h / 8 + 2 * h) + v * h / 8 + h)
    assert worst.logits == 8 * 512 * v / 8
    assert worst.nccl == 2 * 32 * CHANNEL  # the world's and the tensor-parallel communicator


def test_more_tensor_parallel_ranks_than_key_value_heads() -> None:
    attention = Attention(heads=16, kv_heads=2, head_dim=64, value_dim=64)
    layer = Layer(attention=attention, feed=None, order=("attention",))
    model = Model(
        name="m", hidden=1024, vocab=0, head=False, stacks=((layer, 1),), final_norm=False
    )
    found = memory(model, CLUSTER, Layout(tp=8)).worst.parameters
    assert found == 2 * (2 * 1024 * 1024 / 8 + 2 * 1024 * 128 / 2)


def test_the_stage_with_most_is_the_worst() -> None:
    """1F1B: the first stage keeps 4 micro-batches; its rank is 0, the others' follow by dp x tp."""
    layout = Layout(pp=4, dp=2, global_batch=32, seq_len=2048)
    found = memory(gpt(vocab=512), CLUSTER, layout)
    assert found.worst.stage == 0
    assert [s.rank for s in found.by_stage] == [0, 2, 4, 6]
    flights = [s.activations for s in found.by_stage[:3]]
    assert flights[0] - flights[1] == pytest.approx(flights[1] - flights[2])
    assert found.by_stage[3].logits > 0
    assert found.by_stage[0].logits == 0


def test_a_large_vocabulary_makes_the_last_stage_worst() -> None:
    layout = Layout(pp=4, dp=2, global_batch=8, micro_batch=2, seq_len=2048, recompute="full")
    found = memory(gpt(vocab=256000, tied=False), CLUSTER, layout)
    assert found.worst.stage == 3
    assert found.worst.rank == 6


def test_tied_embeddings_are_copied_to_the_last_stage() -> None:
    layout = Layout(pp=2, global_batch=2)
    tied, apart = (memory(gpt(tied=t), CLUSTER, layout).by_stage for t in (True, False))
    assert [s.parameters for s in tied] == [s.parameters for s in apart]
    one = (memory(gpt(tied=t), CLUSTER, Layout()).worst.parameters for t in (True, False))
    assert next(one) + 2 * 32000 * 1024 == next(one)


def test_experts_are_spread() -> None:
    layer = Layer(
        attention=Attention(heads=16, kv_heads=16, head_dim=64, value_dim=64),
        feed=Experts(count=8, per_token=2, width=4096),
    )
    model = Model(name="moe", hidden=1024, vocab=1024, stacks=((layer, 4),))
    layout = Layout(dp=8, global_batch=8)
    here, spread = (memory(model, CLUSTER, replace(layout, ep=ep, etp=1)).worst for ep in (1, 8))
    experts = 4 * 8 * 3 * 4096 * 1024
    assert here.parameters - spread.parameters == pytest.approx(2 * experts * 7 / 8)
    # one rank has each expert: its optimizer states are not shared with others
    dense = model.parameters - experts
    assert spread.optimizer == pytest.approx(12 * (dense / 8 + experts / 8))
    assert here.optimizer == pytest.approx(12 * model.parameters / 8)


def test_dualpipe_keeps_twice_the_parameters() -> None:
    one = memory(gpt(), CLUSTER, Layout(pp=4, global_batch=8)).by_stage[1]
    two = memory(gpt(), CLUSTER, Layout(pp=4, global_batch=8, schedule="dualpipe")).by_stage[1]
    assert two.parameters == 2 * one.parameters


def test_lora_trains_little() -> None:
    """r = 8 on q and v of 8 layers: 8 x 2 x 2 x 8 h trained; all the rest has neither gradient nor
    optimizer states."""
    model = replace(gpt(), lora=Lora(rank=8, targets=("q_proj", "v_proj")))
    worst = memory(model, CLUSTER, Layout()).worst
    trained = 8 * 2 * 2 * 8 * 1024
    assert worst.parameters == 2 * (gpt().parameters + trained)
    assert worst.gradients == 4 * trained
    assert worst.optimizer == 12 * trained


def test_unsharded_gradients_only_where_they_fit() -> None:
    layout = Layout(dp=8, global_batch=16, framework="fsdp", zero_stage=3, recompute="full")
    small = memory(flat(10**9), CLUSTER, layout)
    assert small.worst.gradients == 4e9
    assert not small.notes
    large = memory(flat(2 * 10**10), CLUSTER, layout)
    assert large.worst.gradients == pytest.approx(2 * 2e10 / 8)
    assert "reduced after each micro-batch" in large.notes[0]


def test_fits() -> None:
    """18 bytes a parameter on one 80 GiB GPU."""
    limit = (80 * 2**30 * USABLE - CONTEXT) / (18 * 1.05)
    for share, fits in ((0.99, True), (1.01, False)):
        found = memory(flat(int(limit * share)), CLUSTER, Layout())
        assert found.fits is fits
        assert found.headroom == pytest.approx((1 - share) * limit * 18 * 1.05, rel=1e-3)


def test_what_the_allocator_could_give_back_does_not_count_against_the_gpu() -> None:
    layout = Layout(tp=8, global_batch=1, framework="deepspeed", dtype="float16", seq_len=2048)
    worst = memory(gpt(), CLUSTER, layout).worst
    assert worst.cached > 0
    assert worst.device == worst.needed + worst.cached


def test_convolutions_keep_their_activations() -> None:
    part = Part(name="conv", tensors=(Tensor(name="w", shape=(100,)),), activations=5_000_000)
    model = Model(name="conv", kind="list", parts=(part,))
    layout = Layout(micro_batch=64, global_batch=64, framework="ddp", dtype="float32")
    assert memory(model, CLUSTER, layout).worst.activations == 4 * 5_000_000 * 64


def test_to_dict_is_plain() -> None:
    found = memory(gpt(), CLUSTER, Layout(pp=2, global_batch=2)).to_dict()
    assert json.loads(json.dumps(found)) == found
    assert found["worst_rank"] == 1  # it has the logits


layouts = st.builds(
    Layout,
    tp=st.sampled_from([1, 2, 4]),
    pp=st.sampled_from([1, 2, 4]),
    dp=st.sampled_from([1, 2, 8]),
    cp=st.sampled_from([1, 2]),
    micro_batch=st.sampled_from([1, 2]),
    global_batch=st.just(128),
    dtype=st.sampled_from(["bfloat16", "float16", "float32", "float8"]),
    zero_stage=st.integers(0, 3),
    recompute=st.sampled_from(["none", "selective", "full"]),
    schedule=st.sampled_from(["1f1b", "gpipe", "zero_bubble", "dualpipe"]),
    sequence_parallel=st.booleans(),
    framework=st.sampled_from(
        ["megatron", "nemo", "deepspeed", "fsdp", "torchtitan", "ddp", "other"]
    ),
)


@settings(deadline=None)
@given(layouts)
def test_laws(layout: Layout) -> None:
    """Nothing is negative; more sequences, less recomputation, fewer shards never take less."""
    model = gpt()
    found = memory(model, CLUSTER, layout)
    assert len(found.by_stage) == layout.pp
    for stage in found.by_stage:
        assert all(nbytes >= 0 for nbytes in stage.components.values())
        assert stage.allocated <= stage.reserved <= stage.device
        assert stage.needed <= stage.device
    assert found.peak > 0
    double = replace(layout, micro_batch=2 * layout.micro_batch, global_batch=256)
    assert memory(model, CLUSTER, double).peak_allocated >= found.peak_allocated
    kept = memory(model, CLUSTER, replace(layout, recompute="none"))
    full = memory(model, CLUSTER, replace(layout, recompute="full"))
    assert sum(s.activations for s in full.by_stage) <= 1.5 * sum(
        s.activations for s in kept.by_stage
    )
    for zero in range(layout.zero_stage):
        less = memory(model, CLUSTER, replace(layout, zero_stage=zero)).worst
        assert less.optimizer >= found.worst.optimizer * 0.999 or less.moment != found.worst.moment


@settings(deadline=None, max_examples=30)
@given(layouts, st.integers(2, 16))
def test_longer_sequences_never_take_less(layout: Layout, times: int) -> None:
    longer = replace(layout, seq_len=times * layout.seq_len)
    one, two = (memory(gpt(), CLUSTER, each).peak_allocated for each in (layout, longer))
    assert two >= one
