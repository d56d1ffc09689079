"""One all_reduce per parameter, all after backward: what a first loop over `parameters()` does.

Every parameter pays the latency of a collective of its own, and nothing is hidden.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from commsim.workload.overlap import Cost, Line, Overlap, Piece, Step
from commsim.workload.streams import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class PerParameter(Overlap):
    """overlapped: reduce each gradient as soon as it is there, as from a hook on it."""

    names: ClassVar[tuple[str, ...]] = ("per_parameter",)
    overlapped: bool = False

    def tasks(self, step: Step, cost: Cost) -> list[Task]:
        """Forward, backward, an all_reduce per parameter, the update."""
        line = Line(cost)
        line.without_exchange(step)
        line.forward(step)
        reduced: list[int] = []
        for piece in reversed(step.pieces):
            end = line.compute("backward", piece.name, piece.backward)
            if self.overlapped:
                reduced += _reduce(line, piece, end)
        if not self.overlapped:
            for piece in step.pieces:
                reduced += _reduce(line, piece, end)
        line.optimizer(step, reduced)
        return line.tasks


def _reduce(line: Line, piece: Piece, end: int) -> list[int]:
    return [line.collective("all_reduce", p.name, p.nbytes, (end,), (p,)) for p in piece.parameters]
