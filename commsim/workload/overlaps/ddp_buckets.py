"""DistributedDataParallel: gradients in buckets, each reduced while backward goes on.

Buckets are reduced in one fixed order, one of which not all gradients are there holds up the
next. A communication hook may compress them.
Source: Li et al., "PyTorch Distributed", VLDB 2020, doi:10.14778/3415478.3415530;
torch/csrc/distributed/c10d/reducer.cpp.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from commsim.errors import ScheduleError
from commsim.units import Bytes, BytesPerSecond
from commsim.workload.buckets import BUCKET_CAP, FIRST_BUCKET, Bucket, torch_buckets
from commsim.workload.compression import Compression, Uncompressed
from commsim.workload.overlap import Cost, Line, Overlap, Step
from commsim.workload.streams import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class DdpBuckets(Overlap):
    """DDP's arguments, with its defaults.

    cap: bytes of a bucket (bucket_cap_mb; None: 25 MiB). first_cap: of the first one (None: 1 MiB
    where cap is None, else cap, as torch has it). gradient_as_bucket_view: gradients are views of
    the buckets, which saves the copies there and back. find_unused_parameters: buckets are never
    rebuilt, and a map of used parameters is reduced too. first_iteration: before buckets are
    rebuilt, one holds all. no_sync: without communication in all micro-batches but the last. hook:
    compresses buckets, for `ranks` of them. memory: bytes/s of HBM for copies and hooks.
    """

    names: ClassVar[tuple[str, ...]] = ("ddp_buckets", "ddp")
    cap: float | None = None
    first_cap: float | None = None
    gradient_as_bucket_view: bool = False
    find_unused_parameters: bool = False
    static_graph: bool = False
    first_iteration: bool = False
    no_sync: bool = True
    hook: Compression = field(default_factory=Uncompressed)
    ranks: int = 1
    memory: BytesPerSecond = float("inf")

    def buckets(self, step: Step) -> list[Bucket]:
        """The buckets in the order in which they are reduced."""
        cap = BUCKET_CAP if self.cap is None else self.cap
        first = FIRST_BUCKET if self.cap is None else self.cap
        return torch_buckets(
            step.parameters, cap, first if self.first_cap is None else self.first_cap,
            rebuilt=not self.first_iteration,
            find_unused=self.find_unused_parameters and not self.static_graph,
        )  # fmt: skip

    def tasks(self, step: Step, cost: Cost) -> list[Task]:
        """Forward; backward with the buckets' all_reduce beside it; what is left; the update."""
        names = [p.name for p in step.parameters]
        if len(set(names)) < len(names):
            raise ScheduleError("ddp_buckets: expected parameters with names of their own")
        line = Line(cost)
        if self.no_sync:
            line.without_exchange(step)
        for _ in range(1 if self.no_sync else step.micro_batches):
            self._synchronized(step, line)
        line.optimizer(step)
        return line.tasks

    def _synchronized(self, step: Step, line: Line) -> None:
        line.forward(step)
        waiting = self.buckets(step)[::-1]
        here: set[str] = set()
        reduced: list[tuple[Bucket, int]] = []
        last = 0
        for piece in reversed(step.pieces):
            last = line.compute("backward", piece.name, piece.backward)
            if not self.gradient_as_bucket_view and piece.parameters:
                nbytes = sum(p.nbytes for p in piece.parameters)
                last = line.compute("copy", piece.name, 2 * nbytes / self.memory)
            here |= {p.name for p in piece.parameters}
            while waiting and all(p.name in here for p in waiting[-1].parameters):
                bucket = waiting.pop()
                reduced.append((bucket, self._reduce(bucket, len(reduced), last, line)))
        if self.find_unused_parameters and not self.static_graph:
            used: Bytes = 4 * len(step.parameters)  # an int32 each
            end = line.collective("all_reduce", "used parameters", used, (last,))
            line.compute("copy", "used parameters", 0.0, (end,))
        for i, (bucket, end) in enumerate(reduced):
            copy = 0.0 if self.gradient_as_bucket_view else 2 * bucket.nbytes / self.memory
            line.compute("copy", f"bucket {i}", copy, (end,))

    def _reduce(self, bucket: Bucket, number: int, ready: int, line: Line) -> int:
        """The bucket's collectives; the last one's place."""
        name = f"bucket {number}"
        end, covers = ready, bucket.parameters
        for i, move in enumerate(self.hook.moves(bucket.parameters, self.ranks)):
            if move.traffic:
                kernel = Task(
                    name=name, kind="compress", stream="compute" if i == 0 else "hook",
                    duration=move.traffic / self.memory, after=(end,),
                )  # fmt: skip
                end = line.add(kernel)
            if move.operation:
                end = line.collective(move.operation, name, move.nbytes, (end,), covers)
                covers = ()
        return end
