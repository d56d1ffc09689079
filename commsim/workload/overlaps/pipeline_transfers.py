"""A pipeline's stages and the transfers between them, all ranks' streams in one program.

What `pipeline.play` reckons in arrays, as tasks: a stream for each stage, one for each direction of
each link. It lets a pipeline share NICs with other traffic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from commsim.errors import ScheduleError
from commsim.workload.overlap import Cost, Line, Overlap, Step
from commsim.workload.pipeline import order, pipeline
from commsim.workload.streams import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineTransfers(Overlap):
    """The step's pieces are the stages, one chunk each; activations: bytes of one transfer.

    schedule: of route "loop". split: the share of backward that is for the weights, where the
    schedule splits it.
    """

    names: ClassVar[tuple[str, ...]] = ("pipeline_transfers",)
    schedule: str = "1f1b"
    split: float = 0.5

    def tasks(self, step: Step, cost: Cost) -> list[Task]:
        """All works in an order in which each comes after what it waits for; the update."""
        stages = len(step.pieces)
        if pipeline(self.schedule).route != "loop":
            raise ScheduleError(f"pipeline_transfers: {self.schedule}: expected one chunk a stage")
        lines = [list(works)[::-1] for works in order(self.schedule, stages, step.micro_batches)]
        share = {"F": 0.0, "B": 1 - self.split, "W": self.split, "BW": 1.0}
        line = Line(cost)
        sent: dict[tuple[str, int, int], int] = {}  # (direction, to stage, micro-batch)
        while any(lines):
            for stage, works in enumerate(lines):
                while works:
                    work, batch = works[-1].kind, works[-1].micro_batch
                    way = {"F": "F", "W": "W"}.get(work, "B")
                    first = stage == (0 if way == "F" else stages - 1)
                    needs = () if first or way == "W" else ((way, stage, batch),)
                    if not all(need in sent for need in needs):
                        break
                    piece = step.pieces[stage]
                    kind = "forward" if way == "F" else "backward"
                    end = line.add(
                        Task(
                            name=f"{work} {batch}", kind=kind, stream=f"stage {stage}",
                            duration=piece.forward if way == "F" else piece.backward * share[work],
                            after=tuple(sent[need] for need in needs),
                        )
                    )  # fmt: skip
                    works.pop()
                    to = stage + 1 if way == "F" else stage - 1
                    if way != "W" and 0 <= to < stages:
                        sent[way, to, batch] = line.collective(
                            "send_recv", f"{work} {batch}", piece.activations, (end,),
                            stream=f"link {stage} to {to}",
                        )  # fmt: skip
        return line.tasks
