"""What is trained or served: layers, their parameters and their FLOPs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from commsim.workload.layer import Attention, Experts, FeedForward, Layer, Tensor
from commsim.workload.lora import Lora
from commsim.workload.parts import Part

__all__ = ["Attention", "Experts", "FeedForward", "Layer", "Lora", "Model", "Part", "Tensor"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model's shape.

    kind: "decoder", "encoder", or "list" (its `parts`, for what is no transformer). stacks: layers
    in order, each with how many of it follow one another. tied: the head is the embedding.
    positions: learned position embeddings (0: rotary or none). norm: "rms" (a scale), "layer" (a
    scale and a shift) or "none". mtp: multi-token-prediction layers (DeepSeek-AI 2024,
    arXiv:2412.19437, section 2.2): each is a layer and a projection from 2 x hidden.
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
    head: bool = True
    max_positions: int = 0
    parts: tuple[Part, ...] = ()
    lora: Lora | None = None

    @property
    def n_layers(self) -> int:
        """Layers of the transformer, without multi-token prediction."""
        return sum(count for _, count in self.stacks)

    @property
    def layers(self) -> Iterator[Layer]:
        """Every layer, in order."""
        for layer, count in self.stacks:
            for _ in range(count):
                yield layer
