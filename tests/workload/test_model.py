"""Layers and FLOPs worked by hand."""

from __future__ import annotations

import pickle

import pytest

import commsim
from commsim.errors import UnknownNameError
from commsim.workload.model import Attention, Experts, FeedForward, Layer, Model

PLAIN = Attention(heads=4, kv_heads=2, head_dim=8, value_dim=8)
TINY = Layer(attention=PLAIN, feed=FeedForward(width=48, gated=True))


def shapes(layer: Layer, hidden: int, norm: str = "rms") -> dict[str, tuple[int, ...]]:
    return {t.name: t.shape for t in layer.tensors(hidden, norm)}


def test_a_layer_as_llama_registers_it() -> None:
    assert list(shapes(TINY, 32).items()) == [
        ("attention.q_proj.weight", (32, 32)),
        ("attention.k_proj.weight", (16, 32)),
        ("attention.v_proj.weight", (16, 32)),
        ("attention.o_proj.weight", (32, 32)),
        ("feed.gate_proj.weight", (48, 32)),
        ("feed.up_proj.weight", (48, 32)),
        ("feed.down_proj.weight", (32, 48)),
        ("norm_1.weight", (32,)),
        ("norm_2.weight", (32,)),
    ]
    # 32 (32 + 16 + 16 + 32) + 3 x 48 x 32 + 2 x 32
    assert TINY.parameters(32, "rms") == 3072 + 4608 + 64
    assert TINY.matmul_parameters(32) == 3072 + 4608


def test_a_layer_as_gpt2_registers_it() -> None:
    layer = Layer(
        attention=Attention(
            heads=4, kv_heads=4, head_dim=8, value_dim=8, bias=True, out_bias=True, fused=True
        ),
        feed=FeedForward(width=128, gated=False, bias=True),
        order=("norm", "attention", "norm", "feed"),
    )
    names = list(shapes(layer, 32, "layer"))
    assert names[:4] == [
        "norm_1.weight", "norm_1.bias", "attention.qkv_proj.weight", "attention.qkv_proj.bias",
    ]  # fmt: skip
    assert names[-1] == "feed.down_proj.bias"
    assert layer.parameters(32, "layer") == 12 * 32**2 + 13 * 32  # 12 h^2 + 13 h


def test_how_tensors_are_cut() -> None:
    cuts = {t.name.removeprefix("attention."): t.split for t in TINY.tensors(32, "rms")}
    assert cuts["q_proj.weight"] == cuts["feed.up_proj.weight"] == "column"
    assert cuts["o_proj.weight"] == cuts["feed.down_proj.weight"] == "row"
    assert cuts["norm_1.weight"] == ""
    biased = Layer(
        attention=None, feed=FeedForward(width=8, gated=False, bias=True), order=("feed",)
    )
    assert [t.split for t in biased.tensors(4, "rms")] == ["column", "column", "row", ""]


def test_latent_attention_of_deepseek_v3() -> None:
    # arXiv:2412.19437, section 4.2: 128 heads of 128 + 64, values of 128, ranks 1536 and 512.
    attention = commsim.load_model("deepseek-v3").stacks[0][0].attention
    assert attention is not None
    found = {t.name: t.shape for t in attention.tensors(7168, "rms")}
    assert found == {
        "q_a_proj.weight": (1536, 7168),
        "q_a_layernorm.weight": (1536,),
        "q_b_proj.weight": (128 * 192, 1536),
        "kv_a_proj_with_mqa.weight": (512 + 64, 7168),
        "kv_a_layernorm.weight": (512,),
        "kv_b_proj.weight": (128 * (128 + 128), 512),
        "o_proj.weight": (7168, 128 * 128),
    }


def test_experts() -> None:
    feed = Experts(count=8, per_token=2, width=16, shared_width=32)
    layer = Layer(attention=None, feed=feed, order=("feed",))
    cuts = {t.name: (t.shape, t.split) for t in layer.tensors(10, "rms")}
    assert cuts["feed.router.weight"] == ((8, 10), "")
    assert cuts["feed.experts.up_proj.weight"] == ((8, 16, 10), "expert")
    assert cuts["feed.experts.down_proj.weight"] == ((8, 10, 16), "expert")
    assert cuts["feed.shared_expert.down_proj.weight"] == ((10, 32), "row")
    routed, shared, router = 8 * 3 * 160, 3 * 320, 80
    assert layer.parameters(10, "rms") == routed + shared + router
    assert layer.active_parameters(10, "rms") == routed // 4 + shared + router
    assert layer.matmul_parameters(10) == layer.active_parameters(10, "rms")


def test_flops_of_a_layer() -> None:
    # Matrices: 2 x 100 tokens x 7680. Attention: scores and values, each 2 x 100 x 50 x 4 x 8.
    assert TINY.forward_flops(32, 100, 50) == 2 * 100 * 7680 + 2 * (2 * 100 * 50 * 32)
    half = TINY.forward_flops(32, 100, 50, causal_half=True)
    assert half == 2 * 100 * 7680 + 2 * 100 * 50 * 32


