"""One all_reduce of all gradients after backward: bandwidth is used well, and nothing is hidden.

A flat buffer per dtype, since a collective has one; gradients are copied in and out unless they
are views of the buffer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from commsim.units import BytesPerSecond
from commsim.workload.buckets import fill
from commsim.workload.overlap import Cost, Line, Overlap, Step
from commsim.workload.streams import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Fused(Overlap):
    """memory: bytes/s of HBM at which gradients are copied (inf: they are views)."""

    names: ClassVar[tuple[str, ...]] = ("fused",)
    memory: BytesPerSecond = float("inf")

    def tasks(self, step: Step, cost: Cost) -> list[Task]:
        """Forward, backward, an all_reduce per dtype, the update."""
        line = Line(cost)
        line.without_exchange(step)
        line.forward(step)
        line.backward(step)
        back = []
        for bucket in fill(step.parameters, (float("inf"),)):
            copy = 2 * bucket.nbytes / self.memory  # read and written
            filled = line.compute("copy", bucket.dtype, copy)
            reduced = line.collective(
                "all_reduce", bucket.dtype, bucket.nbytes, (filled,), bucket.parameters
            )
            back.append((bucket, copy, reduced))
        for bucket, copy, reduced in back:
            line.compute("copy", bucket.dtype, copy, (reduced,))
        line.optimizer(step)
        return line.tasks
