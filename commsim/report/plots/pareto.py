"""Layouts of a plan: time against memory, and the front that no other beats in both."""

from __future__ import annotations

from typing import Any

import altair as alt

from commsim.planning.plans import Plans
from commsim.report.layouts import layout_text
from commsim.report.plots.style import (
    BLUE,
    GREEN,
    GREY,
    HEIGHT,
    VERMILION,
    WIDTH,
    Chart,
    data,
    heading,
    times,
)
from commsim.units import GIB, format_size, format_time

BEST, TIED, OTHER, FRONT = "best", "tied with the best", "ranked", "on the front"
KINDS = {BEST: VERMILION, TIED: BLUE, OTHER: GREY, FRONT: GREEN}


def pareto(plans: Plans) -> Chart:
    """Time of a step (s) against bytes on the fullest GPU for every plan; lower left is better."""
    rows: list[dict[str, Any]] = []
    drawn_last = [*((p, True) for p in plans.front), *((p, False) for p in reversed(plans))]
    for p, on_front in drawn_last:
        kind = BEST if p.place == 1 else TIED if p.tie else OTHER
        low, high = p.step.interval
        rows.append(
            {
                "time": p.duration, "low": low, "high": high, "front": on_front,
                "needed": p.step.memory.worst.needed / GIB, "kind": FRONT if on_front else kind,
                "layout": layout_text(p.layout), "time_text": format_time(p.duration),
                "memory": format_size(int(p.step.memory.worst.needed)),
            }
        )  # fmt: skip
    capacity = plans.best.step.memory.capacity / GIB
    across = alt.X("time:Q", **times("time of a step", [r["time"] for r in rows]))
    upwards = alt.Y("needed:Q").axis(title="memory on the fullest GPU (GiB)")
    base = alt.Chart(data(rows)).encode(
        x=across, y=upwards,
        tooltip=["layout:N", alt.Tooltip("time_text:N", title="time"), "memory:N", "kind:N"],
    )  # fmt: skip
    front = base.transform_filter("datum.front")
    scale = alt.Scale(domain=list(KINDS), range=list(KINDS.values()))
    marks = base.mark_point(filled=True, opacity=0.9).encode(
        color=alt.Color("kind:N", scale=scale, legend=alt.Legend(title=None)),
        size=alt.condition(f"datum.kind == '{BEST}'", alt.value(190), alt.value(60)),
        shape=alt.Shape(
            "kind:N",
            scale=alt.Scale(domain=list(KINDS), range=["diamond", "circle", "circle", "square"]),
            legend=alt.Legend(title=None),
        ),
    )
    limit = alt.Chart(data([{"needed": capacity, "text": "capacity of a GPU"}]))
    return alt.layer(
        limit.mark_rule(strokeDash=[5, 4], color=GREY).encode(y=upwards),
        limit.mark_text(align="left", baseline="bottom", dy=-3, color=GREY).encode(
            x=alt.value(4), y=upwards, text="text:N"
        ),
        front.mark_line(color=GREEN, interpolate="step-after", strokeWidth=1.5),
        marks,
    ).properties(
        width=1.5 * WIDTH, height=1.2 * HEIGHT,
        title=heading(
            f"Layouts of {plans.model.name} on {plans.cluster.n_ranks} GPUs",
            "line: not beaten in both time and memory",
        ),
    )  # fmt: skip
