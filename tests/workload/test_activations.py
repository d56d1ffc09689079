"""Activations against the equations of Korthikanti et al. 2022, and in flight against the played
schedules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from commsim.workload import pipeline
from commsim.workload.footprint.activations import IMBALANCE, in_flight, of_layer
from commsim.workload.layer import Attention, Experts, FeedForward, Layer
from commsim.workload.layout import Layout
from commsim.workload.pipeline import order
from commsim.workload.works import Table

# A GPT-3 layer, trained in float16: s = 2048, b = 4, h = 12288, a = 96.
S, B, H, A = 2048, 4, 12288, 96
SBH = S * B * H
GPT = Layer(
    attention=Attention(heads=A, kv_heads=A, head_dim=H // A, value_dim=H // A),
    feed=FeedForward(width=4 * H, gated=False),
)
OLD = Layout(
    dtype="float16", micro_batch=B, global_batch=B, seq_len=S, sequence_parallel=False, zero_stage=0
)


def test_equation_1() -> None:
    """s b h (34 + 5 a s / h)."""
    assert of_layer(GPT, H, OLD).kept == pytest.approx(SBH * (34 + 5 * A * S / H))


def test_equation_2_tensor_parallelism() -> None:
    """s b h (10 + 24 / t + 5 a s / (h t))."""
    found = of_layer(GPT, H, replace(OLD, tp=8)).kept
    assert found == pytest.approx(SBH * (10 + 24 / 8 + 5 * A * S / (8 * H)))


def test_equation_4_sequence_parallelism() -> None:
    """s b h / t (34 + 5 a s / h)."""
    found = of_layer(GPT, H, replace(OLD, tp=8, sequence_parallel=True)).kept
    assert found == pytest.approx(SBH / 8 * (34 + 5 * A * S / H))


def test_equation_6_selective_recomputation() -> None:
    """34 s b h / t; one layer at work still has its scores."""
    layout = replace(OLD, tp=8, sequence_parallel=True, recompute="selective")
    found = of_layer(GPT, H, layout)
    assert found.kept == pytest.approx(34 * SBH / 8)
    assert found.whole == pytest.approx(SBH / 8 * (34 + 5 * A * S / H))


def test_full_recomputation_keeps_the_input() -> None:
    assert of_layer(GPT, H, replace(OLD, recompute="full")).kept == 2 * SBH


def test_fused_attention_keeps_no_scores_and_no_masks() -> None:
    """34 - 2 bytes of masks, and four of a row's sum for each head."""
    found = of_layer(GPT, H, replace(OLD, dtype="bfloat16")).kept
    assert found == pytest.approx(32 * SBH + 4 * A * S * B)


def test_context_parallelism_shares_the_tokens() -> None:
    one, two = (of_layer(GPT, H, replace(OLD, dtype="bfloat16", cp=cp)).kept for cp in (1, 2))
    assert two == one / 2


def test_gated_and_grouped() -> None:
    """Llama 3 8B, in h = 4096: norms 8, queries 2, keys and values 1, output 2, widths 3 x 7."""
    h = 4096
    layer = Layer(
        attention=Attention(heads=32, kv_heads=8, head_dim=128, value_dim=128),
        feed=FeedForward(width=14336, gated=True),
    )
    layout = Layout(micro_batch=1, seq_len=8192)
    assert of_layer(layer, h, layout).kept == pytest.approx(8192 * (34 * h + 4 * 32))


def test_torchtitan_keeps_every_second_product() -> None:
    """Input, attention's output, q, v, gate and down: 2 (1 + 1 + 1 + 1/4 + 3.5 + 1) h bytes."""
    h = 4096
    layer = Layer(
        attention=Attention(heads=32, kv_heads=8, head_dim=128, value_dim=128),
        feed=FeedForward(width=14336, gated=True),
    )
    layout = Layout(seq_len=8192, framework="torchtitan", recompute="selective", zero_stage=3)
    assert of_layer(layer, h, layout).kept == pytest.approx(8192 * (15.5 * h + 4 * 32))


