"""Models that are a list of parts: convolutional networks, or any layers of one's own."""

from __future__ import annotations

from dataclasses import dataclass

from commsim.workload.layer import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One step of a forward pass, for one sample.

    flops: of the forward pass, a multiply-add counting 2. activations: elements kept for backward.
    moved: elements that the forward pass reads and writes besides parameters.
    """

    name: str
    tensors: tuple[Tensor, ...] = ()
    flops: float = 0.0
    activations: int = 0
    moved: int = 0
