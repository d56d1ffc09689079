"""Serving: laws, figures worked out by hand, and published latencies."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commsim.errors import LayoutError, UnknownNameError
from commsim.topology.load import load_cluster
from commsim.units import KIB, MIB
from commsim.workload.communication import Messages
from commsim.workload.inference import InferencePrediction, predict_inference
from commsim.workload.layer import Attention, Experts, FeedForward, Layer
from commsim.workload.layout import Layout
from commsim.workload.load import load_model
from commsim.workload.model import Model
from commsim.workload.serving.custom_all_reduce import SYNCS, all_reduce, choice
from commsim.workload.serving.token_work import distinct

H100 = load_cluster("dgx-h100", nodes=2)
PCIE = load_cluster("l40sx8")
LLAMA = load_model("llama3-70b")
SMALL = load_model("llama3-8b")
MIXTURE = load_model("mixtral-8x7b")


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([LLAMA, SMALL, MIXTURE]), st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([1, 2]), st.sampled_from([1, 3, 16, 128]), st.sampled_from([100, 5000]),
    st.sampled_from(["bfloat16", "float8"]),
)  # fmt: skip
def test_laws(model: Model, tp: int, pp: int, batch: int, prompt: int, dtype: str) -> None:
    def ask(**changes: int) -> InferencePrediction:
        asked = {"tp": tp, "pp": pp, "batch": batch, "prompt": prompt, "output": 64} | changes
        return predict_inference(model, H100, dtype=dtype, **asked)  # type: ignore[arg-type]

    found = ask()
    for phase in (found.prefill, found.decode):
        parts = phase.to_dict()["breakdown_s"]
        assert all(v >= 0 for v in parts.values())
        assert sum(parts.values()) == pytest.approx(phase.duration)
    gpu = H100.gpu
    # no token faster than the weights that every token meets can be read
    width = 1 if dtype == "float8" else 2
    least = width * (model.active_parameters - model.vocab * model.hidden) / tp
    assert found.time_per_output_token > least / gpu.memory_bandwidth
    # no prompt faster than the data sheet's products
    flops = model.forward_flops(batch * prompt, prompt, causal_half=True)
    head = 2.0 * batch * (prompt - 1) * model.hidden * model.vocab
    peak = gpu.peak_flops(dtype)
    assert peak is not None
    assert found.time_to_first_token > (flops - head) / (tp * pp) / peak
    assert ask(batch=2 * batch).decode.duration >= found.decode.duration
    assert ask(prompt=2 * prompt).time_to_first_token > found.time_to_first_token
    assert ask(context=found.context + 500).decode.duration > found.decode.duration
    assert found.cache == found.memory.by_stage[0].cache or pp > 1


def test_a_token_of_a_small_model_by_hand() -> None:
    """One layer, 16 heads of 128, nothing gated: weights 4 x 2048^2 + 2 x 2048 x 8192, a cache of 2
    x 2048 x 1000 tokens x 4 sequences, 2 bytes each, at the bandwidth that kernels reach."""
    attention = Attention(heads=16, kv_heads=16, head_dim=128, value_dim=128)
    layer = Layer(attention=attention, feed=FeedForward(width=8192, gated=False))
    model = Model(name="one", kind="decoder", hidden=2048, vocab=0, stacks=((layer, 1),),
                  head=False)  # fmt: skip
    found = predict_inference(model, H100, batch=4, prompt=1000, output=2, context=1000)
    weights = 2 * (4 * 2048**2 + 2 * 2048 * 8192)
    cache = 2 * 2 * 2048 * 1000 * 4
    products, attended = found.decode.spent.products, found.decode.spent.attention
    assert attended / products == pytest.approx(cache / weights, rel=0.01)
    assert found.cache == 2 * 2 * 2048 * 1002 * 4


def test_experts_that_some_token_visits() -> None:
    """One token visits k; two visit k + k (1 - k / E); very many visit all."""
    assert distinct(8, 2, 1) == 2
    assert distinct(8, 2, 2) == pytest.approx(2 + 2 * 6 / 8)
    assert distinct(256, 8, 10_000) == pytest.approx(256)
    layer = Layer(attention=None, feed=Experts(count=64, per_token=2, width=1024))
    model = Model(name="sparse", kind="decoder", hidden=1024, vocab=0, stacks=((layer, 8),),
                  head=False)  # fmt: skip
    one, many = (
        predict_inference(model, H100, batch=b, prompt=1, output=1).decode.spent.products
        for b in (1, 512)
    )
    assert many / one == pytest.approx(64 / 2, rel=0.1)  # all experts' weights for two


def test_vllm_s_choice_of_an_all_reduce() -> None:
    """csrc/custom_all_reduce.cuh: two GPUs always one-shot; up to four below 512 KiB, up to eight
    below 256 KiB; above 8 MiB, across machines and without NVLink NCCL."""
    assert choice(H100, (0, 1), 4 * MIB) == "one_shot"
    assert choice(H100, (0, 1, 2, 3), 512 * KIB - 16) == "one_shot"
    assert choice(H100, (0, 1, 2, 3), 512 * KIB) == "two_shot"
    assert choice(H100, tuple(range(8)), 256 * KIB) == "two_shot"
    assert choice(H100, tuple(range(8)), 8 * MIB + 16) == "nccl"
    assert choice(H100, tuple(range(16)), 1024) == "nccl"
    assert choice(H100, (0, 1, 2), 1024) == "nccl"
    assert choice(PCIE, tuple(range(8)), 1024) == "nccl"


def test_one_shot_and_two_shot_by_hand() -> None:
    """8 GPUs at 0.8 x 450 GB/s: a MiB takes 7 MiB or 2 x 7 / 8 MiB of reading; SYNCS + 1 or + 2
    latencies; a kernel's gap."""
    messages = Messages(H100, Layout(tp=8, dp=2))
    gap = 2e-6
    one, two = (all_reduce(messages, MIB, gap, kind).duration for kind in ("one_shot", "two_shot"))
    bandwidth = 0.8 * 450e9
    reading = (7 - 2 * 7 / 8) * MIB / bandwidth
    latency = (two - gap - 2 * 7 / 8 * MIB / bandwidth) / (SYNCS + 2)
    assert one - two == pytest.approx(reading - latency)
    assert 0.4e-6 < latency < 2e-6  # NVLink: 0.6 us in NCCL's tuner
    assert all_reduce(messages, MIB, gap, "nccl").algorithm.split()[0] in ("ring", "tree", "nvls")
    with pytest.raises(UnknownNameError):
        all_reduce(messages, MIB, gap, "three_shot")