def test_experts_keep_copies_of_their_tokens() -> None:
    """Mixtral's experts, 2 a token: 2 x (in + out) 2 h, 2 x 3 x 2 f, and 8 router scores."""
    h, f = 4096, 14336
    dense = Layer(
        attention=Attention(heads=32, kv_heads=8, head_dim=128, value_dim=128),
        feed=FeedForward(width=f, gated=True),
    )
    sparse = replace(dense, feed=Experts(count=8, per_token=2, width=f))
    layout = Layout(seq_len=4096)
    more = of_layer(sparse, h, layout).kept - of_layer(dense, h, layout).kept
    assert more == pytest.approx(4096 * (8 * h + 6 * f + 4 * 8))
    spread = of_layer(sparse, h, replace(layout, dp=8, ep=8, etp=1)).kept
    assert spread - of_layer(sparse, h, layout).kept == pytest.approx(
        (IMBALANCE - 1) * 4096 * (8 * h + 12 * f)
    )


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "zero_bubble"])
@pytest.mark.parametrize(
    ("pp", "v", "m"),
    [(2, 1, 1), (4, 1, 8), (4, 1, 2), (8, 1, 16), (4, 2, 8), (4, 3, 4), (8, 4, 32), (2, 5, 2)],
)
def test_in_flight_as_played(schedule: str, pp: int, v: int, m: int) -> None:
    layout = Layout(pp=pp, interleave=v, global_batch=m, schedule=schedule)
    played = pipeline.in_flight(schedule, pp, m, v)
    assert tuple(in_flight(layout, i) for i in range(pp)) == played


@pytest.mark.parametrize(("pp", "m"), [(4, 8), (4, 16), (8, 16)])
def test_in_flight_of_dualpipe_as_played(pp: int, m: int) -> None:
    layout = Layout(pp=pp, global_batch=m, schedule="dualpipe")
    played = pipeline.in_flight("dualpipe", pp, m, 2)
    assert tuple(in_flight(layout, i) for i in range(pp)) == played


def test_interleaving_costs_memory() -> None:
    """Korthikanti et al., section 4.2.3: the first stage keeps L (1 + (p - 1) / (p v)) layers."""
    p, v = 8, 4
    layout = Layout(pp=p, interleave=v, global_batch=64)
    assert in_flight(layout, 0) / v == pytest.approx(p * (1 + (p - 1) / (p * v)))


def test_in_flight_of_the_papers() -> None:
    assert in_flight(Layout(pp=8, global_batch=20, schedule="dualpipe"), 0) == 9  # p + 1
    assert in_flight(Layout(pp=8, global_batch=64, schedule="zero_bubble"), 7) == 8  # p
    assert in_flight(Layout(pp=1, global_batch=64), 0) == 1


def test_as_torch_saves_it() -> None:
    """What autograd saves of a GPT layer with fused attention, beside the norms' means and
    deviations (two numbers a token and norm)."""
    torch = pytest.importorskip("torch")
    heads, hidden, tokens = 4, 256, 2 * 128
    linear = {
        name: torch.nn.Linear(inputs, outputs, bias=False).bfloat16()
        for name, inputs, outputs in (
            ("q", hidden, hidden), ("k", hidden, hidden), ("v", hidden, hidden),
            ("o", hidden, hidden), ("up", hidden, 4 * hidden), ("down", 4 * hidden, hidden),
        )
    }  # fmt: skip
    norms = [torch.nn.LayerNorm(hidden).bfloat16() for _ in range(2)]
    own = {p.data_ptr() for module in (*linear.values(), *norms) for p in module.parameters()}
    saved: dict[int, int] = {}

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    x = torch.randn(2, 128, hidden, dtype=torch.bfloat16, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y = norms[0](x)
        q, k, v = (linear[n](y).view(2, 128, heads, -1).transpose(1, 2) for n in "qkv")
        z = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        z = x + linear["o"](z.transpose(1, 2).reshape(2, 128, hidden))
        z = z + linear["down"](torch.nn.functional.gelu(linear["up"](norms[1](z))))
    layer = Layer(
        attention=Attention(heads=heads, kv_heads=heads, head_dim=64, value_dim=64),
        feed=FeedForward(width=4 * hidden, gated=False),
    )
    found = of_layer(layer, hidden, Layout(micro_batch=2, seq_len=128)).kept
    assert sum(saved.values()) == found + 2 * 2 * 2 * tokens


def test_any_other_schedule_is_played(monkeypatch: pytest.MonkeyPatch) -> None:
    """A schedule of one's own, in which all forwards come first."""
    own = Table(order=order("gpipe", 4, 8))
    monkeypatch.setattr(pipeline, "pipeline", lambda name: own)
    assert in_flight(Layout(pp=4, global_batch=8, schedule="own"), 2) == 8
