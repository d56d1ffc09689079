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
from dataclasses import dataclass, replace
from functools import lru_cache

from commsim.topology.cluster import Cluster
from commsim.units import Seconds
from commsim.workload.chunk import ChunkCost, chunk_cost, kinds
from commsim.workload.frameworks import framework
from commsim.workload.layer import Layer
from commsim.workload.layout import Layout
from commsim.workload.layouts.stages import Chunk, stages
from commsim.workload.model import Model
from commsim.workload.pipeline import pipeline
from commsim.workload.step import setting

UNSHARDED = 2
"""The highest zero_stage at which no message of a pass depends on the replicas."""
ROUNDING = 1 - 1e-9
"""Sums of the same numbers in another order differ by less."""

Made = dict[object, ChunkCost]


@dataclass(frozen=True, slots=True)
class Known:
    """What is worked out of one micro-batch: the costs of chunks that steps asked for; s, forward
    and backward, of each kind of layer (by the first that is one), of the embedding, of the head;
    and of chunks."""

    made: Made
    layers: dict[Layer, Seconds]
    embedding: Seconds
    head: Seconds
    chunks: dict[Chunk, Seconds]


class Costs:
    """Costs under the layouts of one model on one cluster, each worked out once.

    They depend on tp, cp, ep, etp, micro-batch, recompute, the overlap of tensor-parallel messages
    and what the framework does alone, as long as those dimensions number the ranks fastest.
    """

    def __init__(self, model: Model, cluster: Cluster, values: Mapping[str, float]) -> None:
        self.model, self.cluster, self.values = model, cluster, values
        self._known: dict[object, Known] = {}

    def made(self, layout: Layout) -> Made | None:
        """What `step_with` may take as known; None where it depends on more."""
        if layout.zero_stage > UNSHARDED or not layout.order.startswith("tp-cp-ep"):
            return None
        return self._of(layout).made

    def bound(self, layout: Layout) -> Seconds:
        """What a step under this layout takes at least, s."""
        known = self._of(layout)
        schedule = pipeline(layout.schedule)
        in_turn = not schedule.splits and schedule.route != "both"
        least = fill = 0.0
        for row in _alike(
            self.model, layout.pp, layout.interleave, layout.schedule, layout.framework
        ):
            busy = sum(self._took(known, chunk) for chunk in row)
            least = max(least, fill + layout.micro_batches * busy)
            if in_turn:
                fill += self._took(known, row[0])
        return (least + self.values["step"]) * ROUNDING

    def _took(self, known: Known, chunk: Chunk) -> Seconds:
        took = known.chunks.get(chunk)
        if took is None:
            took = chunk.embedding * known.embedding + chunk.head * known.head
            for layer, count in kinds(self.model, chunk.first, chunk.stop):
                took += count * known.layers[layer]
            known.chunks[chunk] = took
        return took

    def _of(self, layout: Layout) -> Known:
        key = (
            layout.tp, layout.cp, layout.ep, layout.etp, layout.micro_batch, layout.recompute,
            layout.tp_comm_overlap, layout.sequence_parallel, layout.pp > 1, layout.order,
            framework(layout),
        )  # fmt: skip
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._worked_out(layout)
        return found

    def _worked_out(self, layout: Layout) -> Known:
        s = setting(self.model, self.cluster, layout, self.values)
        plain = replace(layout, zero_stage=0)

        def took(chunk: Chunk) -> Seconds:
            cost = chunk_cost(self.model, plain, s, chunk, {})
            return cost.forward.total + cost.backward.total

        layers: dict[Layer, Seconds] = {}
        at = 0
        for layer, count in self.model.stacks:
            if layer not in layers:
                layers[layer] = took(Chunk(at, at + 1))
            at += count
        last = self.model.n_layers
        return Known(
            made={}, layers=layers, chunks={},
            embedding=took(Chunk(0, 0, embedding=True)), head=took(Chunk(last, last, head=True)),
        )  # fmt: skip


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
