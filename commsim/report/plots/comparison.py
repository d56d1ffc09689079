"""Two clusters on one operation: their curves, and what the difference is due to."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from commsim.measurements.measurement import Measurement
from commsim.prediction import Prediction
from commsim.report.comparison import Cause
from commsim.report.plots.curves import curves
from commsim.report.plots.style import (
    BLACK,
    BLUE,
    GREY,
    GROUND,
    TIME_LABEL,
    WIDTH,
    Chart,
    data,
    heading,
    together,
)
from commsim.units import Seconds, format_size, format_time


def comparison(
    first: Sequence[Prediction],
    second: Sequence[Prediction],
    causes: Sequence[Cause],
    at: tuple[Prediction, Prediction],
    measured: Sequence[Measurement] = (),
) -> Chart:
    """Curves of both by size, and A's time with one attribute of B at a time, at one size."""
    lines = {f"A: {_name(first[0])}": first, f"B: {_name(second[0])}": second}
    one, other = at
    size = format_size(one.collective.nbytes)
    bars = _causes(causes, one.duration, other.duration, size)
    return together(curves(lines, measured), bars) if first[0].collective.nbytes else bars


def _name(p: Prediction) -> str:
    c = p.cluster
    machines = f"{c.name}, {c.nodes} x {c.gpus_per_node} {c.gpu.name}"
    return f"{machines}, {p.n_ranks} ranks, {p.library.name} {p.library.version}"


def _causes(causes: Sequence[Cause], one: Seconds, other: Seconds, size: str) -> Chart:
    known = [c for c in causes if c.duration == c.duration]
    bars = [("A as it is", one, ""), *(
        (c.attribute, c.duration, f"{c.before} -> {c.after}") for c in known
    ), ("all together: B", other, "")]  # fmt: skip
    rows = [
        {
            "what": what, "time": took, "change": change,
            "text": f"{format_time(took)} (x {took / one:.3g})  {change}".strip(),
        }
        for what, took, change in bars
    ]  # fmt: skip
    across = alt.X("time:Q").scale(zero=True).axis(title="time", labelExpr=TIME_LABEL, tickCount=8)
    base = alt.Chart(data(rows)).encode(
        y=alt.Y("what:N").sort([b[0] for b in bars]).axis(title=None, ticks=False),
        x=across, tooltip=["what:N", "text:N"],
    )  # fmt: skip
    shade = alt.condition("datum.change == ''", alt.value(GREY), alt.value(BLUE))
    now = alt.Chart(data([{"time": one}])).mark_rule(color=BLACK, strokeDash=[4, 3])
    words = base.encode(text="text:N")
    return alt.layer(
        base.mark_bar(opacity=0.85).encode(color=shade),
        now.encode(x=across),
        words.mark_text(align="left", dx=5, stroke=GROUND, strokeWidth=4, strokeJoin="round"),
        words.mark_text(align="left", dx=5, color=BLACK),
    ).properties(
        width=1.3 * WIDTH, height=28 * len(rows),
        title=heading(
            f"What the difference is due to, at {size}",
            "one attribute of A changed at a time; dashed: A as it is",
        ),
    )  # fmt: skip
