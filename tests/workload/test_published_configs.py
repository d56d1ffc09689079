"""Architectures that are no preset: their config.json's keys against what publishers print."""

from __future__ import annotations

from typing import Any

import pytest

from commsim.errors import ModelError
from commsim.workload.configs.hugging_face import read_config


def keys(
    kind: str, hidden: int, layers: int, heads: int, kv: int, width: int, vocab: int, **more: Any
) -> dict[str, Any]:
    return {
        "model_type": kind, "hidden_size": hidden, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": kv, "intermediate_size": width,
        "vocab_size": vocab, "tie_word_embeddings": False, **more,
    }  # fmt: skip


TIED = {"tie_word_embeddings": True}
# The model size of the safetensors files on Hugging Face.
EXACT = {
    "HuggingFaceTB/SmolLM3-3B": (
        keys("smollm3", 2048, 36, 16, 4, 11008, 128256, **TIED), 3_075_098_624),
    "CohereLabs/c4ai-command-r-v01": (
        keys("cohere", 8192, 40, 64, 64, 22528, 256000, use_qk_norm=False, **TIED),
        34_980_831_232),
    "CohereLabs/c4ai-command-a-03-2025": (
        keys("cohere2", 12288, 64, 96, 8, 36864, 256000, head_dim=128, sliding_window=4096,
             sliding_window_pattern=4, **TIED), 111_057_580_032),
    "ibm-granite/granite-3.1-8b-base": (
        keys("granite", 4096, 40, 32, 8, 12800, 49155, **TIED), 8_170_848_256),
    "internlm/internlm2-7b": (
        keys("internlm2", 4096, 32, 32, 8, 14336, 92544, bias=False, hidden_act="silu"),
        7_737_708_544),
    "01-ai/Yi-6B": (keys("llama", 4096, 32, 32, 4, 11008, 64000), 6_061_035_520),
    "microsoft/Phi-4-mini-instruct": (
        keys("phi3", 3072, 32, 24, 8, 8192, 200064, **TIED), 3_836_021_760),
    "bigcode/starcoder2-3b": (
        keys("starcoder2", 3072, 30, 24, 2, 12288, 49152, use_bias=True, **TIED), 3_030_371_328),
    "databricks/dbrx-base": (
        {"model_type": "dbrx", "d_model": 6144, "n_heads": 48, "n_layers": 40,
         "vocab_size": 100352, "attn_config": {"kv_n_heads": 8, "clip_qkv": 8},
         "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4},
         "tie_word_embeddings": False}, 131_596_523_520),
    "baichuan-inc/Baichuan2-7B-Base": (
        keys("baichuan", 4096, 32, 32, 32, 11008, 125696, hidden_act="silu"), 7_505_973_248),
    "Qwen/Qwen-7B": (  # intermediate_size is that of gate and other matrix together
        keys("qwen", 4096, 32, 32, 32, 22016, 151936, kv_channels=128, no_bias=True),
        7_721_324_544),
    "mistralai/Mistral-Small-24B-Base-2501": (
        keys("mistral", 5120, 40, 32, 8, 32768, 131072, head_dim=128), 23_572_403_200),
}  # fmt: skip

