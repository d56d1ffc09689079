"""From the keys of a Hugging Face config.json to a Model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import groupby
from typing import Any

from commsim.errors import ModelError
from commsim.workload.config_keys import Keys
from commsim.workload.families import FAMILIES, ONE_NORM_LAST, SAME_AS, Family
from commsim.workload.model import Attention, Experts, FeedForward, Layer, Lora, Model

_GATED_ACTS = ("silu", "swish", "swiglu", "geglu", "gelu_glu", "reglu")
_NESTED = ("text_config", "llm_config", "language_config")
# Keys of models that are not a stack of attention and feed-forward layers.
_FOREIGN = (
    "ssm_cfg", "mamba_d_state", "mamba_num_heads", "ssm_state_size", "state_size",
    "hybrid_override_pattern", "linear_num_value_heads", "attn_layer_period", "rwkv_version",
)  # fmt: skip


def read_config(config: Mapping[str, Any], where: str = "model", name: str = "") -> Model:
    """The model that the keys of a config.json describe (the language model of a multi-modal one).

    Keys go by their older names too (n_embd). An architecture that is not in `families` is read by
    its keys as a Llama, which `notes` says. Raises ModelError, a line for each problem.
    """
    notes: list[str] = []
    keys = Keys(_flat(config, notes), where)
    family = _family(keys, notes)
    _refuse_foreign(keys)
    stacks, hidden = _stacks(keys, family)
    vocab = keys.whole("vocab_size")
    longest = keys.whole("max_position_embeddings", default=0, least=0)
    positions = longest + family.position_offset if family.positions else 0
    if family.positions and not longest:
        keys.whole("max_position_embeddings")  # which says that it is missing
    ends = _ends(keys, family)
    lora = _lora(keys)
    mtp = keys.whole("num_nextn_predict_layers", default=0, least=0)
    types = keys.whole("type_vocab_size", default=0, least=0) if family.kind == "encoder" else 0
    tied = keys.flag("tie_word_embeddings", family.tied)
    keys.check()
    return Model(
        name=name or _name(keys),
        kind=family.kind,
        hidden=hidden,
        vocab=vocab,
        stacks=stacks,
        tied=tied,
        positions=positions,
        norm=family.norm,
        token_types=types,
        mtp=mtp,
        embedding_norm=family.embedding_norm,
        final_norm=family.final_norm,
        max_positions=longest,
        lora=lora,
        notes=tuple(notes),
        **ends,
    )


def _flat(config: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    """The keys of the language model, over those around them."""
    for key in _NESTED:
        inner = config.get(key)
        if isinstance(inner, Mapping):
            notes.append(f"{key}: only the language model is described")
            return {k: v for k, v in config.items() if k != key} | dict(inner)
    return dict(config)


def _name(keys: Keys) -> str:
    found = keys.get("_name_or_path") or keys.get("name") or keys.get("model_type")
    return str(found or "model").rstrip("/").rpartition("/")[2]


def _family(keys: Keys, notes: list[str]) -> Family:
    """What the architecture implies; its default keys are put underneath those given."""
    kind = str(keys.get("model_type") or "")
    family = FAMILIES.get(SAME_AS.get(kind, kind))
    if family is None:
        family = _guessed(keys)
        said = f"model_type {kind!r} is not known" if kind else "no model_type"
        how = "a gated" if family.gated else "no gated"
        notes.append(f"{said}: read by its keys, with rotary positions and {how} feed-forward")
    missing = {key: value for key, value in family.defaults.items() if not keys.has(key)}
    if missing:
        keys.config = {**keys.config, **missing}
        notes.extend(f"{key}: {value}, the default of {kind}" for key, value in missing.items())
    return _refined(keys, family, kind)


def _guessed(keys: Keys) -> Family:
    act = str(keys.get("hidden_act") or keys.get("hidden_activation") or "silu")
    normed = keys.has("layer_norm_eps") or keys.has("layer_norm_epsilon")
    return Family(
        gated=act in _GATED_ACTS,
        norm="layer" if normed and not keys.has("rms_norm_eps") else "rms",
        qk_norm=keys.get("use_qk_norm") is True,
    )


def _refined(keys: Keys, family: Family, kind: str) -> Family:
    """The family with what its own keys change."""
    change: dict[str, Any] = {}
    if kind == "falcon":
        new = keys.flag("new_decoder_architecture", False)
        parallel = new or keys.flag("parallel_attn", True)
        both = ("attention", "feed", "norm", "norm")
        change = {"parallel": parallel, "order": both if new or not parallel else ONE_NORM_LAST}
    elif kind == "gpt_neox":
        change = {"parallel": keys.flag("use_parallel_residual", True)}
    elif kind == "phi":
        change = {"qk_norm": keys.flag("qk_layernorm", False)}
    elif kind == "glm4_moe":
        change = {"qk_norm": keys.flag("use_qk_norm", False)}
    elif kind == "phimoe":
        change = {"head_bias": keys.flag("lm_head_bias", False)}
    elif kind == "mpt":
        settings = keys.get("attn_config")
        alibi = settings.get("alibi", True) if isinstance(settings, Mapping) else True
        change = {"positions": not alibi, "norm": "rms" if keys.flag("no_bias", True) else "layer"}
    return replace(family, **change)


def _refuse_foreign(keys: Keys) -> None:
    """Raises ModelError for what is no stack of attention and feed-forward layers."""
    found = [key for key in _FOREIGN if keys.has(key)]
    layer_types = keys.get("layer_types") or ()
    found += [f"layer_types {t!r}" for t in set(layer_types) if "attention" not in str(t)]
    found += [f"layer_types {t!r}" for t in set(layer_types) if "linear" in str(t)]
    if keys.get("is_encoder_decoder") is True:
        found.append("is_encoder_decoder")
    if found:
        raise ModelError(
            [
                f"{keys.where}: {found[0]}: expected a decoder or an encoder of attention and "
                'feed-forward layers; describe any other model by its parts (model_type "list")'
            ]
        )


def _stacks(keys: Keys, family: Family) -> tuple[tuple[tuple[Layer, int], ...], int]:
    """The layers, equal neighbours together, and the hidden size."""
    hidden = keys.whole("hidden_size")
    n_layers = keys.whole("num_hidden_layers")
    attention = _attention(keys, family, hidden)
    dense, sparse = _feeds(keys, family, hidden)
    window_of, chunked = _windows(keys, family, n_layers)
    is_sparse = _sparse(keys) if sparse is not None else None

    def layer(i: int) -> Layer:
        window = window_of(i)
        return Layer(
            attention=replace(attention, window=window, chunked=chunked and window is not None),
            feed=sparse if is_sparse is not None and is_sparse(i) else dense,
            parallel=family.parallel,
            order=family.order,
        )

    runs = ((each, len(list(run))) for each, run in groupby(layer(i) for i in range(n_layers)))
    return tuple(runs), hidden


def _attention(keys: Keys, family: Family, hidden: int) -> Attention:
    heads = keys.whole("num_attention_heads")
    kv_heads = _kv_heads(keys, heads)
    if not keys.has("head_dim") and not keys.has("kv_lora_rank") and hidden % heads:
        keys.problem(
            "head_dim", f"missing, and hidden_size {hidden} is no multiple of {heads} heads"
        )
    head_dim = keys.whole("head_dim", default=max(1, hidden // heads))
    plain = Attention(
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        value_dim=keys.whole("v_head_dim", default=head_dim),
        causal=family.kind == "decoder",
        bias=keys.flag("qkv_bias", keys.flag("attention_bias", family.qkv_bias)),
        out_bias=not family.only_qkv_bias and keys.flag("attention_bias", family.out_bias),
        qk_norm=family.qk_norm,
        fused=family.fused_qkv,
        sinks=family.sinks,
    )
    if not keys.has("kv_lora_rank"):
        return plain
    rope = keys.whole("qk_rope_head_dim")
    return replace(
        plain,
        head_dim=keys.whole("qk_nope_head_dim") + rope,
        value_dim=keys.whole("v_head_dim"),
        q_rank=keys.whole("q_lora_rank", default=0, least=0) or None,
        kv_rank=keys.whole("kv_lora_rank"),
        rope_dim=rope,
    )


def _kv_heads(keys: Keys, heads: int) -> int:
    default = heads
    if keys.get("multi_query") is True and keys.get("new_decoder_architecture") is not True:
        return 1
    kv_heads = keys.whole("num_key_value_heads", default=default)
    if heads % kv_heads:
        keys.problem(
            "num_key_value_heads", f"expected a divisor of the {heads} heads, got {kv_heads}"
        )
    return kv_heads


def _feeds(keys: Keys, family: Family, hidden: int) -> tuple[FeedForward, Experts | None]:
    """The feed-forward of a dense layer, and that of one with experts if there are any."""
    bias = keys.flag("mlp_bias", family.feed_bias)
    count = keys.whole("num_experts", default=0, least=0)
    inner = keys.whole("expansion_ratio", default=family.inner, least=0) * hidden
    only_experts = count and keys.has("moe_intermediate_size")
    width = keys.whole(
        "intermediate_size_mlp" if keys.has("intermediate_size_mlp") else "intermediate_size",
        default=inner or (1 if only_experts else None),
    )
    dense = FeedForward(width=width, gated=family.gated, bias=bias, fused=family.fused_gate)
    if not count:
        return dense, None
    per_token = keys.whole("num_experts_per_tok")
    if per_token > count:
        keys.problem(
            "num_experts_per_tok", f"expected at most the {count} experts, got {per_token}"
        )
    expert_width = keys.whole(
        "moe_intermediate_size", default=keys.whole("intermediate_size", default=width)
    )
    experts = Experts(
        count=count,
        per_token=min(per_token, count),
        width=expert_width,
        gated=family.gated,
        shared_width=_shared_width(keys, expert_width),
        bias=family.expert_bias,
        router_bias=family.expert_bias,
        shared_gate=keys.get("model_type") == "qwen2_moe",
        fused=family.fused_gate,
    )
    return dense, experts


def _shared_width(keys: Keys, expert_width: int) -> int:
    """Width in total of the experts that all tokens visit."""
    if keys.has("shared_expert_intermediate_size"):
        return keys.whole("shared_expert_intermediate_size", least=0)
    if keys.has("n_shared_experts"):
        return keys.whole("n_shared_experts", least=0) * expert_width
    return expert_width if keys.get("model_type") in ("llama4", "llama4_text") else 0


def _sparse(keys: Keys) -> Callable[[int], bool]:
    """Which layers have experts, by the rule whose keys are there."""
    first = keys.whole("first_k_dense_replace", default=0, least=0)
    every = keys.whole("moe_layer_freq", default=1)
    step = keys.whole(
        "interleave_moe_layer_step", default=keys.whole("decoder_sparse_step", default=1)
    )
    dense = keys.wholes("mlp_only_layers") or ()
    listed = keys.wholes("moe_layers")
    if listed:
        return lambda i: i in listed
    return lambda i: i >= first and i % every == 0 and (i + 1) % step == 0 and i not in dense


def _windows(keys: Keys, family: Family, n_layers: int) -> tuple[Callable[[int], int | None], bool]:
    """The attention window of each layer; and do windows lie side by side?"""
    chunked = keys.has("attention_chunk_size") and not keys.config.get("sliding_window")
    if not keys.has("sliding_window") or keys.get("use_sliding_window") is False:
        return lambda i: None, False
    window = keys.whole("sliding_window")
    types = keys.get("layer_types")
    if types is not None:
        if len(types) != n_layers:
            keys.problem("layer_types", f"expected {n_layers} entries, got {len(types)}")
        return lambda i: None if i < len(types) and "full" in str(types[i]) else window, chunked
    if keys.get("use_sliding_window") is True:
        first = keys.whole("max_window_layers", default=0, least=0)
        return lambda i: window if i >= first else None, chunked
    every = keys.whole("sliding_window_pattern", default=family.full_every, least=0)
    return lambda i: None if every and (i + 1) % every == 0 else window, chunked


def _ends(keys: Keys, family: Family) -> dict[str, Any]:
    """What follows the last layer, by the class that `architectures` names."""
    listed = keys.get("architectures") or ()
    cls = str(listed[0]) if isinstance(listed, list | tuple) and listed else ""
    labels = keys.whole("num_labels", default=2)
    if family.kind == "encoder":
        language = cls.endswith(("ForMaskedLM", "ForPreTraining"))
        pooled = not cls or cls.endswith(
            ("Model", "ForPreTraining", "SequenceClassification", "MultipleChoice", "Prediction")
        )
        small = cls != "" and not cls.endswith(("Model", "ForMaskedLM"))
        return {
            "head": language,
            "head_bias": language,
            "head_transform": language,
            "pooler": pooled,
            "outputs": (1 if cls.endswith("MultipleChoice") else labels) if small else 0,
        }
    classifies = cls.endswith(("Classification", "QuestionAnswering"))
    head = not classifies and (not cls.endswith("Model") or cls.endswith("LMHeadModel"))
    return {
        "head": head,
        "head_bias": family.head_bias and head,
        "outputs": labels if classifies else 0,
    }


def _lora(keys: Keys) -> Lora | None:
    """The table `lora`: rank (or r) and targets (or target_modules), as in PEFT's file."""
    table = keys.get("lora")
    if table is None:
        return None
    if not isinstance(table, Mapping):
        keys.problem("lora", f'expected a table such as {{"rank": 16}}, got {table!r}')
        return None
    rank = table.get("rank", table.get("r"))
    targets = table.get("targets", table.get("target_modules", ("q_proj", "v_proj")))
    targets = (targets,) if isinstance(targets, str) else tuple(targets)
    return Lora(rank=rank, targets=targets)
