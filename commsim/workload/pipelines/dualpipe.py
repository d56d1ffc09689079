"""DualPipe: two halves of the batch enter at the two ends; each stage holds two parts of the model.

Forwards of one half run with backwards of the other, which hides their transfers; weights'
gradients fill the rest. Costs twice the parameters. An even number of stages, at least two
micro-batches a stage.
Source: DeepSeek-AI, "DeepSeek-V3 Technical Report", arXiv:2412.19437, section 3.2.1 and table 2;
the eight phases as in its published code (github.com/deepseek-ai/DualPipe).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from commsim.errors import ScheduleError
from commsim.workload.works import Pipeline, Work


@dataclass(frozen=True, slots=True, kw_only=True)
class DualPipe(Pipeline):
    """Bubble of uniform stages: (p/2 - 1) (F + 2 B - 2 W), B and W being the two parts of backward
    (the report's F&B + B - 3W, whose B is the whole of it)."""

    names: ClassVar[tuple[str, ...]] = ("dualpipe",)
    splits: ClassVar[bool] = True
    route: str = "both"

    def period(self, stages: int) -> int:
        """As many micro-batches as there are stages, from either end."""
        return 2 * stages

    def works(self, stage: int, stages: int, micro_batches: int, chunks: int) -> Sequence[Work]:
        """The eight phases of one stage. `near` is the half that enters at its end of the pipe."""
        if stages % 2 or micro_batches % 2 or micro_batches < 2 * stages or chunks != 2:
            raise ScheduleError(
                f"dualpipe: expected an even number of stages, 2 chunks on each and an even "
                f"number of micro-batches, at least 2 a stage; got {stages} stages, {chunks} "
                f"chunks, {micro_batches} micro-batches"
            )
        half = stages // 2
        depth = min(stage, stages - 1 - stage)
        line = _Line(first=int(stage >= half), micro_batches=micro_batches)
        for _ in range(2 * (half - depth - 1)):
            line.forward(0)
        for _ in range(depth + 1):
            line.forward(0)
            line.forward(1)
        for _ in range(half - depth - 1):
            line.backward(1, split=True)
            line.weights()
            line.forward(1)
        for i in range(micro_batches // 2 - stages + depth + 1):
            line.forward(0)
            line.backward(1, joined=i > 0 or depth < half - 1)
            line.forward(1)
            line.backward(0, joined=True)
        for _ in range(half - depth - 1):
            line.backward(1)
            line.forward(1)
            line.backward(0, joined=True)
        split = False
        for i in range(depth + 1):
            split |= i == (depth + 1) // 2 and depth % 2 == 1
            line.backward(1, split)
            split |= i == (depth + 1) // 2 and depth % 2 == 0
            line.backward(0, split)
        for _ in range(half - depth - 1):
            line.weights()
            line.backward(0, split=True)
        while line.put_off:
            line.weights()
        return line.works


class _Line:
    """One stage's works as they are written down; way 0 is the half that enters at its end."""

    def __init__(self, first: int, micro_batches: int) -> None:
        self.first = first
        self.works: list[Work] = []
        self.put_off: deque[Work] = deque()
        half = micro_batches // 2
        self._forwards = [iter(range(c * half, (c + 1) * half)) for c in range(2)]
        self._backwards = [iter(range(c * half, (c + 1) * half)) for c in range(2)]

    def forward(self, way: int) -> None:
        chunk = way ^ self.first
        self.works.append(Work("F", chunk, next(self._forwards[chunk])))

    def backward(self, way: int, split: bool = False, joined: bool = False) -> None:
        chunk = way ^ self.first
        work = Work("B" if split else "BW", chunk, next(self._backwards[chunk]), joined)
        self.works.append(work)
        if split:
            self.put_off.append(work)

    def weights(self) -> None:
        self.works.append(self.put_off.popleft()._replace(kind="W"))