def test_kernels_of_its_own_beat_nccl_for_a_few_tokens() -> None:
    own, nccl = (
        predict_inference(LLAMA, H100, tp=8, batch=1, prompt=100, output=10, all_reduce=kind)
        for kind in ("auto", "nccl")
    )
    assert own.decode.communication["tp"] < nccl.decode.communication["tp"]
    sent = next(x for x in own.decode.sent if x.message.operation == "all_reduce")
    # two a layer and the embedding's, of a token's 8192 elements in 2 bytes
    assert (sent.count, sent.message.nbytes) == (2 * 80 + 1, 16384)


def test_stages_take_turns() -> None:
    """A token passes all stages, whatever their number; each has half of the batch at a time
    (and waits for the slowest of twice as many GPUs)."""
    one = predict_inference(SMALL, H100, tp=2, batch=64, prompt=512, output=64)
    two = predict_inference(SMALL, H100, tp=2, pp=2, batch=64, prompt=512, output=64)
    half = predict_inference(SMALL, H100, tp=2, batch=32, prompt=512, output=64)
    hops = two.decode.communication["pp"]
    assert two.decode.duration == pytest.approx(half.decode.duration + hops, rel=0.02)
    assert two.prefill.duration < one.prefill.duration


def test_attention_on_several_replicas_sends_tokens_to_experts() -> None:
    together = predict_inference(MIXTURE, H100, tp=8, ep=8, batch=64, prompt=128, output=16)
    apart = predict_inference(MIXTURE, H100, dp=8, ep=8, batch=64, prompt=128, output=16)
    assert "ep" not in together.decode.communication
    sent = next(x for x in apart.decode.sent if x.kind == "ep")
    # 8 sequences a replica, 2 experts each, 4096 elements of 2 bytes; there and back, 32 layers
    assert (sent.message.nbytes, sent.count) == (8 * 2 * 4096 * 2, 64)
    assert "tp" not in apart.decode.communication


@pytest.mark.parametrize(
    ("prompt", "output", "first", "token"),
    [(5000, 500, 0.40677, 0.01858), (500, 2000, 0.04777, 0.01891)],
)
def test_published_latencies(prompt: int, output: int, first: float, token: float) -> None:
    """Llama 3.3 70B in 8 bit on two H100, one request at a time: NVIDIA NIM 1.8.0, "LLM
    benchmarking", performance tables, 2025. Nothing was fitted to them."""
    found = predict_inference(
        LLAMA, load_cluster("dgx-h100"), tp=2, prompt=prompt, output=output, dtype="float8"
    )
    assert found.time_to_first_token == pytest.approx(first, rel=0.2)
    assert found.time_per_output_token == pytest.approx(token, rel=0.1)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"tp": 3}, "tp"),
        ({"tp": 8, "pp": 4}, "expected at most the cluster's 16 GPUs"),
        ({"batch": 0}, "batch"),
        ({"batch": 3, "dp": 2}, "multiple of dp=2"),
        ({"ep": 2}, "no experts"),
        ({"prompt": 1.5}, "prompt"),
    ],
)
def test_what_no_engine_starts_is_refused(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(LayoutError, match=told):
        predict_inference(SMALL, H100, **changes)


def test_unknown_words_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="int3"):
        predict_inference(SMALL, H100, dtype="int3")
    with pytest.raises(UnknownNameError, match="int3"):
        predict_inference(SMALL, H100, cache_dtype="int3")
    with pytest.raises(LayoutError, match="decoder"):
        predict_inference(load_model("bert-large"), H100)


def test_plain_figures() -> None:
    found = predict_inference(SMALL, H100, tp=2, batch=8, prompt=100, output=10).to_dict()
    assert found["request_s"] == pytest.approx(
        found["time_to_first_token_s"] + 9 * found["time_per_output_token_s"]
    )
    assert found["tokens_per_s"] == pytest.approx(8 / found["time_per_output_token_s"])
    assert not any(isinstance(v, float) and math.isnan(v) for v in found.values())
