"""Megatron's distributed optimizer: gradients reduced to shards, updated, parameters gathered.

With overlap_grad_reduce each bucket's reduce_scatter is issued when its last gradient is there;
with overlap_param_gather each bucket's all_gather runs beside the next step's forward. A step is
shown from its forward on, so it begins with the gathers of the update before it.
Source: megatron/core/distributed (distributed_data_parallel.py, param_and_grad_buffer.py);
ZeRO stage 1: Rajbhandari et al., SC'20, arXiv:1910.02054.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from commsim.collectives.collective import DTYPES
from commsim.units import Bytes
from commsim.workload.buckets import Bucket, megatron_buckets
from commsim.workload.overlap import Cost, Line, Overlap, Step
from commsim.workload.streams import Task

LEAST, PER_RANK = 40_000_000, 1_000_000  # elements of a bucket: the larger of it and so many a rank


@dataclass(frozen=True, slots=True, kw_only=True)
class DistributedOptimizer(Overlap):
    """Megatron's flags. ranks: of the data-parallel group, on which the size of buckets depends.

    bucket_size: elements (None: the larger of 40,000,000 and 1,000,000 a rank); without
    overlap_grad_reduce, or where bucketing is off (pipeline stages after the first), one bucket.
    parameter_dtype: as gathered (None: as the gradients).
    """

    names: ClassVar[tuple[str, ...]] = ("distributed_optimizer", "megatron")
    ranks: int = 1
    overlap_grad_reduce: bool = True
    overlap_param_gather: bool = True
    bucketing: bool = True
    bucket_size: int | None = None
    parameter_dtype: str | None = None

    def buckets(self, step: Step) -> list[Bucket]:
        """The buckets in the order in which they are reduced."""
        size = float(self.bucket_size or max(LEAST, PER_RANK * self.ranks))
        if not (self.overlap_grad_reduce and self.bucketing):
            size = float("inf")
        return megatron_buckets(step.parameters, size)

    def tasks(self, step: Step, cost: Cost) -> list[Task]:
        """Gathers and forward; further micro-batches; backward and reductions; the update."""
        line = Line(cost)
        buckets = self.buckets(step)
        if self.overlap_param_gather:
            self._first_forward(step, line, buckets[::-1])
        else:
            line.forward(step)
        for _ in range(step.micro_batches - 1):
            line.backward(step)
            line.forward(step)
        reduced = self._last_backward(step, line, buckets)
        update = line.optimizer(step, reduced)
        if not self.overlap_param_gather:
            for i, bucket in enumerate(buckets[::-1]):
                self._gather(line, bucket, i, (update,))
        return line.tasks

    def _first_forward(self, step: Step, line: Line, buckets: list[Bucket]) -> None:
        """A bucket's gather is issued where forward first needs the one before it."""
        home = {p.name: i for i, bucket in enumerate(buckets) for p in bucket.parameters}
        gathers: list[int] = []
        before: tuple[int, ...] = ()
        for piece in step.pieces:
            needed = sorted({home[p.name] for p in piece.parameters})
            issued = needed[-1] + 2 if needed else 1  # those it needs, and the next
            for i in range(len(gathers), min(issued, len(buckets))):
                gathers.append(self._gather(line, buckets[i], i, before if i else ()))
            end = line.compute("forward", piece.name, piece.forward, [gathers[i] for i in needed])
            before = (end,)

    def _last_backward(self, step: Step, line: Line, buckets: list[Bucket]) -> list[int]:
        """A bucket's reduction is issued when its last gradient is there."""
        missing = [{p.name for p in bucket.parameters} for bucket in buckets]
        reduced: list[int] = []
        for piece in reversed(step.pieces):
            end = line.compute("backward", piece.name, piece.backward)
            here = {p.name for p in piece.parameters}
            for i, names in enumerate(missing):
                if names and not (names := names - here):
                    reduced.append(
                        line.collective(
                            "reduce_scatter", f"bucket {i}", buckets[i].nbytes, (end,),
                            buckets[i].parameters,
                        )
                    )  # fmt: skip
                missing[i] = names
        return reduced

    def _gather(self, line: Line, bucket: Bucket, number: int, after: tuple[int, ...]) -> int:
        dtype = self.parameter_dtype or bucket.dtype
        nbytes: Bytes = bucket.numel * DTYPES[dtype]
        return line.collective("all_gather", f"bucket {number}", nbytes, after)
