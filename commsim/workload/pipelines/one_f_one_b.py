"""1F1B: as soon as a gradient can be there, one forward, one backward; interleaved with chunks > 1.

A stage holds at most p - i micro-batches, however many there are. With v chunks a stage the bubble
shrinks v times, for v times the transfers. As Megatron's schedules and torch's Schedule1F1B and
ScheduleInterleaved1F1B.
Sources: Narayanan et al., "PipeDream", SOSP 2019, doi:10.1145/3341301.3359646; the same,
"Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", SC'21,
doi:10.1145/3458817.3476209.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from commsim.workload.works import Pipeline, Work, turns, warm_up


@dataclass(frozen=True, slots=True, kw_only=True)
class OneFOneB(Pipeline):
    """Bubble of uniform stages: (p - 1) (F + B) / v, of m (F + B) work."""

    names: ClassVar[tuple[str, ...]] = ("1f1b", "interleaved", "interleaved_1f1b")

    def works(self, stage: int, stages: int, micro_batches: int, chunks: int) -> Sequence[Work]:
        """Warm-up forwards, pairs of a forward and a backward, and the backwards left over."""
        forwards = [Work("F", *turn) for turn in turns(stages, micro_batches, chunks)]
        backwards = [Work("BW", *turn) for turn in turns(stages, micro_batches, chunks, True)]
        warm = warm_up(stage, stages, micro_batches, chunks)
        works = forwards[:warm]
        for pair in zip(forwards[warm:], backwards, strict=False):
            works += pair
        return works + backwards[len(forwards) - warm :]
