"""Where a training step, or a phase of serving, goes: its parts, one after another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
    together,
)
from commsim.units import Seconds, format_time
from commsim.workload.inference import InferencePrediction
from commsim.workload.step import StepPrediction

WORK, MESSAGES, IDLE = "compute", "exposed communication", "waiting and overhead"
KINDS = {WORK: BLUE, MESSAGES: VERMILION, IDLE: GREY}
IDLES = ("bubble", "framework")


def step_waterfall(step: StepPrediction) -> Chart:
    """A bar for each part of the step, which begins where the one before ended; s."""
    title = f"One step of {step.model.name} on {step.layout.world} x {step.cluster.gpu.name}"
    note = "what a rank of the busiest stage does; line: 80 % interval"
    return _waterfall(step.breakdown, "step", title, note, step.interval)


def serving_waterfall(served: InferencePrediction) -> Chart:
    """The parts of the time to first token, and of the time per output token; s."""
    where = f"{served.model.name} on {served.layout.world} x {served.cluster.gpu.name}"
    batch = f"{served.batch} sequence{'s' * (served.batch > 1)}"
    return together(
        _waterfall(
            served.prefill.to_dict()["breakdown_s"], "first token", f"First token of {where}",
            f"prompts are read: {batch} of {served.prompt} tokens",
        ),
        _waterfall(
            served.decode.to_dict()["breakdown_s"], "next token", f"Every other token of {where}",
            f"a token is written for each of {batch}, {served.context} tokens long",
        ),
    )  # fmt: skip


def _waterfall(
    breakdown: Mapping[str, Seconds], whole: str, title: str, note: str,
    interval: tuple[Seconds, Seconds] | None = None,
) -> Chart:  # fmt: skip
    """Parts, then the whole with its interval if it has one."""
    duration = sum(breakdown.values())
    rows, begun = [], 0.0
    for name, part in breakdown.items():
        if part <= 0:
            continue
        kind = MESSAGES if name.startswith("exposed") else IDLE if name in IDLES else WORK
        rows.append(
            {
                "part": name, "begin": begun, "end": begun + part, "kind": kind,
                "text": f"{format_time(part)} ({100 * part / duration:.1f} %)",
            }
        )  # fmt: skip
        begun += part
    low, high = interval or (duration, duration)
    text = format_time(duration)
    if interval:
        text += f", 80 %: {format_time(low)} to {format_time(high)}"
    sum_: dict[str, Any] = {
        "part": whole, "begin": 0.0, "end": duration, "low": low, "high": high, "text": text,
    }  # fmt: skip
    order = [*(str(r["part"]) for r in rows), whole]
    down = alt.Y("part:N").sort(order).axis(title=None, ticks=False)
    across = alt.X("begin:Q").axis(title="time", labelExpr=TIME_LABEL, tickCount=10)
    scale = alt.Scale(domain=list(KINDS), range=list(KINDS.values()))
    base = alt.Chart(data(rows)).encode(y=down, tooltip=["part:N", "kind:N", "text:N"])
    bars = base.mark_bar().encode(
        x=across, x2="end:Q",
        color=alt.Color("kind:N", scale=scale, legend=alt.Legend(title=None, orient="bottom")),
    )  # fmt: skip
    total = alt.Chart(data([sum_])).encode(y=down, tooltip=["part:N", "text:N"])
    words = [
        chart.mark_text(align="left", dx=6, color=TEXT).encode(x=alt.X(f"{end}:Q"), text="text:N")
        for chart, end in ((base, "end"), (total, "high"))
    ]
    lines = [
        total.mark_rule(color=BLACK, strokeWidth=2).encode(x=alt.X("low:Q"), x2="high:Q"),
    ] if interval else []  # fmt: skip
    return alt.layer(
        bars,
        total.mark_bar(color=BLACK, opacity=0.75).encode(x=across, x2="end:Q"),
        *lines,
        *words,
    ).properties(
        width=1.6 * WIDTH, height=max(HEIGHT / 2, 26 * len(order)), title=heading(title, note),
    )  # fmt: skip
