"""Where a training step goes: its parts, one after another."""

from __future__ import annotations

import altair as alt

from commsim.report.plots.style import (
    BLACK,
    BLUE,
    GREY,
    HEIGHT,
    TEXT,
    TIME_LABEL,
    VERMILION,
    WIDTH,
    Chart,
    data,
    heading,
)
from commsim.units import format_time
from commsim.workload.step import StepPrediction

WORK, MESSAGES, IDLE = "compute", "exposed communication", "waiting and overhead"
KINDS = {WORK: BLUE, MESSAGES: VERMILION, IDLE: GREY}
IDLES = ("bubble", "framework")


def step_waterfall(step: StepPrediction) -> Chart:
    """A bar for each part of the step, which begins where the one before ended; s."""
    rows, begun = [], 0.0
    for name, part in step.breakdown.items():
        if part <= 0:
            continue
        kind = MESSAGES if name.startswith("exposed") else IDLE if name in IDLES else WORK
        rows.append(
            {
                "part": name, "begin": begun, "end": begun + part, "kind": kind,
                "text": f"{format_time(part)} ({100 * part / step.duration:.1f} %)",
            }
        )  # fmt: skip
        begun += part
    low, high = step.interval
    whole = {
        "part": "step", "begin": 0.0, "end": step.duration, "low": low, "high": high,
        "text": f"{format_time(step.duration)}, 80 %: {format_time(low)} to {format_time(high)}",
    }  # fmt: skip
    order = [*(r["part"] for r in rows), "step"]
    down = alt.Y("part:N").sort([str(name) for name in order]).axis(title=None, ticks=False)
    across = alt.X("begin:Q").axis(title="time", labelExpr=TIME_LABEL, tickCount=10)
    scale = alt.Scale(domain=list(KINDS), range=list(KINDS.values()))
    base = alt.Chart(data(rows)).encode(y=down, tooltip=["part:N", "kind:N", "text:N"])
    bars = base.mark_bar().encode(
        x=across, x2="end:Q",
        color=alt.Color("kind:N", scale=scale, legend=alt.Legend(title=None, orient="bottom")),
    )  # fmt: skip
    total = alt.Chart(data([whole])).encode(y=down, tooltip=["part:N", "text:N"])
    words = [
        chart.mark_text(align="left", dx=6, color=TEXT).encode(x=alt.X(f"{end}:Q"), text="text:N")
        for chart, end in ((base, "end"), (total, "high"))
    ]
    return alt.layer(
        bars,
        total.mark_bar(color=BLACK, opacity=0.75).encode(x=across, x2="end:Q"),
        total.mark_rule(color=BLACK, strokeWidth=2).encode(x=alt.X("low:Q"), x2="high:Q"),
        *words,
    ).properties(
        width=1.6 * WIDTH, height=max(HEIGHT / 2, 26 * len(order)),
        title=heading(
            f"One step of {step.model.name} on {step.layout.world} x {step.cluster.gpu.name}",
            "what a rank of the busiest stage does; line: 80 % interval",
        ),
    )  # fmt: skip
