"""The layers that the keys of a config.json describe: attention, feed-forward, experts, windows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import groupby

from commsim.workload.configs.families import Family
from commsim.workload.configs.keys import Keys
from commsim.workload.layer import Attention, Experts, FeedForward, Layer

_MOST_LAYERS = 10_000  # more is a slip


def read_stacks(keys: Keys, family: Family) -> tuple[tuple[tuple[Layer, int], ...], int]:
    """The layers, equal neighbours together, and the hidden size."""
    hidden = keys.whole("hidden_size")
    n_layers = keys.whole("num_hidden_layers", most=_MOST_LAYERS)
    attention = _attention(keys, family, hidden)
    dense, sparse = _feeds(keys, family, hidden)
    window_of, chunked = _windows(keys, family, n_layers)
    is_sparse = _sparse(keys) if sparse is not None else lambda i: False

    def layer(window: int | None, with_experts: bool) -> Layer:
        return Layer(
            attention=replace(attention, window=window, chunked=chunked and window is not None),
            feed=sparse if with_experts else dense,
            parallel=family.parallel,
            order=family.order,
        )

    forms = [(window_of(i), is_sparse(i)) for i in range(n_layers)]
    layers = {form: layer(*form) for form in dict.fromkeys(forms)}
    runs = ((layers[form], len(list(run))) for form, run in groupby(forms))
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
    if keys.get("multi_query") is True and keys.get("new_decoder_architecture") is not True:
        return 1
    kv_heads = keys.whole("num_key_value_heads", default=heads)
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
    types = keys.texts("layer_types")
    if types is not None:
        if len(types) != n_layers:
            keys.problem("layer_types", f"expected {n_layers} entries, got {len(types)}")
        return lambda i: None if i < len(types) and "full" in types[i] else window, chunked
    if keys.get("use_sliding_window") is True:
        first = keys.whole("max_window_layers", default=0, least=0)
        return lambda i: window if i >= first else None, chunked
    every = keys.whole("sliding_window_pattern", default=family.full_every, least=0)
    return lambda i: None if every and (i + 1) % every == 0 else window, chunked
