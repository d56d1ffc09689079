"""How many parameters one rank holds of a layer and of a model's two ends, before any sharding."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from commsim.workload.layer import Layer, Tensor, prefixed
from commsim.workload.layout import Layout
from commsim.workload.lora import Lora, adapters, is_target
from commsim.workload.model import Model

_CUT = ("column", "row", "vocab")


@dataclass(frozen=True, slots=True)
class Share:
    """Elements on one rank. dense: those that data and context parallel ranks hold in common;
    expert: those that only ranks with the same experts do; trained_*: of them, not frozen."""

    dense: float = 0.0
    expert: float = 0.0
    trained_dense: float = 0.0
    trained_expert: float = 0.0

    @property
    def total(self) -> float:
        """All elements."""
        return self.dense + self.expert

    @property
    def trained(self) -> float:
        """All elements that are not frozen."""
        return self.trained_dense + self.trained_expert

    def plus(self, other: Share, times: int = 1) -> Share:
        """This and `times` the other."""
        return Share(
            self.dense + times * other.dense,
            self.expert + times * other.expert,
            self.trained_dense + times * other.trained_dense,
            self.trained_expert + times * other.trained_expert,
        )


def of_layer(model: Model, layer: Layer, layout: Layout) -> Share:
    """One layer's parameters on one rank."""
    return _of_layer(
        layer, model.hidden, model.norm, model.lora, layout.tp, layout.ep, layout.expert_tp
    )


def of_ends(model: Model, layout: Layout) -> tuple[Share, Share]:
    """The parameters before the first layer and those after the last, on one rank.

    Where the head is the embedding and pipeline stages lie between them, both ends hold a copy.
    A model of parts has them all before.
    """
    return _of_ends(model, layout.tp, layout.ep, layout.expert_tp, layout.pp > 1)


@lru_cache(maxsize=65536)
def _of_layer(
    layer: Layer, hidden: int, norm: str, lora: Lora | None, tp: int, ep: int, etp: int
) -> Share:
    tensors = list(prefixed("layers.0", iter(layer.tensors(hidden, norm))))
    kv_heads = layer.attention.kv_heads if layer.attention else tp
    if lora is None:
        return _sum(tensors, tp, ep, etp, kv_heads)
    added = [a for t in tensors if is_target(t, lora) for a in adapters(t, lora.rank)]
    frozen = _sum(tensors, tp, ep, etp, kv_heads)
    trained = _sum(added, tp, ep, etp, tp)
    return Share(
        frozen.dense + trained.dense, frozen.expert + trained.expert, trained.dense, trained.expert
    )


@lru_cache(maxsize=4096)
def _of_ends(model: Model, tp: int, ep: int, etp: int, apart: bool) -> tuple[Share, Share]:
    tensors = model.tensors()
    before = [t for t in tensors if t.name.startswith("embed") or model.kind == "list"]
    after = [
        t for t in tensors
        if not t.name.startswith(("embed", "layers.")) and model.kind != "list"
    ]  # fmt: skip
    if apart and model.tied and model.head:
        after.extend(t for t in before if t.split == "vocab")
    return _sum(before, tp, ep, etp, tp), _sum(after, tp, ep, etp, tp)


def _sum(tensors: Iterable[Tensor], tp: int, ep: int, etp: int, kv_heads: int) -> Share:
    dense = expert = trained_dense = trained_expert = 0.0
    for tensor in tensors:
        if tensor.split == "expert":
            held = tensor.numel / (ep * etp)
            expert += held
            trained_expert += held * tensor.trained
            continue
        ways = tp if tensor.split in _CUT else 1
        if ".k_proj" in tensor.name or ".v_proj" in tensor.name:
            ways = min(ways, kv_heads)  # fewer heads than ranks: several ranks keep the same
        held = tensor.numel / ways
        dense += held
        trained_dense += held * tensor.trained
    return Share(dense, expert, trained_dense, trained_expert)
