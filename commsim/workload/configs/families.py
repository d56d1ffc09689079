"""What a config.json leaves unsaid: how each architecture of Hugging Face's transformers is built.

Facts from the modelling files of transformers 4.57 and 5. A key in the config.json always wins over
the family.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

NORM_FIRST = ("norm", "attention", "norm", "feed")
NORMS_LAST = ("attention", "feed", "norm", "norm")
NORM_AFTER = ("attention", "norm", "feed", "norm")
ONE_NORM_FIRST = ("norm", "attention", "feed")
ONE_NORM_LAST = ("attention", "feed", "norm")
FOUR_NORMS = ("attention", "feed", "norm", "norm", "norm", "norm")


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One architecture.

    gated: the feed-forward has a gate. positions: learned. position_offset: rows before the first
    position (OPT). only_qkv_bias: attention_bias does not reach the output projection. inner: width
    of the feed-forward in units of hidden, where the file may leave it out. full_every: with a
    window, every so-many-th layer has none (0: all have it). order: see Layer. defaults: keys that
    the family's files leave out.
    """

    gated: bool = True
    norm: str = "rms"
    positions: bool = False
    position_offset: int = 0
    tied: bool = False
    qkv_bias: bool = False
    out_bias: bool = False
    only_qkv_bias: bool = False
    feed_bias: bool = False
    fused_qkv: bool = False
    fused_gate: bool = False
    qk_norm: bool = False
    sinks: bool = False
    expert_bias: bool = False
    parallel: bool = False
    kind: str = "decoder"
    embedding_norm: bool = False
    final_norm: bool = True
    head_bias: bool = False
    inner: int = 0
    full_every: int = 0
    order: tuple[str, ...] = NORMS_LAST
    defaults: Mapping[str, object] = field(default_factory=dict)


LLAMA = Family()
_GPT2 = Family(
    gated=False, norm="layer", positions=True, tied=True, qkv_bias=True, out_bias=True,
    feed_bias=True, fused_qkv=True, inner=4, order=NORM_FIRST,
)  # fmt: skip
_NEOX = replace(
    _GPT2, positions=False, tied=False, parallel=True,
    order=("norm", "norm", "attention", "feed"),
)  # fmt: skip
_GEMMA2 = Family(tied=True, order=FOUR_NORMS, full_every=2)
_BERT = Family(
    gated=False, norm="layer", positions=True, tied=True, qkv_bias=True, out_bias=True,
    feed_bias=True, kind="encoder", embedding_norm=True, final_norm=False, order=NORM_AFTER,
    defaults={"type_vocab_size": 2, "max_position_embeddings": 512},
)  # fmt: skip
_PHI = Family(
    gated=False, norm="layer", qkv_bias=True, out_bias=True, feed_bias=True, parallel=True,
    head_bias=True, inner=4, order=ONE_NORM_LAST,
)  # fmt: skip
_COHERE = Family(tied=True, parallel=True, order=ONE_NORM_LAST)
_DEEPSEEK = Family()
_QWEN3 = Family(qk_norm=True)

FAMILIES: dict[str, Family] = {
    "llama": LLAMA,
    "llama4_text": Family(full_every=4),
    "mistral": LLAMA,
    "mixtral": LLAMA,
    "smollm3": Family(tied=True),
    "granite": Family(),
    "granitemoe": Family(),
    "qwen": Family(qkv_bias=True, fused_qkv=True),
    "qwen2": Family(qkv_bias=True),
    "qwen2_moe": Family(qkv_bias=True),
    "qwen3": _QWEN3,
    "qwen3_moe": _QWEN3,
    "deepseek_v2": _DEEPSEEK,
    "deepseek_v3": _DEEPSEEK,
    "kimi_k2": _DEEPSEEK,
    "glm4_moe": Family(only_qkv_bias=True, qkv_bias=False),
    "gpt_oss": Family(
        qkv_bias=True, out_bias=True, sinks=True, expert_bias=True, fused_gate=True, full_every=2
    ),
    "gemma": Family(tied=True),
    "gemma2": _GEMMA2,
    "gemma3_text": replace(
        _GEMMA2, qk_norm=True, full_every=6,
        defaults={
            "vocab_size": 262208, "num_attention_heads": 8, "num_key_value_heads": 4,
            "head_dim": 256,
        },
    ),
    "nemotron": Family(gated=False, norm="layer"),
    "phi": _PHI,
    "phi3": Family(fused_qkv=True, fused_gate=True),
    "phimoe": Family(norm="layer"),
    "starcoder2": Family(
        gated=False, norm="layer", tied=True, qkv_bias=True, out_bias=True, feed_bias=True
    ),
    "stablelm": Family(norm="layer"),
    "cohere": _COHERE,
    "cohere2": replace(_COHERE, full_every=4),
    "olmo": Family(norm="none"),
    "dbrx": Family(fused_qkv=True),
    "ernie4_5_moe": LLAMA,
    "hunyuan_v1_moe": _QWEN3,
    "gpt2": _GPT2,
    "gpt_bigcode": _GPT2,
    "gpt_neo": replace(_GPT2, qkv_bias=False, fused_qkv=False, full_every=2),
    "gpt_neox": _NEOX,
    "gptj": replace(
        _PHI, qkv_bias=False, out_bias=False, order=ONE_NORM_FIRST
    ),
    "opt": replace(_GPT2, position_offset=2, fused_qkv=False, order=NORM_AFTER),
    "bloom": replace(_GPT2, positions=False, embedding_norm=True),
    "mpt": Family(gated=False, tied=True, fused_qkv=True, inner=4, order=NORM_FIRST),
    "falcon": Family(
        gated=False, norm="layer", tied=True, fused_qkv=True, inner=4, parallel=True,
        order=ONE_NORM_LAST,
    ),
    "bert": _BERT,
    "roberta": replace(_BERT, defaults={"type_vocab_size": 1, "max_position_embeddings": 514}),
}  # fmt: skip

# Files of these families nest, or are called by another name.
SAME_AS = {
    "llama4": "llama4_text",
    "gemma3": "gemma3_text",
    "mistral3": "mistral",
    "ministral": "mistral",
    "ministral3": "mistral",
    "qwen2_vl": "qwen2",
    "qwen2_vl_text": "qwen2",
    "qwen2_5_vl": "qwen2",
    "qwen2_5_vl_text": "qwen2",
    "qwen3_vl_text": "qwen3",
    "qwen3_vl_moe_text": "qwen3_moe",
    "xlm-roberta": "roberta",
    "megatron-bert": "bert",
    "grok-1": "mixtral",
}
