"""Predicted against measured: every point, the error by size, how often the interval holds."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from commsim.calibration.agreement import Agreement, Compared
from commsim.cost.calibrated import HeldOut
from commsim.report.plots.style import (
    BLACK,
    BLUE,
    GREY,
    HEIGHT,
    ORANGE,
    WIDTH,
    Chart,
    colour,
    data,
    heading,
    log_ticks,
    sizes_axis,
    times,
)
from commsim.units import format_time

INTERVAL = 0.8
"""Share of measurements that a good interval holds."""
MOST = 3.0
"""Factor off at which a point is drawn at the picture's edge."""


def residuals(compared: Sequence[Compared], title: str) -> Chart:
    """Left: predicted over measured time; right: the error by size, in percent."""
    rows = [
        {
            "measured": c.point.measured, "predicted": c.prediction.duration,
            "size": max(1, c.point.collective.nbytes),
            "error": min(MOST - 1, max(1 / MOST - 1, c.ratio - 1)),
            "operation": c.point.case.operation,
            "nodes": "several nodes" if c.point.case.nodes > 1 else "one node",
            "point": str(c.point), "where": c.point.where,
            "text": f"{format_time(c.point.measured)} measured, "
            f"{format_time(c.prediction.duration)} predicted, {c.ratio - 1:+.1%}",
        }
        for c in compared
    ]  # fmt: skip
    operations = list(dict.fromkeys(c.point.case.operation for c in compared))
    both = [c.point.measured for c in compared] + [c.prediction.duration for c in compared]
    ticks = log_ticks(both)
    ends = [ticks[0], ticks[-1]]
    both_kinds = len({r["nodes"] for r in rows}) > 1
    base = alt.Chart(data(rows)).mark_point(filled=True, size=34, opacity=0.6).encode(
        color=colour("operation", operations, orient="bottom"),
        shape=alt.Shape("nodes:N", scale=alt.Scale(
            domain=["one node", "several nodes"], range=["circle", "triangle-up"]
        ), legend=alt.Legend(title=None, orient="bottom") if both_kinds else None),
        tooltip=["point:N", "where:N", "text:N"],
    )  # fmt: skip
    diagonal = alt.Chart(data([{"measured": e, "predicted": e} for e in ends])).mark_line(
        color=GREY, strokeWidth=1
    )
    across = alt.X("measured:Q", **times("measured time", both))
    upwards = alt.Y("predicted:Q", **times("predicted time", both))
    zero = alt.Chart(data([{"error": 0}])).mark_rule(color=GREY)
    error = alt.Y("error:Q").axis(title="predicted / measured - 1", format="+.2~%")
    left = alt.layer(diagonal.encode(x=across, y=upwards), base.encode(x=across, y=upwards))
    right = alt.layer(
        zero.encode(y=error),
        base.encode(x=sizes_axis([int(r["size"]) for r in rows]), y=error),
    )
    return alt.hconcat(
        left.properties(width=WIDTH * 0.8, height=HEIGHT),
        right.properties(width=WIDTH * 0.9, height=HEIGHT),
        spacing=28,
    ).properties(title=heading(title, f"{len(rows)} points, repeats as their median"))


def coverage(rows: Sequence[Agreement]) -> Chart:
    """Share of measurements inside the predicted 80 % interval, by group; 80 % is right."""
    shown = [r for r in rows if r.kind in ("all", "nodes/regime", "operation")]
    values = [
        {
            "group": r.group if r.kind != "all" else "all points", "inside": r.inside,
            "points": r.points, "text": f"{r.inside:.0%} of {r.points} points",
        }
        for r in shown
    ]  # fmt: skip
    across = (
        alt.X("inside:Q")
        .scale(domain=[0, 1])
        .axis(title="measurements inside the predicted interval", format=".0%")
    )
    order = [str(v["group"]) for v in values]
    base = alt.Chart(data(values)).encode(y=alt.Y("group:N").sort(order).axis(title=None))
    aim = alt.Chart(data([{"inside": INTERVAL}])).mark_rule(color=BLACK, strokeDash=[4, 3])
    return alt.layer(
        base.mark_bar(color=BLUE, opacity=0.8).encode(x=across, tooltip=["group:N", "text:N"]),
        base.mark_text(align="left", dx=4, color=BLACK).encode(x=across, text="text:N"),
        aim.encode(x=across),
    ).properties(
        width=1.2 * WIDTH, height=22 * len(values),
        title=heading("How often the interval holds", "dashed: the 80 % that it promises"),
    )  # fmt: skip


def held_out(rows: Sequence[HeldOut]) -> Chart:
    """Median error and the error that a tenth exceeds, of points held back from a fit."""
    values = [
        {
            "group": f"{r.left_out}: {r.group}", "median": r.median, "worst": r.worst_tenth,
            "text": f"{r.median:.1%} of {r.points} points",
        }
        for r in rows
    ]  # fmt: skip
    order = [str(v["group"]) for v in values]
    across = alt.X("median:Q").axis(title="error of points held back", format=".0%")
    base = alt.Chart(data(values)).encode(
        y=alt.Y("group:N").sort(order).axis(title=None), tooltip=["group:N", "text:N"]
    )
    return alt.layer(
        base.mark_rule(color=ORANGE, strokeWidth=5, opacity=0.6).encode(x=across, x2="worst:Q"),
        base.mark_point(filled=True, size=70, color=BLUE, opacity=1).encode(x=across),
        base.mark_text(align="left", dx=8, color=BLACK).encode(x=alt.X("worst:Q"), text="text:N"),
    ).properties(
        width=1.2 * WIDTH, height=22 * len(values),
        title=heading(
            "Points held back from the fit",
            "dot: median error; bar: up to the error that a tenth exceeds",
        ),
    )  # fmt: skip
