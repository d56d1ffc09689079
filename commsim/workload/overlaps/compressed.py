"""All gradients compressed and exchanged at once after backward, as 1-bit optimizers do.

Source: Tang et al., "1-bit Adam", ICML 2021, arXiv:2102.02888. Within DDP's buckets instead: its
communication hooks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from commsim.units import BytesPerSecond
from commsim.workload.compression import Compression, Quantized
from commsim.workload.overlap import Cost, Line, Overlap, Step
from commsim.workload.streams import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Compressed(Overlap):
    """compression: the form in which they travel, on a group of `ranks`. memory: bytes/s of HBM."""

    names: ClassVar[tuple[str, ...]] = ("compressed", "one_bit_adam")
    compression: Compression = field(default_factory=Quantized)
    ranks: int = 1
    memory: BytesPerSecond = float("inf")

    def tasks(self, step: Step, cost: Cost) -> list[Task]:
        """Forward, backward, encode, exchange, decode, the update."""
        line = Line(cost)
        line.without_exchange(step)
        line.forward(step)
        line.backward(step)
        end = len(line.tasks) - 1
        covers = step.parameters
        for move in self.compression.moves(step.parameters, self.ranks):
            if move.traffic:
                end = line.compute("compress", "gradients", move.traffic / self.memory, (end,))
            if move.operation:
                end = line.collective(move.operation, "gradients", move.nbytes, (end,), covers)
                covers = ()
        line.optimizer(step, (end,))
        return line.tasks
