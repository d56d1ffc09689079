"""Measured against a healthy machine, and under the likeliest causes."""

from __future__ import annotations

from typing import Any

import altair as alt

from commsim.diagnosis.findings import Findings
from commsim.report.plots.style import (
    BLACK,
    BLUE,
    GREY,
    HEIGHT,
    VERMILION,
    WIDTH,
    Chart,
    colour,
    data,
    heading,
    sizes_axis,
    together,
)
from commsim.units import format_size, format_time

SHOWN = 3


def diagnosis(found: Findings) -> Chart:
    """Time over a healthy machine's by size and operation; the causes with their likelihood."""
    likeliest = found.hypotheses[: 0 if found.healthy else SHOWN]
    names = [h.cause for h in likeliest]
    rows: list[dict[str, Any]] = []
    for i, p in enumerate(found.points):
        shared = {
            "size": max(1, p.collective.nbytes), "operation": p.collective.operation,
            "size_text": format_size(p.collective.nbytes),
        }  # fmt: skip
        rows.append(
            shared | {"line": "measured", "ratio": p.slower, "low": p.low / p.expected,
                      "high": p.high / p.expected, "text": format_time(p.measured)}
        )  # fmt: skip
        rows += [
            shared | {"line": h.cause, "ratio": h.curve[i] / p.expected,
                      "text": format_time(h.curve[i])}
            for h in likeliest
        ]  # fmt: skip
    operations = list(dict.fromkeys(str(r["operation"]) for r in rows))
    panels = [_panel(rows, name, names) for name in operations]
    curves = alt.concat(*panels, columns=2).properties(
        title=heading(
            "Measured time over a healthy machine's",
            "points: measured; band: 80 % interval of a healthy machine; lines: under a cause",
        )
    )
    return together(_causes(found), curves)


def _panel(rows: list[dict[str, Any]], operation: str, names: list[str]) -> Chart:
    mine = [r for r in rows if r["operation"] == operation]
    across = sizes_axis(int(r["size"]) for r in mine)
    axis = alt.Axis(title="time / healthy time", format="~g")
    base = alt.Chart(data(mine)).encode(x=across)
    measured = base.transform_filter("datum.line == 'measured'")
    layers: list[Any] = [
        measured.mark_area(color=GREY, opacity=0.25).encode(
            y=alt.Y("low:Q", axis=axis), y2="high:Q"
        )
    ]
    if names:
        layers.append(
            base.transform_filter("datum.line != 'measured'")
            .mark_line(strokeWidth=2)
            .encode(y=alt.Y("ratio:Q"), color=colour("line", names, orient="bottom"))
        )
    layers.append(
        measured.mark_point(color=BLACK, size=34).encode(
            y=alt.Y("ratio:Q"), tooltip=["size_text:N", "text:N", "ratio:Q"]
        )
    )
    return alt.layer(*layers).properties(width=WIDTH, height=HEIGHT * 0.8, title=operation)


def _causes(found: Findings) -> Chart:
    rows = [
        {
            "cause": h.cause, "likelihood": h.likelihood, "what": h.what,
            "text": f"{h.likelihood:.0%}",
        }
        for h in found.hypotheses
    ]  # fmt: skip
    across = (
        alt.X("likelihood:Q")
        .scale(domain=[0, 1])
        .axis(title="likelihood, if something is wrong", format=".0%")
    )
    base = alt.Chart(data(rows)).encode(
        y=alt.Y("cause:N").sort([h.cause for h in found.hypotheses]).axis(title=None), x=across
    )
    verdict = "healthy" if found.healthy else "sick"
    return alt.layer(
        base.mark_bar(color=BLUE if found.healthy else VERMILION, opacity=0.8).encode(
            tooltip=["cause:N", "what:N", "text:N"]
        ),
        base.mark_text(align="left", dx=4, color=BLACK).encode(text="text:N"),
    ).properties(
        width=1.2 * WIDTH, height=22 * len(rows),
        title=heading(f"Verdict: {verdict}, likelihood of health {found.likelihood:.0%}"),
    )  # fmt: skip
