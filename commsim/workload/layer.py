"""One layer of a transformer: its parameters as a framework registers them, and its FLOPs.

Names follow Hugging Face where those are shared by most families (q_proj, gate_proj), so that the
targets of a LoRA mean what their users expect.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import prod


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One parameter as the framework registers it.

    split: how parallelism cuts it: "" (a whole copy on every rank), "column" (output features, the
    first dimension), "row" (input features, the last dimension), "vocab" (the first dimension),
    "expert" (the first dimension, over ep; inside an expert as its kind, over etp).
    trained: has a gradient and optimizer states; False for what LoRA freezes.
    """

    name: str
    shape: tuple[int, ...]
    split: str = ""
    trained: bool = True

    @property
    def numel(self) -> int:
        """Elements."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Attention as a config.json has it.

    head_dim: of queries and keys; value_dim: of values. window: keys a query sees at most (None:
    all). q_rank, kv_rank: widths of the compressed queries and of the compressed keys and values
    (multi-head latent attention, DeepSeek-AI 2024, arXiv:2405.04434, section 2.1); rope_dim, the
    part of head_dim that carries the position, is then one key shared by all heads. qk_norm: a
    norm over each head's queries and keys. fused: queries, keys and values are one tensor.
    sinks: one learned logit a head (GPT-OSS). chunked: windows lie side by side instead of sliding
    (Llama 4).
    """

    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    causal: bool = True
    window: int | None = None
    bias: bool = False
    out_bias: bool = False
    q_rank: int | None = None
    kv_rank: int | None = None
    rope_dim: int = 0
    qk_norm: bool = False
    fused: bool = False
    sinks: bool = False
    chunked: bool = False

    @property
    def kv_elements(self) -> int:
        """Elements that decoding keeps of one token."""
        if self.kv_rank is not None:
            return self.kv_rank + self.rope_dim
        return self.kv_heads * (self.head_dim + self.value_dim)

    def tensors(self, hidden: int, norm: str) -> Iterator[Tensor]:
        """The parameters, in order of registration."""
        if self.sinks:
            yield Tensor(name="sinks", shape=(self.heads,), split="column")
        if self.kv_rank is not None:
            yield from self._latent(hidden, norm)
        else:
            yield from self._plain(hidden)
        width = self.heads * self.value_dim
        yield from linear("o_proj", width, hidden, split="row", bias=self.out_bias)
        if self.qk_norm:
            yield from norm_tensors("q_norm", self.head_dim, norm)
            yield from norm_tensors("k_norm", self.head_dim, norm)

    def _plain(self, hidden: int) -> Iterator[Tensor]:
        widths = {
            "q_proj": self.heads * self.head_dim,
            "k_proj": self.kv_heads * self.head_dim,
            "v_proj": self.kv_heads * self.value_dim,
        }
        if self.fused:
            widths = {"qkv_proj": sum(widths.values())}
        for name, width in widths.items():
            yield from linear(name, hidden, width, split="column", bias=self.bias)

    def _latent(self, hidden: int, norm: str) -> Iterator[Tensor]:
        assert self.kv_rank is not None
        q_width = self.heads * self.head_dim
        if self.q_rank is None:
            yield from linear("q_proj", hidden, q_width, split="column")
        else:
            yield from linear("q_a_proj", hidden, self.q_rank, bias=self.bias)
            yield from norm_tensors("q_a_layernorm", self.q_rank, norm)
            yield from linear("q_b_proj", self.q_rank, q_width, split="column")
        yield from linear(
            "kv_a_proj_with_mqa", hidden, self.kv_rank + self.rope_dim, bias=self.bias
        )
        yield from norm_tensors("kv_a_layernorm", self.kv_rank, norm)
        kv_width = self.heads * (self.head_dim - self.rope_dim + self.value_dim)
        yield from linear("kv_b_proj", self.kv_rank, kv_width, split="column")

    def core_flops(self, tokens: float, seq_len: int, causal_half: bool) -> float:
        """FLOP of scores and weighted values of `tokens` queries in sequences of `seq_len`."""
        keys = self.keys_seen(seq_len, causal_half)
        return 2.0 * tokens * keys * self.heads * (self.head_dim + self.value_dim)

    def keys_seen(self, seq_len: int, causal_half: bool) -> float:
        """Keys that a query meets on average; causal_half leaves out those masked by causality."""
        half = causal_half and self.causal
        window = min(self.window or seq_len, seq_len)
        if not half:
            return float(window)
        if self.chunked:
            return window / 2
        return window - window * window / (2 * seq_len)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedForward:
    """Two matrices, or three where a gate multiplies the inner activations.

    fused: gate and up are one tensor.
    """

    width: int
    gated: bool
    bias: bool = False
    fused: bool = False

    def tensors(self, hidden: int) -> Iterator[Tensor]:
        """The parameters, in order of registration."""
        for name, width in inner_widths(self.width, self.gated, self.fused).items():
            yield from linear(name, hidden, width, split="column", bias=self.bias)
        yield from linear("down_proj", self.width, hidden, split="row", bias=self.bias)


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """A router and experts, each a FeedForward of `width`; the experts of a layer are one tensor.

    per_token: experts that one token visits. shared_width: of the experts that all tokens visit,
    in total (0: none); shared_gate: a learned weight for them (Qwen2-MoE). router_bias: one number
    an expert, added to its score. Experts are stacked along the first dimension, as torchtitan and
    transformers 5 keep them.
    """

    count: int
    per_token: int
    width: int
    gated: bool = True
    shared_width: int = 0
    bias: bool = False
    router_bias: bool = False
    shared_gate: bool = False
    fused: bool = False

    def tensors(self, hidden: int) -> Iterator[Tensor]:
        """The parameters, in order of registration."""
        yield from linear("router", hidden, self.count, bias=self.router_bias)
        inner = inner_widths(self.width, self.gated, self.fused)
        for name, width, depth in (
            *((name, width, hidden) for name, width in inner.items()),
            ("down_proj", hidden, self.width),
        ):
            shape = (self.count, width, depth)
            yield Tensor(name=f"experts.{name}.weight", shape=shape, split="expert")
            if self.bias:
                yield Tensor(name=f"experts.{name}.bias", shape=shape[:2], split="expert")
        if self.shared_width:
            shared = FeedForward(width=self.shared_width, gated=self.gated, bias=self.bias)
            yield from prefixed("shared_expert", shared.tensors(hidden))
        if self.shared_gate:
            yield from linear("shared_expert_gate", hidden, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One layer. parallel: attention and feed-forward read the same input (GPT-J).

    order: in which attention, feed-forward and each norm are registered.
    """

    attention: Attention | None
    feed: FeedForward | Experts | None
    parallel: bool = False
    order: tuple[str, ...] = ("attention", "feed", "norm", "norm")

    def tensors(self, hidden: int, norm: str) -> tuple[Tensor, ...]:
        """The parameters, in order of registration."""
        return _tensors(self, hidden, norm)

    def parameters(self, hidden: int, norm: str) -> int:
        """Elements of all tensors."""
        return _counts(self, hidden, norm)[0]

    def active_parameters(self, hidden: int, norm: str) -> int:
        """Elements that one token meets: all but the experts it does not visit."""
        return _counts(self, hidden, norm)[1]

    def met(self, elements: int) -> int:
        """Of so many elements of experts, those that one token meets."""
        if not isinstance(self.feed, Experts):
            return elements
        return elements * self.feed.per_token // self.feed.count

    def matmul_parameters(self, hidden: int) -> int:
        """Elements of the matrices that multiply one token."""
        return _counts(self, hidden, "rms")[2]

    def forward_flops(
        self, hidden: int, tokens: float, seq_len: int, causal_half: bool = False
    ) -> float:
        """FLOP of `tokens` tokens in sequences of `seq_len`: 2 a multiply-add.

        Norms, activations and softmax are left out, as in every published count.
        """
        flops = 2.0 * tokens * self.matmul_parameters(hidden)
        if self.attention is not None:
            flops += self.attention.core_flops(tokens, seq_len, causal_half)
        return flops


def linear(
    name: str, inputs: int, outputs: int, *, split: str = "", bias: bool = False
) -> Iterator[Tensor]:
    """Weight and bias of a linear layer."""
    yield Tensor(name=f"{name}.weight", shape=(outputs, inputs), split=split)
    if bias:
        yield Tensor(name=f"{name}.bias", shape=(outputs,), split="" if split == "row" else split)


def norm_tensors(name: str, width: int, norm: str) -> Iterator[Tensor]:
    """Scale, and shift where it is a layer norm."""
    if norm != "none":
        yield Tensor(name=f"{name}.weight", shape=(width,))
    if norm == "layer":
        yield Tensor(name=f"{name}.bias", shape=(width,))


def prefixed(prefix: str, tensors: Iterable[Tensor]) -> Iterator[Tensor]:
    """The tensors under a name."""
    for t in tensors:
        yield Tensor(name=f"{prefix}.{t.name}", shape=t.shape, split=t.split, trained=t.trained)


def inner_widths(width: int, gated: bool, fused: bool) -> dict[str, int]:
    """Output features of the matrices before the activation."""
    if not gated:
        return {"up_proj": width}
    if fused:
        return {"gate_up_proj": 2 * width}
    return {"gate_proj": width, "up_proj": width}


@lru_cache(maxsize=4096)
def _tensors(layer: Layer, hidden: int, norm: str) -> tuple[Tensor, ...]:
    found: list[Tensor] = []
    norms = 0
    for part in layer.order:
        if part == "norm":
            norms += 1
            found.extend(norm_tensors(f"norm_{norms}", hidden, norm))
        elif part == "attention" and layer.attention is not None:
            found.extend(prefixed("attention", layer.attention.tensors(hidden, norm)))
        elif part == "feed" and layer.feed is not None:
            found.extend(prefixed("feed", layer.feed.tensors(hidden)))
    return tuple(found)


@lru_cache(maxsize=4096)
def _counts(layer: Layer, hidden: int, norm: str) -> tuple[int, int, int]:
    """Parameters: all, those one token meets, and those that multiply it."""
    tensors = _tensors(layer, hidden, norm)
    total = active = matmul = 0
    for tensor in tensors:
        met = layer.met(tensor.numel) if tensor.split == "expert" else tensor.numel
        total += tensor.numel
        active += met
        if tensor.name.endswith("weight") and len(tensor.shape) > 1:
            matmul += met
    return total, active, matmul
