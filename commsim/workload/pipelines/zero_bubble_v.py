"""ZB-V: each stage holds a part of the model's first half and one of its second, in reverse.

A micro-batch goes down the stages and back up, so that its first backward is where its first
forward was: no stage waits once it has begun where F = B = W, with no more memory than 1F1B's
first stage. As torch's ScheduleZBVZeroBubble.
Source: Qi et al., "Pipeline Parallelism with Controllable Memory", NeurIPS 2024, arXiv:2405.15362;
Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024, arXiv:2401.10241, section 6.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from commsim.errors import ScheduleError
from commsim.workload.works import Pipeline, Work


@dataclass(frozen=True, slots=True, kw_only=True)
class ZeroBubbleV(Pipeline):
    """Bubble of uniform stages with F = B = W: none, but the p - 1 forwards before the last stage
    begins."""

    names: ClassVar[tuple[str, ...]] = ("zero_bubble_v", "zbv", "zb_v")
    splits: ClassVar[bool] = True
    route: str = "v"

    def works(self, stage: int, stages: int, micro_batches: int, chunks: int) -> Sequence[Work]:
        """As many micro-batches as fill the pipeline, those that there are not left out."""
        if chunks != 2:
            raise ScheduleError(f"zero_bubble_v: expected 2 chunks a stage, got {chunks}")
        planned = _works(stage, stages, max(2 * stages - 1, micro_batches))
        return [work for work in planned if work.micro_batch < micro_batches]


def _works(stage: int, stages: int, micro_batches: int) -> Iterator[Work]:
    count = dict.fromkeys([(kind, chunk) for kind in "FBW" for chunk in (0, 1)], 0)

    def take(kinds: str, chunk: int) -> Iterator[Work]:
        for kind in kinds:
            yield Work(kind, chunk, count[kind, chunk])
            count[kind, chunk] += 1

    for _ in range(2 * (stages - stage) - 1):
        yield from take("F", 0)
    for _ in range(stage):
        yield from take("F", 1)
        yield from take("F", 0)
    for _ in range(stages - stage):
        yield from take("FBW", 1)
    while count["F", 1] < count["F", 0] or count["F", 0] < micro_batches:
        if count["F", 0] < micro_batches:
            yield from take("F", 0)
        yield from take("BW", 0)
        yield from take("FBW", 1)
    for _ in range(stage):
        yield from take("B", 0)
        yield from take("B", 1)
    for _ in range(stages - stage):
        yield from take("BW", 0)
    for chunk in (1, 0):
        while count["W", chunk] < count["B", chunk]:
            yield from take("W", chunk)
