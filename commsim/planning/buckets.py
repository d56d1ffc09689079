"""What a step takes with gradients in buckets of another size than the framework's own.

Small buckets start the exchange early and leave little of it after the last gradient; large ones
send faster. The step's exchange is worked out anew (workload/exchange.py); nothing else changes.
"""

from __future__ import annotations

from dataclasses import replace

from commsim.workload import bucketing, exchange
from commsim.workload.layout import Layout
from commsim.workload.step import StepPrediction, setting
from commsim.workload.trust import tags_of

WORTH = 0.005
"""Share of a step below which a setting is not worth its risk."""
FACTORS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 2.0, 4.0, 8.0)
"""Of the framework's own size, those that are tried."""


def sizes(layout: Layout) -> tuple[float, ...]:
    """Elements of the buckets that are worth a try; none where the framework has none to set, or
    nothing is exchanged in buckets."""
    own = bucketing.bucket_size(layout, first=True)
    if layout.zero_stage == 3 or layout.dp * layout.cp == 1 or not 0 < own < float("inf"):
        return ()
    # DeepSpeed keeps its buckets beside the gradients: larger ones would take more memory.
    most = 1.0 if layout.framework == "deepspeed" else float("inf")
    return tuple(float(round(own * factor)) for factor in FACTORS if factor <= most)


def best(step: StepPrediction, worth: float = WORTH) -> float | None:
    """Elements of the buckets with which a step is shortest; None: the framework's own, which no
    other beats by that share."""
    found, least = None, step.duration * (1 - worth)
    if step.exchange < worth * step.duration:
        return found
    for size in sizes(step.layout):
        took = with_size(step, size).duration
        if took < least:
            found, least = size, took
    return found


def with_size(step: StepPrediction, size: float | None) -> StepPrediction:
    """The step with buckets of so many elements (None: as it is)."""
    if size is None:
        return step
    model, layout, plan = step.model, step.layout, step.pipeline
    s = setting(model, step.cluster, layout, step.profile.values(tags_of(step.cluster, layout)))
    made = {
        id(c): exchange.once(c.share, s, layout, c.layers, c.pieces(model, layout, size))
        for row in step.grid
        for c in row
    }
    reduced = late = 0.0
    for i, row in enumerate(step.grid):
        last = sorted(
            ((float(plan.last_backward[i, j]), c.backward, c.layers, made[id(c)])
             for j, c in enumerate(row)),
            key=lambda x: x[0],
        )  # fmt: skip
        reduced = max(reduced, exchange.after(last, layout.overlap_grad_reduce, s))
        first = [(float(plan.first_forward[i, j]), c.forward, c.layers, made[id(c)])
                 for j, c in enumerate(row)]  # fmt: skip
        late = max(late, exchange.before(first, layout.overlap_param_gather, s))
    shown = max(0.0, reduced - plan.duration) + late
    return replace(
        step, duration=step.duration - step.exchange + shown, exchange=shown,
        exchanges=tuple(made[id(c)] for c in step.grid[step.busiest]),
    )  # fmt: skip
