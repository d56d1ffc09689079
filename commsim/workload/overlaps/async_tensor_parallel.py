"""Async tensor parallelism: a gather or a reduction in as many parts as ranks, beside the product.

A product on gathered activations begins with the part that is there already and goes on as the
others arrive; one whose result is reduced sends each part as it is done. Blocking, the whole
gather comes before the product and the whole reduction after it. Forward: all_gather, product,
reduce_scatter; backward the same for the gradients.
Sources: Wang et al., "Overlap Communication with Dependent Computation via Decomposition",
ASPLOS 2023, doi:10.1145/3567955.3567959; TransformerEngine's userbuffers; torch's async TP.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from commsim.errors import ScheduleError
from commsim.units import Seconds
from commsim.workload.overlap import Cost, Line, Overlap, Piece, Step
from commsim.workload.streams import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class AsyncTensorParallel(Overlap):
    """ranks: of the tensor-parallel group. parts: pieces that a product is cut into (None: ranks;
    1: blocking). slower: how much longer the parts of a product take together than the whole, for
    they fill the SMs less well."""

    names: ClassVar[tuple[str, ...]] = ("async_tensor_parallel", "async_tp")
    ranks: int = 2
    parts: int | None = None
    slower: float = 1.0

    def __post_init__(self) -> None:
        if self.ranks < 1 or (self.parts or 1) < 1 or self.slower < 1:
            raise ScheduleError(
                f"async_tensor_parallel: expected 1 or more of ranks, parts and slower, got "
                f"{self.ranks}, {self.parts} and {self.slower}"
            )

    def tasks(self, step: Step, cost: Cost) -> list[Task]:
        """Every piece of each micro-batch, forward then backward; the update."""
        line = Line(cost)
        last: tuple[int, ...] = ()
        for _ in range(step.micro_batches):
            for piece in step.pieces:
                last = self._piece(line, "forward", piece, piece.forward, last)
            for piece in reversed(step.pieces):
                last = self._piece(line, "backward", piece, piece.backward, last)
        line.optimizer(step, last)
        return line.tasks

    def _piece(
        self, line: Line, kind: str, piece: Piece, duration: Seconds, after: tuple[int, ...]
    ) -> tuple[int, ...]:
        """What the next piece waits for."""
        if not piece.activations or self.ranks == 1:
            return (line.compute(kind, piece.name, duration, after),)
        parts = self.parts or self.ranks
        if parts == 1:
            gather = line.collective("all_gather", piece.name, piece.activations, after)
            end = line.compute(kind, piece.name, duration, (gather,))
            return (line.collective("reduce_scatter", piece.name, piece.activations, (end,)),)
        each = duration * self.slower / parts
        part = -(-piece.activations // parts)
        arrived: tuple[int, ...] = after  # the first part is the rank's own
        ends = []
        for i in range(parts):
            name = f"{piece.name} part {i}"
            if i:
                arrived = (line.collective("send_recv", name, part, after, stream="gather"),)
            ends.append(line.compute(kind, name, each, arrived))
        sent = [
            line.collective("send_recv", f"{piece.name} part {i}", part, (end,), stream="scatter")
            for i, end in enumerate(ends[:-1])
        ]
        return (ends[-1], *sent[-1:])  # the last part is the rank's own