def test_flops_of_gpt3_are_those_of_the_megatron_paper() -> None:
    # arXiv:2104.04473, section 5.1 and appendix: 24 B s l h^2 in the matrices of the layers,
    # 4 B s^2 l h in attention, 2 B s h V in the head; a backward pass takes twice as much (the
    # paper's 96 counts the forward pass again, for recomputation).
    layers, hidden, vocab, seq = 96, 12288, 51200, 2048
    model = commsim.load_model("gpt3-175b")
    expected = 24 * seq * layers * hidden**2 + 4 * seq**2 * layers * hidden
    expected += 2 * seq * hidden * vocab
    assert model.forward_flops(seq, seq) == pytest.approx(expected, rel=1e-12)
    more = seq / (6 * hidden) + vocab / (16 * layers * hidden)
    with_recomputation = 96 * seq * layers * hidden**2 * (1 + more)
    head = 2 * seq * hidden * vocab  # is not computed again
    assert 4 * expected - head == pytest.approx(with_recomputation, rel=1e-12)


def test_flops_of_deepseek_v3() -> None:
    # 37B active, less the embedding (0.93B): 2 x 36.6 GFLOP a token, and its prediction layer.
    model = commsim.load_model("deepseek-v3", num_nextn_predict_layers=0)
    looked_up = model.vocab * model.hidden
    norms = sum(t.numel for t in model.tensors() if len(t.shape) == 1)
    per_token = 2 * (model.active_parameters - looked_up - norms)
    assert model.forward_flops(1, 0) == pytest.approx(per_token, rel=1e-9)
    with_mtp = commsim.load_model("deepseek-v3")
    last = model.stacks[-1][0]
    more = last.forward_flops(7168, 1, 0) + 2 * 2 * 7168**2 + 2 * looked_up
    assert with_mtp.forward_flops(1, 0) == pytest.approx(per_token + more, rel=1e-9)


@pytest.mark.parametrize(
    ("window", "chunked", "half", "expected"),
    [
        (None, False, False, 100),
        (None, False, True, 50),
        (20, False, False, 20),
        (20, False, True, 20 - 2),  # the first 20 queries see 10 on average
        (20, True, True, 10),
        (300, False, True, 50),
    ],
)
def test_keys_that_a_query_sees(
    window: int | None, chunked: bool, half: bool, expected: float
) -> None:
    attention = Attention(
        heads=1, kv_heads=1, head_dim=1, value_dim=1, window=window, chunked=chunked
    )
    assert attention.keys_seen(100, half) == pytest.approx(expected)


def test_an_encoder_masks_nothing() -> None:
    model = commsim.load_model("bert-base")
    assert model.forward_flops(384, 384, True) == model.forward_flops(384, 384)
    assert model.kv_bytes() == 0


def test_bytes_of_the_cache() -> None:
    # Llama 3 8B: 2 x 32 layers x 8 heads x 128 x 2 bytes = 128 KiB a token.
    assert commsim.load_model("llama3-8b").kv_bytes() == 128 * 1024
    assert commsim.load_model("llama3-8b").kv_bytes("float8", tokens=10) == 640 * 1024
    # arXiv:2405.04434, section 2.1.4: (512 + 64) elements a token and layer.
    assert commsim.load_model("deepseek-v3").kv_bytes() == 61 * 576 * 2
    # Mistral 7B v0.1 keeps its window of 4096 tokens: 32 x 2 x 8 x 128 elements each.
    mistral = commsim.load_model("mistral-7b")
    assert mistral.kv_bytes(tokens=32768) == mistral.kv_bytes(tokens=4096) == 4096 * 65536 * 2
    # Gemma 3 27B: 62 layers, of which 10 are global (every sixth), 52 keep 1024 tokens.
    gemma = commsim.load_model("gemma3-27b")
    assert gemma.kv_bytes(tokens=8192) == 2 * 16 * 128 * 2 * (10 * 8192 + 52 * 1024)
    with pytest.raises(UnknownNameError, match="bfloat16"):
        gemma.kv_bytes("bf17")


def test_a_model_is_a_value() -> None:
    model = commsim.load_model("llama3-8b")
    again = commsim.load_model("llama3-8b", num_hidden_layers=32)
    assert model == again
    assert hash(model) == hash(again)
    assert hash(pickle.loads(pickle.dumps(model))) == hash(model)
    assert model != commsim.load_model("llama3-8b", num_hidden_layers=31)
    assert model.tensors() is again.tensors()
    assert len(list(model.layers)) == model.n_layers == 32


def test_a_model_of_ones_own() -> None:
    model = Model(name="tiny", hidden=32, vocab=100, stacks=((TINY, 3),), tied=True)
    assert model.parameters == 3 * 7744 + 3200 + 32
    assert [t.name for t in model.tensors()][:2] == [
        "embed_tokens.weight", "layers.0.attention.q_proj.weight",
    ]  # fmt: skip
    assert model.tensors()[0].split == "vocab"
