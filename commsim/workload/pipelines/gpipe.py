"""GPipe: all forwards, then all backwards; with several chunks, breadth first.

The simplest, and the worst in memory: every micro-batch is in flight at once. As torch's
ScheduleGPipe and ScheduleLoopedBFS.
Sources: Huang et al., "GPipe", NeurIPS 2019, arXiv:1811.06965; Lamy-Poirier, "Breadth-First
Pipeline Parallelism", MLSys 2023, arXiv:2211.05953.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from commsim.workload.works import Pipeline, Work


@dataclass(frozen=True, slots=True, kw_only=True)
class GPipe(Pipeline):
    """Bubble of uniform stages: (p - 1) (F + B), of m (F + B) work."""

    names: ClassVar[tuple[str, ...]] = ("gpipe", "looped_bfs")

    def works(self, stage: int, stages: int, micro_batches: int, chunks: int) -> Sequence[Work]:
        """All micro-batches through each chunk in turn, then back through the chunks reversed."""
        batches = range(micro_batches)
        return [Work("F", chunk, b) for chunk in range(chunks) for b in batches] + [
            Work("BW", chunk, b) for chunk in reversed(range(chunks)) for b in batches
        ]

    def period(self, stages: int) -> int:
        """0: forwards and backwards never alternate."""
        return 0