# 10^9 parameters, as model cards print them.
PRINTED = {
    "allenai/OLMo-2-1124-13B": (
        keys("olmo2", 5120, 40, 40, 40, 13824, 100352, rms_norm_eps=1e-6), 13.7),
    "allenai/OLMoE-1B-7B": (
        keys("olmoe", 2048, 16, 16, 16, 1024, 50304, num_experts=64, num_experts_per_tok=8), 6.92),
    "MiniMaxAI/MiniMax-M2": (
        keys("minimax_m2", 3072, 62, 48, 8, 1536, 200064, num_local_experts=256,
             num_experts_per_tok=8, head_dim=128, attn_type_list=[1] * 62), 229),
    "baidu/ERNIE-4.5-300B-A47B": (
        keys("ernie4_5_moe", 8192, 54, 64, 8, 28672, 103424, moe_num_experts=64,
             moe_intermediate_size=3584, moe_k=8, moe_layer_start_index=3), 300),
    "baidu/ERNIE-4.5-21B-A3B": (
        keys("ernie4_5_moe", 2560, 28, 20, 4, 12288, 103424, moe_num_experts=64,
             moe_intermediate_size=1536, moe_k=6, moe_layer_start_index=1,
             moe_num_shared_experts=2, **TIED), 21.8),
    "tencent/Hunyuan-A13B": (  # a number for each layer, all alike
        keys("hunyuan_v1_moe", 4096, 32, 32, 8, 3072, 128167, num_experts=64, moe_topk=[8] * 32,
             moe_intermediate_size=[3072] * 32, num_shared_expert=[1] * 32, head_dim=128, **TIED),
        80),
    "deepseek-ai/DeepSeek-V3.2-Exp": (  # 671B of DeepSeek-V3.1 and an indexer in each layer
        keys("deepseek_v32", 7168, 61, 128, 128, 18432, 129280, q_lora_rank=1536,
             kv_lora_rank=512, qk_rope_head_dim=64, qk_nope_head_dim=128, v_head_dim=128,
             n_routed_experts=256, num_experts_per_tok=8, moe_intermediate_size=2048,
             n_shared_experts=1, first_k_dense_replace=3, index_topk=2048), 671),
}  # fmt: skip

# What is no stack of attention and feed-forward layers, with the keys that say so.
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "Qwen3-Next": ({"linear_num_value_heads": 32}, "linear_num_value_heads"),
    "MiniMax-M1": ({"attn_type_list": [0, 0, 0, 1]}, "attn_type_list"),
    "Nemotron-H": (
        {"mamba_num_heads": 256, "hybrid_override_pattern": "M-M-M*-"},
        "mamba_num_heads, hybrid_override_pattern"),
    "Llama-Nemotron-Super": ({"block_configs": [{}]}, "block_configs"),
    "Mamba-2": ({"state_size": 128}, "state_size"),
    "RWKV-7": ({"model_type": "rwkv7"}, "model_type"),
    "RecurrentGemma": ({"lru_width": 4096}, "lru_width"),
    "Snowflake Arctic": ({"parallel_attn_mlp_res": True}, "parallel_attn_mlp_res"),
    "Kimi Linear": ({"linear_attn_config": {"kda_layers": [1]}}, "linear_attn_config"),
    "LongCat-Flash": ({"zero_expert_num": 256}, "zero_expert_num"),
    "Gemma 3n": ({"altup_num_inputs": 4}, "altup_num_inputs"),
}  # fmt: skip


@pytest.mark.parametrize("name", EXACT)
def test_counts_are_exact(name: str) -> None:
    config, printed = EXACT[name]
    assert read_config(config).parameters == printed


@pytest.mark.parametrize("name", PRINTED)
def test_counts_round_to_what_cards_print(name: str) -> None:
    config, printed = PRINTED[name]
    model = read_config(config)
    assert model.parameters / 1e9 == pytest.approx(printed, rel=0.01)
    # A token's FLOP, forward: twice what it meets, but for the embedding, and causal attention.
    met = model.active_parameters - model.vocab * model.hidden * (not model.tied)
    flops = model.forward_flops(1, 1, causal_half=True)
    assert flops == pytest.approx(2 * met, rel=0.01)


def test_a_choice_of_keys_is_said_to_be_left_out() -> None:
    config, _ = PRINTED["deepseek-ai/DeepSeek-V3.2-Exp"]
    assert any(note.startswith("index_topk: ") for note in read_config(config).notes)


@pytest.mark.parametrize("name", REFUSED)
def test_other_layers_are_refused_by_their_keys(name: str) -> None:
    more, named = REFUSED[name]
    config = keys("newcomer", 4096, 4, 32, 8, 14336, 65536) | more
    with pytest.raises(ModelError, match=f"config.json: {named}: expected a decoder"):
        read_config(config, "config.json")


def test_layers_that_differ_in_a_number_are_refused() -> None:
    config = keys("newcomer", 64, 2, 8, 8, 256, 1000) | {"intermediate_size": [256, 512]}
    with pytest.raises(ModelError, match=r"intermediate_size: .* all layers, got .* 256, 512"):
        read_config(config)
    null = {**keys("newcomer", 64, 2, 8, 8, 256, 1000), "intermediate_size": None}
    with pytest.raises(ModelError) as caught:
        read_config(null)
    assert "did you mean" not in str(caught.value)
