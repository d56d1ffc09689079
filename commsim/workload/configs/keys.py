"""The keys of a config.json under all the names they go by, with every problem kept."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from commsim.errors import ModelError

# One key's other names, as older architectures of transformers have them.
OTHER_NAMES: dict[str, tuple[str, ...]] = {
    "hidden_size": ("n_embd", "d_model", "n_embed", "dim"),
    "num_hidden_layers": ("n_layer", "n_layers", "num_layers"),
    "num_attention_heads": ("n_head", "n_heads", "num_heads"),
    "num_key_value_heads": ("num_kv_heads", "n_kv_heads", "kv_n_heads", "multi_query_group_num"),
    "intermediate_size": ("n_inner", "ffn_dim", "ffn_hidden_size", "ffn_size"),
    "vocab_size": ("padded_vocab_size",),
    "max_position_embeddings": ("n_positions", "max_seq_len", "n_ctx", "max_sequence_length"),
    "num_experts": ("num_local_experts", "n_routed_experts", "moe_num_experts"),
    "num_experts_per_tok": (
        "num_experts_per_token", "experts_per_token", "moe_topk", "moe_top_k", "moe_k",
    ),
    "n_shared_experts": ("num_shared_experts", "num_shared_expert", "moe_num_shared_experts"),
    "first_k_dense_replace": ("moe_layer_start_index",),
    "moe_intermediate_size": ("expert_intermediate_size", "moe_ffn_hidden_size"),
    "shared_expert_intermediate_size": ("moe_shared_expert_intermediate_size",),
    "sliding_window": ("attention_chunk_size", "window_size"),
    "sliding_window_pattern": ("_sliding_window_pattern", "no_rope_layer_interval"),
    "attention_bias": ("use_bias", "bias", "enable_bias"),
    "mlp_bias": ("use_bias", "bias", "enable_bias"),
}  # fmt: skip
_MOST = 1 << 40  # far above any key's value


class Keys:
    """Reads keys; `problems` holds a line for each that is missing or wrong.

    where: the file, for the messages. A key that is null counts as left out.
    """

    def __init__(self, config: Mapping[str, Any], where: str) -> None:
        self.config = config
        self.where = where
        self.problems: list[str] = []

    def get(self, key: str) -> Any:
        """The value under this name or another of its names; None where there is none."""
        for name in (key, *OTHER_NAMES.get(key, ())):
            if self.config.get(name) is not None:
                return self.config[name]
        return None

    def has(self, key: str) -> bool:
        """Is it there?"""
        return self.get(key) is not None

    def whole(self, key: str, default: int | None = None, least: int = 1, most: int = _MOST) -> int:
        """A whole number; without a default a key that is left out is a problem. A list with one
        and the same number for every layer is that number."""
        value = self.get(key)
        if isinstance(value, list | tuple) and len(set(map(str, value))) == 1:
            value = value[0]
        elif isinstance(value, list | tuple) and len(value) > 1:
            kinds = ", ".join(dict.fromkeys(map(str, value)))
            self.problem(key, f"expected one number for all layers, got a list of {kinds}")
            return max(least, default or least)
        if value is None:
            if default is None:
                self._missing(key)
                return least
            return default
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            upper = f" and <= {most}" if most < _MOST else ""
            self.problem(key, f"expected a whole number >= {least}{upper}, got {value!r}")
            return max(least, default or least)
        return value

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.problem(key, f"expected true or false, got {value!r}")
            return default
        return value

    def texts(self, key: str) -> tuple[str, ...] | None:
        """A list of texts; None where it is left out."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, list | tuple) or not all(isinstance(v, str) for v in value):
            self.problem(key, f"expected a list of texts, got {value!r}")
            return None
        return tuple(value)

    def wholes(self, key: str) -> tuple[int, ...] | None:
        """A list of whole numbers; None where it is left out."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, list | tuple) or any(type(v) is not int or v < 0 for v in value):
            self.problem(key, f"expected a list of whole numbers, got {value!r}")
            return None
        return tuple(value)

    def problem(self, key: str, what: str) -> None:
        """Keeps one line."""
        self.problems.append(f"{self.where}: {key}: {what}")

    def check(self) -> None:
        """Raises ModelError with all problems, if there are any."""
        if self.problems:
            raise ModelError(self.problems)

    def _missing(self, key: str) -> None:
        names = OTHER_NAMES.get(key, ())
        also = f" (other names: {', '.join(names)})" if names else ""
        close = difflib.get_close_matches(
            key, [str(k) for k, v in self.config.items() if v is not None], n=1, cutoff=0.75
        )
        hint = f'; did you mean it by "{close[0]}"?' if close else ""
        self.problem(key, f"missing, expected a whole number{also}{hint}")
