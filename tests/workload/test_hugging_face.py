"""What the keys of a config.json mean."""

from __future__ import annotations

from typing import Any

import pytest

import commsim
from commsim.errors import ModelError
from commsim.workload.configs.families import FAMILIES, SAME_AS
from commsim.workload.configs.hugging_face import read_config
from commsim.workload.model import Experts, FeedForward, Layer

COMMON: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 256,
    "vocab_size": 1000,
    "max_position_embeddings": 128,
    "tie_word_embeddings": False,
}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}


def first(**keys: Any) -> Layer:
    return read_config({**COMMON, **keys}).stacks[0][0]


def names(**keys: Any) -> list[str]:
    return [t.name for t in read_config({**COMMON, **keys}).tensors()]


# As transformers builds each family: is there a gate, and which biases and positions?
GATED = {
    "llama": True, "mistral": True, "qwen2": True, "qwen3": True, "gemma": True, "phi3": True,
    "gpt2": False, "bloom": False, "nemotron": False, "bert": False, "opt": False, "phi": False,
    "gpt_neox": False, "falcon": False, "mpt": False, "starcoder2": False,
}  # fmt: skip
EXPERTS_GATED = ("mixtral", "qwen3_moe", "deepseek_v3", "gpt_oss", "qwen2_moe", "llama4_text")


@pytest.mark.parametrize(("kind", "gated"), GATED.items())
def test_gates_follow_from_the_family(kind: str, gated: bool) -> None:
    feed = first(model_type=kind, hidden_act="gelu").feed
    assert isinstance(feed, FeedForward)
    assert feed.gated is gated


@pytest.mark.parametrize("kind", EXPERTS_GATED)
def test_experts_have_gates(kind: str) -> None:
    model = read_config({**COMMON, **EXPERTS, "model_type": kind, "hidden_act": "gelu"})
    assert any(isinstance(layer.feed, Experts) and layer.feed.gated for layer in model.layers)


@pytest.mark.parametrize("kind", sorted(FAMILIES))
def test_every_family_reads_the_common_keys(kind: str) -> None:
    model = read_config({**COMMON, "model_type": kind})
    assert model.n_layers == 4
    assert sum(t.numel for t in model.tensors()) == model.parameters
    assert set(SAME_AS.values()) <= set(FAMILIES)


@pytest.mark.parametrize(
    ("kind", "positions"),
    [("gpt2", 128), ("opt", 130), ("bert", 128), ("bloom", 0), ("llama", 0), ("gpt_neox", 0)],
)
def test_learned_positions(kind: str, positions: int) -> None:
    assert read_config({**COMMON, "model_type": kind}).positions == positions


@pytest.mark.parametrize(
    ("kind", "biased"),
    [
        ("llama", ()),
        ("qwen2", ("q_proj", "k_proj", "v_proj")),
        ("qwen3", ()),
        ("gpt_oss", ("q_proj", "k_proj", "v_proj", "o_proj")),
        ("gpt2", ("qkv_proj", "o_proj", "up_proj", "down_proj")),
        ("nemotron", ()),
    ],
)
def test_biases_of_linear_layers(kind: str, biased: tuple[str, ...]) -> None:
    layer = first(model_type=kind)
    found = [t.name.split(".")[1] for t in layer.tensors(64, "rms") if t.name.endswith(".bias")]
    assert tuple(found) == biased


def test_keys_overrule_the_family() -> None:
    layer = first(model_type="llama", attention_bias=True, mlp_bias=True, head_dim=16)
    assert layer.attention is not None
    assert layer.attention.bias
    assert layer.attention.out_bias
    assert layer.attention.head_dim == 16  # not 64 / 8
    assert isinstance(layer.feed, FeedForward)
    assert layer.feed.bias


def test_bloom_norms_its_embedding_and_ties_its_head() -> None:
    model = read_config(
        {"model_type": "bloom", "n_embed": 64, "n_layer": 2, "n_head": 8, "vocab_size": 100}
    )
    found = [t.name for t in model.tensors()]
    assert found[:3] == ["embed_tokens.weight", "embedding_norm.weight", "embedding_norm.bias"]
    assert found[-2:] == ["norm.weight", "norm.bias"]
    # V h + 2h, 12 h^2 + 13 h a layer, 2h
    assert model.parameters == 100 * 64 + 2 * 64 + 2 * (12 * 64**2 + 13 * 64) + 2 * 64


def test_older_names_of_keys() -> None:
    new = read_config({**COMMON, "model_type": "gpt2", "num_key_value_heads": 8})
    old = read_config(
        {
            "model_type": "gpt2", "n_embd": 64, "n_layer": 4, "n_head": 8, "n_inner": None,
            "vocab_size": 1000, "n_positions": 128, "tie_word_embeddings": False,
        }
    )  # fmt: skip
    assert new == old


