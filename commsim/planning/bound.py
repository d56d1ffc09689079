"""A time that no step can beat: all that a layout computes and cannot hide, without the exchange.

    bound = max over stages (fill + micro-batches x busy) + the framework's own time

busy: forward and backward of a stage's chunks, with their messages of tensor, context and expert
parallelism, exactly as the step has them. fill: forward and backward of the first chunk of every
stage before: what must be done before the stage's first work and after its last (none with
schedules that split the backward pass or run from both ends). Left out, so that the bound stays
below: transfers between stages, exchange of gradients and parameters, the optimizer. All of them
are >= 0: a layout whose bound is above a known step is slower than that step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from commsim.topology.cluster import Cluster
from commsim.units import Seconds
from commsim.workload.chunk import ChunkCost, chunk_cost, kinds
from commsim.workload.layout import Layout
from commsim.workload.model import Model
from commsim.workload.passes import Setting
from commsim.workload.pipeline import pipeline
from commsim.workload.stages import Chunk, stages
from commsim.workload.step import setting

UNSHARDED = 2
"""The highest zero_stage at which no message of a pass depends on the replicas."""

Made = dict[object, ChunkCost]


class Costs:
    """Costs of chunks under the layouts of one model on one cluster, each worked out once.

    They depend on tp, cp, ep, etp, micro-batch, recompute, the overlap of tensor-parallel messages
    and whether the schedule splits the backward pass alone, as long as those dimensions number the
    ranks fastest.
    """

    def __init__(self, model: Model, cluster: Cluster, values: Mapping[str, float]) -> None:
        self.model, self.cluster, self.values = model, cluster, values
        self._made: dict[object, tuple[Setting, Made, dict[Chunk, Seconds]]] = {}

    def made(self, layout: Layout) -> Made | None:
        """What `step_with` may take as known; None where it depends on more."""
        if layout.zero_stage > UNSHARDED or not layout.order.startswith("tp-cp-ep"):
            return None
        return self._of(layout)[1]

    def bound(self, layout: Layout) -> Seconds:
        """What a step under this layout takes at least, s."""
        s, made, known = self._of(layout)
        plain = replace(layout, zero_stage=0) if layout.zero_stage > UNSHARDED else layout
        schedule = pipeline(layout.schedule)
        in_turn = not schedule.splits and schedule.route != "both"
        least = fill = 0.0
        for row in _alike(
            self.model, layout.pp, layout.interleave, layout.schedule, layout.framework
        ):
            busy = 0.0
            for chunk in row:
                took = known.get(chunk)
                if took is None:
                    cost = chunk_cost(self.model, plain, s, chunk, made)
                    took = known[chunk] = cost.forward.total + cost.backward.total
                busy += took
            least = max(least, fill + layout.micro_batches * busy)
            if in_turn:
                fill += known[row[0]]
        return least + self.values["step"]

    def _of(self, layout: Layout) -> tuple[Setting, Made, dict[Chunk, Seconds]]:
        key = (
            layout.tp, layout.cp, layout.ep, layout.etp, layout.micro_batch, layout.recompute,
            layout.tp_comm_overlap, layout.sequence_parallel, layout.pp > 1, layout.order,
        )  # fmt: skip
        found = self._made.get(key)
        if found is None:
            s = setting(self.model, self.cluster, layout, self.values)
            found = self._made[key] = (s, {}, {})
        return found


@lru_cache(maxsize=4096)
def _alike(
    model: Model, pp: int, interleave: int, schedule: str, framework: str
) -> tuple[tuple[Chunk, ...], ...]:
    """The chunks of every stage, each as the first one that holds the same."""
    layout = Layout(pp=pp, interleave=interleave, schedule=schedule, framework=framework)
    first: dict[object, Chunk] = {}
    return tuple(
        tuple(
            first.setdefault(
                (kinds(model, chunk.first, chunk.stop), chunk.embedding, chunk.head), chunk
            )
            for chunk in row
        )
        for row in stages(model, layout)
    )
