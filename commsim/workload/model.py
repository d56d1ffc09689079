"""What is trained or served: layers, their parameters and their FLOPs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from commsim.collectives.collective import DTYPES
from commsim.errors import UnknownNameError
from commsim.units import Bytes
from commsim.workload.layer import (
    Attention,
    Experts,
    FeedForward,
    Layer,
    Tensor,
    linear,
    norm_tensors,
    prefixed,
)
from commsim.workload.lora import Lora, adapted, adapters, check_targets, is_target
from commsim.workload.parts import Part

__all__ = ["Attention", "Experts", "FeedForward", "Layer", "Lora", "Model", "Part", "Tensor"]

_ELEMENT = DTYPES | {"float8": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model's shape, with exact counts. `load_model` makes one from a config.json or a preset.

    kind: "decoder", "encoder", or "list" (its `parts`, for what is no transformer). stacks: layers
    in order, each with how many of it follow one another. tied: the head is the embedding.
    positions: learned position embeddings (0: rotary or none). norm: "rms" (a scale), "layer" (a
    scale and a shift) or "none" (nothing learned). mtp: multi-token-prediction layers (DeepSeek-AI
    2024, arXiv:2412.19437, section 2.2), each a layer behind a projection from 2 x hidden that
    shares embedding and head. head_transform: a dense layer and a norm before the head (BERT's
    masked language model). outputs: width of a small head instead (2: question answering).
    notes: what the description left open and was assumed.

    Worked out once: n_layers, without mtp; parameters, of the model without mtp, as publishers
    count; mtp_parameters; active_parameters, those that one token meets (embeddings included, mtp
    not); trained_parameters, of all tensors; matmul_parameters, those of the layers (LoRA's
    included) that multiply one token.
    """

    name: str
    kind: str = "decoder"
    hidden: int = 0
    vocab: int = 0
    stacks: tuple[tuple[Layer, int], ...] = ()
    tied: bool = False
    positions: int = 0
    norm: str = "rms"
    token_types: int = 0
    mtp: int = 0
    embedding_norm: bool = False
    final_norm: bool = True
    head: bool = True
    head_bias: bool = False
    head_transform: bool = False
    pooler: bool = False
    outputs: int = 0
    max_positions: int = 0
    parts: tuple[Part, ...] = ()
    lora: Lora | None = None
    notes: tuple[str, ...] = field(default=(), compare=False)
    n_layers: int = field(init=False, compare=False, repr=False)
    parameters: int = field(init=False, compare=False, repr=False)
    mtp_parameters: int = field(init=False, compare=False, repr=False)
    active_parameters: int = field(init=False, compare=False, repr=False)
    trained_parameters: int = field(init=False, compare=False, repr=False)
    matmul_parameters: int = field(init=False, compare=False, repr=False)
    kinds: tuple[tuple[Layer, int], ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        kinds: Counter[Layer] = Counter()
        for layer, count in self.stacks:
            kinds[layer] += count
        object.__setattr__(self, "kinds", tuple(kinds.items()))
        object.__setattr__(self, "n_layers", kinds.total())
        for name, value in _totals(self).items():
            object.__setattr__(self, name, value)

    def __hash__(self) -> int:
        return hash((self.hidden, self.vocab, self.parameters, self.n_layers, self.mtp))

    @property
    def layers(self) -> Iterator[Layer]:
        """Every layer, in order."""
        for layer, count in self.stacks:
            for _ in range(count):
                yield layer

    def tensors(self) -> tuple[Tensor, ...]:
        """Every parameter in order of registration, the mtp layers' last."""
        return _tensors(self)

    def forward_flops(self, tokens: float, seq_len: int = 1, causal_half: bool = False) -> float:
        """FLOP of the forward pass over `tokens` tokens in sequences of `seq_len`.

        2 tokens (matmul parameters + hidden vocab) + attention's 2 tokens keys heads (head_dim +
        value_dim) in each layer; a backward pass takes twice as much (Kaplan et al. 2020,
        arXiv:2001.08361, section 2.1). causal_half: without the products that causality masks, as
        kernels run; otherwise all, as most papers count. Leaves out norms, activations, softmax,
        look-ups, poolers and small heads. A list's tokens are its samples.
        """
        if self.kind == "list":
            return tokens * sum(part.flops for part in self.parts)
        flops = 2.0 * tokens * self.matmul_parameters
        for layer, count in self.kinds:
            if layer.attention is not None:
                flops += count * layer.attention.core_flops(tokens, seq_len, causal_half)
        return flops + self._ends_flops(tokens, seq_len, causal_half)

    def _ends_flops(self, tokens: float, seq_len: int, causal_half: bool) -> float:
        head = 2.0 * tokens * self.hidden * self.vocab if self.head else 0.0
        transform = 2.0 * tokens * self.hidden**2 if self.head_transform else 0.0
        if not self.mtp:
            return head + transform
        last = self.stacks[-1][0]
        each = last.forward_flops(self.hidden, tokens, seq_len, causal_half)
        return head + transform + self.mtp * (each + 4.0 * tokens * self.hidden**2 + head)

    def kv_bytes(self, dtype: str = "bfloat16", tokens: int = 1) -> Bytes:
        """Bytes that decoding keeps of one sequence of `tokens` tokens, in all layers.

        Each layer keeps keys and values, or the compressed pair of latent attention; a layer with a
        window keeps no more tokens than that. Raises UnknownNameError for a dtype.
        """
        if dtype not in _ELEMENT:
            raise UnknownNameError("dtype", dtype, _ELEMENT)
        elements = sum(
            count * layer.attention.kv_elements * min(tokens, layer.attention.window or tokens)
            for layer, count in self.kinds
            if layer.attention is not None and layer.attention.causal
        )
        return elements * _ELEMENT[dtype]


def _before(model: Model) -> Iterator[Tensor]:
    if not model.vocab:
        return
    hidden = model.hidden
    yield Tensor(name="embed_tokens.weight", shape=(model.vocab, hidden), split="vocab")
    if model.positions:
        yield Tensor(name="embed_positions.weight", shape=(model.positions, hidden))
    if model.token_types:
        yield Tensor(name="embed_token_types.weight", shape=(model.token_types, hidden))
    if model.embedding_norm:
        yield from norm_tensors("embedding_norm", hidden, model.norm)


def _after(model: Model) -> Iterator[Tensor]:
    hidden, vocab = model.hidden, model.vocab
    if model.final_norm:
        yield from norm_tensors("norm", hidden, model.norm)
    if model.pooler:
        yield from linear("pooler", hidden, hidden, bias=True)
    if model.head_transform:
        yield from linear("head_transform", hidden, hidden, bias=True)
        yield from norm_tensors("head_norm", hidden, model.norm)
    if model.head and not model.tied:
        yield Tensor(name="lm_head.weight", shape=(vocab, hidden), split="vocab")
    if model.head and model.head_bias:
        yield Tensor(name="lm_head.bias", shape=(vocab,), split="vocab")
    if model.outputs:
        yield from linear("outputs", hidden, model.outputs, bias=True)


def _mtp_layer(model: Model) -> Iterator[Tensor]:
    """One multi-token-prediction layer: two norms, the projection, a layer as the last one."""
    yield from norm_tensors("enorm", model.hidden, model.norm)
    yield from norm_tensors("hnorm", model.hidden, model.norm)
    yield from linear("eh_proj", 2 * model.hidden, model.hidden)
    yield from model.stacks[-1][0].tensors(model.hidden, model.norm)
    yield from norm_tensors("norm", model.hidden, model.norm)


@lru_cache(maxsize=64)
def _tensors(model: Model) -> tuple[Tensor, ...]:
    found = list(_before(model))
    for part in model.parts:
        found.extend(part.tensors)
    for i, layer in enumerate(model.layers):
        found.extend(prefixed(f"layers.{i}", layer.tensors(model.hidden, model.norm)))
    found.extend(_after(model))
    for i in range(model.mtp):
        found.extend(prefixed(f"mtp.{i}", _mtp_layer(model)))
    return tuple(adapted(found, model.lora)) if model.lora else tuple(found)


def _totals(model: Model) -> dict[str, int]:
    """The counts of a model, from one layer of each kind."""
    total = sum(t.numel for t in (*_before(model), *_after(model)))
    total += sum(t.numel for part in model.parts for t in part.tensors)
    active, matmul = total, 0
    for layer, count in model.kinds:
        total += count * layer.parameters(model.hidden, model.norm)
        active += count * layer.active_parameters(model.hidden, model.norm)
        matmul += count * layer.matmul_parameters(model.hidden)
    mtp = model.mtp * sum(t.numel for t in _mtp_layer(model)) if model.mtp else 0
    trained = total + mtp
    if model.lora:
        added, met, of_mtp = _adapter_counts(model, model.lora)
        total, active, matmul, mtp = total + added, active + met, matmul + met, mtp + of_mtp
        trained = added + of_mtp
    return {
        "parameters": total,
        "active_parameters": active,
        "matmul_parameters": matmul,
        "mtp_parameters": mtp,
        "trained_parameters": trained,
    }


def _adapter_counts(model: Model, lora: Lora) -> tuple[int, int, int]:
    """Elements of LoRA's matrices: in all layers, those that one token meets, in mtp layers."""
    total = met = 0
    seen: list[Tensor] = []
    for layer, count in model.kinds:
        tensors = tuple(prefixed("layers.0", layer.tensors(model.hidden, model.norm)))
        seen.extend(tensors)
        for tensor in tensors:
            if is_target(tensor, lora):
                numel = count * sum(t.numel for t in adapters(tensor, lora.rank))
                total += numel
                met += layer.met(numel) if tensor.split == "expert" else numel
    check_targets(seen, lora)
    in_mtp = prefixed("mtp.0", _mtp_layer(model)) if model.mtp else ()
    of_mtp = sum(
        t.numel for tensor in in_mtp if is_target(tensor, lora) for t in adapters(tensor, lora.rank)
    )
    return total, met, model.mtp * of_mtp