def test_norms_before_after_and_four() -> None:
    assert first(model_type="gemma2").order.count("norm") == 4
    assert first(model_type="phi").order.count("norm") == 1
    assert first(model_type="phi").parallel
    assert first(model_type="bert").order == ("attention", "norm", "feed", "norm")


def test_qk_norms_are_of_one_head() -> None:
    attention = first(model_type="qwen3", head_dim=16).attention
    assert attention is not None
    found = {t.name: t.shape for t in attention.tensors(64, "rms")}
    assert found["q_norm.weight"] == found["k_norm.weight"] == (16,)


def sparse_layers(**keys: Any) -> list[int]:
    model = read_config({**COMMON, **EXPERTS, **keys})
    return [i for i, layer in enumerate(model.layers) if isinstance(layer.feed, Experts)]


def test_which_layers_have_experts() -> None:
    assert sparse_layers(model_type="mixtral") == [0, 1, 2, 3]
    assert sparse_layers(model_type="deepseek_v3", first_k_dense_replace=3) == [3]
    assert sparse_layers(model_type="llama4_text", interleave_moe_layer_step=2) == [1, 3]
    assert sparse_layers(model_type="qwen3_moe", mlp_only_layers=[0]) == [1, 2, 3]
    assert sparse_layers(model_type="qwen3_moe", decoder_sparse_step=2) == [1, 3]


def test_shared_experts() -> None:
    def shared(**keys: Any) -> int:
        model = read_config({**COMMON, **EXPERTS, "moe_intermediate_size": 32, **keys})
        feed = list(model.layers)[-1].feed
        assert isinstance(feed, Experts)
        return feed.shared_width

    assert shared(model_type="mixtral") == 0
    assert shared(model_type="deepseek_v2", n_shared_experts=2) == 64
    assert shared(model_type="qwen2_moe", shared_expert_intermediate_size=80) == 80
    assert "feed.shared_expert_gate.weight" in {
        t.name.removeprefix("layers.0.")
        for t in read_config(
            {**COMMON, **EXPERTS, "model_type": "qwen2_moe", "shared_expert_intermediate_size": 80}
        ).tensors()
    }


def windows(**keys: Any) -> list[int | None]:
    found = []
    for layer in read_config({**COMMON, **keys}).layers:
        assert layer.attention is not None
        found.append(layer.attention.window)
    return found


def test_which_layers_have_a_window() -> None:
    assert windows(model_type="llama") == [None] * 4
    assert windows(model_type="mistral", sliding_window=32) == [32] * 4
    assert windows(model_type="mistral", sliding_window=None) == [None] * 4
    assert windows(model_type="gpt_oss", sliding_window=32) == [32, None, 32, None]
    kinds = ["full_attention", "sliding_attention", "sliding_attention", "full_attention"]
    assert windows(model_type="gpt_oss", sliding_window=32, layer_types=kinds) == [
        None, 32, 32, None,
    ]  # fmt: skip
    off = {"sliding_window": 32, "use_sliding_window": False}
    assert windows(model_type="qwen2", **off) == [None] * 4
    on = {"sliding_window": 32, "use_sliding_window": True, "max_window_layers": 3}
    assert windows(model_type="qwen2", **on) == [None, None, None, 32]
    assert windows(model_type="llama4_text", attention_chunk_size=32) == [32, 32, 32, None]
    assert windows(
        model_type="gemma3_text", sliding_window=32, sliding_window_pattern=2
    ) == [32, None, 32, None]  # fmt: skip


def test_heads_of_bert() -> None:
    # Devlin et al., arXiv:1810.04805: a pooler of the first token, and small heads over it or over
    # every token. h = 64; two labels.
    def total(*architectures: str) -> int:
        keys = {**COMMON, "model_type": "bert", "architectures": list(architectures)}
        return read_config(keys).parameters

    pooler, labels = 64 * 64 + 64, 2 * 64 + 2
    bare = total("BertForTokenClassification") - labels
    assert total("BertModel") == total() == bare + pooler
    assert total("BertForQuestionAnswering") == bare + labels
    assert total("BertForSequenceClassification") == bare + pooler + labels


def test_masked_words_of_bert() -> None:
    tied = {**COMMON, "model_type": "bert", "tie_word_embeddings": True}
    words = read_config({**tied, "architectures": ["BertForMaskedLM"]})
    both = read_config({**tied, "architectures": ["BertForPreTraining"]})
    assert [t.name for t in words.tensors()][-5:] == [
        "head_transform.weight", "head_transform.bias", "head_norm.weight", "head_norm.bias",
        "lm_head.bias",
    ]  # fmt: skip
    # google-bert/bert-large-uncased: 336,226,108 with both heads of pre-training.
    assert both.parameters - words.parameters == (64 * 64 + 64) + (2 * 64 + 2)
    large = commsim.load_model("bert-large", architectures=["BertForPreTraining"])
    assert large.parameters == 336_226_108


