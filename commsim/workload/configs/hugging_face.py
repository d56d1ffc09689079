"""From the keys of a Hugging Face config.json to a Model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from commsim.workload.configs.families import FAMILIES, ONE_NORM_LAST, SAME_AS, Family
from commsim.workload.configs.keys import Keys
from commsim.workload.configs.layers import read_stacks
from commsim.workload.model import Lora, Model

_GATED_ACTS = ("silu", "swish", "swiglu", "geglu", "gelu_glu", "reglu")
_NESTED = ("text_config", "llm_config", "language_config")
_PARTS = ("attn_config", "ffn_config")
# Keys of models that are not a stack of attention and feed-forward layers.
_FOREIGN = (
    "ssm_cfg", "mamba_d_state", "mamba_num_heads", "ssm_state_size", "state_size",
    "hybrid_override_pattern", "linear_num_value_heads", "attn_layer_period", "rwkv_version",
    "conv_L_cache", "lru_width", "linear_attn_config", "block_configs", "altup_num_inputs",
    "zero_expert_num", "attention_hidden_size",
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
    stacks, hidden = read_stacks(keys, family)
    vocab = keys.whole("vocab_size")
    longest = keys.whole("max_position_embeddings", default=0, least=0)
    positions = longest + family.position_offset if family.positions else 0
    if family.positions and not longest:
        keys.whole("max_position_embeddings")  # which says that it is missing
    ends = _ends(keys, family)
    lora = _lora(keys)
    mtp = keys.whole("num_nextn_predict_layers", default=0, least=0)
    if keys.has("index_topk"):
        notes.append("index_topk: attention is reckoned in full; its choice of keys is left out")
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
    parts: dict[str, Any] = {}
    for key in _PARTS:
        inner = config.get(key)
        parts |= dict(inner) if isinstance(inner, Mapping) else {}
    return parts | dict(config)


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
    elif kind == "qwen" and keys.has("intermediate_size"):  # of gate and other matrix together
        keys.config = {**keys.config, "intermediate_size": keys.whole("intermediate_size") // 2}
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
    for kind in keys.texts("layer_types") or ():
        if "attention" not in kind or "linear" in kind:
            found.append(f"layer_types {kind!r}")
    if 0 in (keys.wholes("attn_type_list") or ()):
        found.append("attn_type_list")  # MiniMax: 0 is linear attention
    found += [k for k in ("is_encoder_decoder", "parallel_attn_mlp_res") if keys.get(k) is True]
    if str(keys.get("model_type")).startswith("rwkv"):
        found.append("model_type")
    if found:
        keys.problem(
            ", ".join(dict.fromkeys(found)),
            "expected a decoder or an encoder of attention and feed-forward layers; describe any "
            'other model by its parts (model_type "list")',
        )
        keys.check()


def _ends(keys: Keys, family: Family) -> dict[str, Any]:
    """What follows the last layer, by the class that `architectures` names."""
    cls = next(iter(keys.texts("architectures") or ()), "")
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
    if isinstance(targets, str):
        targets = (targets,)
    if not isinstance(targets, list | tuple | set):
        keys.problem("lora", f'targets: expected names such as ["q_proj"], got {targets!r}')
        return None
    return Lora(rank=rank, targets=tuple(sorted(str(target) for target in targets)))
