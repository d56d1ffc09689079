"""ZB-H1: 1F1B whose backwards are split; the weights' gradients fill what was a bubble.

Stage i puts a weight's gradient off until i more backwards are done, so that all stages hold as
much as the first one of 1F1B. With several chunks as torch's ScheduleInterleavedZeroBubble.
Source: Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024, arXiv:2401.10241, section 2.1.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from commsim.workload.works import Pipeline, Work, turns, warm_up


@dataclass(frozen=True, slots=True, kw_only=True)
class ZeroBubble(Pipeline):
    """Bubble of uniform stages: (p - 1) (F + B - W), a third of 1F1B's where F = B = W."""

    names: ClassVar[tuple[str, ...]] = ("zero_bubble", "zb_h1", "interleaved_zero_bubble")
    splits: ClassVar[bool] = True

    def works(self, stage: int, stages: int, micro_batches: int, chunks: int) -> Sequence[Work]:
        """Warm-up forwards; forward, backward and an older weight's gradient in turn; the rest."""
        forwards = [Work("F", *turn) for turn in turns(stages, micro_batches, chunks)]
        backwards = turns(stages, micro_batches, chunks, True)
        warm = warm_up(stage, stages, micro_batches, chunks)
        works = forwards[:warm]
        later = iter(forwards[warm:])
        put_off: deque[tuple[int, int]] = deque()
        for turn in backwards:
            works.extend(w for w in [next(later, None)] if w is not None)
            works.append(Work("B", *turn))
            put_off.append(turn)
            if len(put_off) > stage:
                works.append(Work("W", *put_off.popleft()))
        return works + [Work("W", *turn) for turn in put_off]
