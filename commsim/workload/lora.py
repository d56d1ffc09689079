"""Low-rank adapters: small trained matrices beside frozen ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from commsim.errors import ModelError
from commsim.workload.layer import Tensor

# What other frameworks call the layers that this package names as Llama does.
_ALIASES = {
    "query": ("q_proj",), "key": ("k_proj",), "value": ("v_proj",),
    "c_attn": ("qkv_proj",), "query_key_value": ("qkv_proj",), "Wqkv": ("qkv_proj",),
    "out_proj": ("o_proj",), "c_fc": ("up_proj",), "fc1": ("up_proj",), "fc2": ("down_proj",),
    "c_proj": ("o_proj", "down_proj"), "dense": ("o_proj",),
    "dense_h_to_4h": ("up_proj",), "dense_4h_to_h": ("down_proj",),
    "w1": ("gate_proj",), "w2": ("down_proj",), "w3": ("up_proj",),
}  # fmt: skip
ALL_LINEAR = "all-linear"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lora:
    """LoRA (Hu et al. 2021, arXiv:2106.09685): W x + B A x with A of rank x in, B of out x rank.

    targets: names of the linear layers it adapts, as PEFT's target_modules ("q_proj", "v_proj"), or
    "all-linear": every one but the head. All else is frozen. Raises ModelError.
    """

    rank: int
    targets: tuple[str, ...] = ("q_proj", "v_proj")

    def __post_init__(self) -> None:
        if not isinstance(self.rank, int) or isinstance(self.rank, bool) or self.rank < 1:
            raise ModelError([f"lora: rank: expected a whole number >= 1, got {self.rank!r}"])
        if not self.targets:
            raise ModelError(
                ['lora: targets: expected names of linear layers, such as "q_proj", got none']
            )


def adapted(tensors: Iterable[Tensor], lora: Lora) -> Iterator[Tensor]:
    """The tensors, frozen, each target followed by its trained A and B (as PEFT registers them)."""
    for tensor in tensors:
        yield replace(tensor, trained=False)
        if is_target(tensor, lora):
            yield from adapters(tensor, lora.rank)


def adapters(tensor: Tensor, rank: int) -> Iterator[Tensor]:
    """A and B of one weight; of each expert where it holds several."""
    *stack, outputs, inputs = tensor.shape
    experts = tensor.split == "expert"
    module = tensor.name.removesuffix(".weight")
    yield Tensor(
        name=f"{module}.lora_A.weight",
        shape=(*stack, rank, inputs),
        split="expert" if experts else "row" if tensor.split == "row" else "",
    )
    yield Tensor(
        name=f"{module}.lora_B.weight",
        shape=(*stack, outputs, rank),
        split="expert" if experts else "column" if tensor.split == "column" else "",
    )


def is_target(tensor: Tensor, lora: Lora) -> bool:
    """Is this the weight of a linear layer that LoRA adapts?"""
    module = _module(tensor)
    if module is None:
        return False
    if ALL_LINEAR in lora.targets:
        return True
    return any(
        module == name or module.endswith(f".{name}")
        for target in lora.targets
        for name in (target, *_ALIASES.get(target, ()))
    )


def _module(tensor: Tensor) -> str | None:
    """The name of the linear layer inside a transformer layer whose weight this is."""
    linear = tensor.name.endswith(".weight") and len(tensor.shape) > 1
    inside = tensor.name.startswith(("layers.", "mtp."))
    return tensor.name.removesuffix(".weight") if linear and inside else None


def check_targets(tensors: Iterable[Tensor], lora: Lora) -> None:
    """Raises ModelError for a target that no layer has."""
    candidates = [tensor for tensor in tensors if _module(tensor) is not None]
    if not candidates:
        raise ModelError(["lora: the model has no linear layer inside a transformer layer"])
    for target in lora.targets:
        alone = Lora(rank=lora.rank, targets=(target,))
        if not any(is_target(tensor, alone) for tensor in candidates):
            names = sorted({t.name.removesuffix(".weight").rpartition(".")[2] for t in candidates})
            raise ModelError(
                [f"lora: targets: no layer is called {target!r} (there are: {', '.join(names)})"]
            )