def test_a_decoder_that_classifies_has_no_vocabulary_head() -> None:
    found = names(model_type="llama", architectures=["LlamaForSequenceClassification"])
    assert "lm_head.weight" not in found
    assert "lm_head.weight" in names(model_type="llama", architectures=["LlamaForCausalLM"])
    assert "lm_head.weight" in names(model_type="gpt2", architectures=["GPT2LMHeadModel"])


def test_the_language_model_inside_a_multimodal_one() -> None:
    inner = {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240,
             "num_hidden_layers": 34, "sliding_window": 1024}  # fmt: skip
    outer = {"model_type": "gemma3", "text_config": inner, "vision_config": {"hidden_size": 1152}}
    model = read_config(outer)
    assert model.parameters == commsim.load_model("gemma3-4b").parameters
    assert "only the language model" in model.notes[0]
    assert any(note.startswith("vocab_size: 262208, the default") for note in model.notes)


def test_an_unknown_architecture_is_read_by_its_keys() -> None:
    model = read_config({**COMMON, "model_type": "newcomer", "hidden_act": "silu"})
    assert model.parameters == read_config({**COMMON, "model_type": "llama"}).parameters
    assert model.notes == (
        "model_type 'newcomer' is not known: read by its keys, with rotary positions and a gated "
        "feed-forward",
    )
    plain = read_config({**COMMON, "model_type": "newcomer", "hidden_act": "gelu"}).stacks[0][0]
    assert isinstance(plain.feed, FeedForward)
    assert not plain.feed.gated


def test_an_unknown_architecture_says_what_is_missing() -> None:
    with pytest.raises(ModelError) as caught:
        read_config({"model_type": "newcomer", "hidden_size": 64, "num_layer": 2}, "config.json")
    found = caught.value.problems
    assert [problem.split(":")[1].strip() for problem in found] == [
        "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size",
    ]  # fmt: skip
    assert found[1] == (
        "config.json: num_attention_heads: missing, expected a whole number "
        "(other names: n_head, n_heads, num_heads)"
    )


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"num_hidden_layers": 0}, r"num_hidden_layers: expected a whole number >= 1 .*, got 0"),
        ({"num_hidden_layers": 10**6}, r"num_hidden_layers: expected .* <= 10000"),
        ({"hidden_size": "4096"}, r"hidden_size: expected a whole number >= 1, got '4096'"),
        ({"hidden_size": True}, r"hidden_size: expected a whole number"),
        ({"num_key_value_heads": 3}, r"num_key_value_heads: expected a divisor of the 8 heads"),
        ({"hidden_size": 65}, r"head_dim: missing, and hidden_size 65 is no multiple of 8 heads"),
        ({"tie_word_embeddings": "yes"}, r"tie_word_embeddings: expected true or false"),
        (
            {**EXPERTS, "num_experts_per_tok": 9},
            r"num_experts_per_tok: expected at most the 4 experts",
        ),
        ({"num_local_experts": 4}, r"num_experts_per_tok: missing"),
        ({"layer_types": ["full_attention"], "sliding_window": 8}, r"layer_types: expected 4"),
        ({"layer_types": 3}, r"layer_types: expected a list of texts, got 3"),
        ({"mlp_only_layers": "1", **EXPERTS}, r"mlp_only_layers: expected a list of whole"),
        ({"kv_lora_rank": 16}, r"qk_rope_head_dim: missing"),
        ({"lora": 8}, r"lora: expected a table"),
        ({"lora": {"rank": 8, "targets": 3}}, r"lora: targets: expected names"),
        ({"state_size": 16}, r"state_size: expected a decoder or an encoder"),
        ({"layer_types": ["linear_attention"] * 4}, r"layer_types 'linear_attention': expected"),
        ({"is_encoder_decoder": True}, r"is_encoder_decoder: expected"),
    ],
)
def test_a_wrong_key_is_named(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        read_config({**COMMON, "model_type": "llama", **keys}, "config.json")


def test_a_model_without_learned_positions_needs_no_length() -> None:
    keys = {key: value for key, value in COMMON.items() if key != "max_position_embeddings"}
    assert read_config({**keys, "model_type": "llama"}).max_positions == 0
    with pytest.raises(ModelError, match="max_position_embeddings: missing"):
        read_config({**keys, "model_type": "gpt2"})


def test_whole_numbers_may_be_written_with_a_point() -> None:
    assert read_config({**COMMON, "model_type": "llama", "vocab_size": 1000.0}).vocab == 1000
