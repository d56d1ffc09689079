"""Every candidate of a library: what commsim predicts for it, and what the library believes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from commsim.prediction import Alternative
from commsim.report.plots.style import (
    GREY,
    VERMILION,
    WIDTH,
    Chart,
    colour,
    data,
    heading,
    times,
)
from commsim.units import format_time


def candidates(found: Sequence[Alternative], chosen: tuple[str, str], title: str) -> Chart:
    """Two marks of time for each available candidate."""
    open_ones = sorted((c for c in found if c.available), key=lambda c: c.duration)
    rows: list[dict[str, Any]] = [
        {
            "candidate": "/".join(filter(None, (c.algorithm, c.protocol))),
            "what": what,
            "time": value,
            "text": format_time(value),
            "chosen": (c.algorithm, c.protocol) == chosen,
        }
        for c in open_ones
        for what, value in (("predicted", c.duration), ("library's estimate", c.estimate))
        if 0 < value < float("inf")
    ]
    order = [r["candidate"] for r in rows]
    base = alt.Chart(data(rows)).encode(
        y=alt.Y("candidate:N").sort(list(dict.fromkeys(map(str, order)))).axis(title=None),
        x=alt.X("time:Q", **times("time", [r["time"] for r in rows])),
    )
    kinds = ["predicted", "library's estimate"]
    marks = base.mark_point(filled=True, size=90, opacity=1).encode(
        color=colour("what", kinds),
        shape=alt.Shape(
            "what:N",
            scale=alt.Scale(domain=kinds, range=["square", "circle"]),
            legend=alt.Legend(title=None, labelLimit=620, symbolOpacity=1),
        ),
        tooltip=["candidate:N", "what:N", "text:N"],
    )
    ring = base.mark_point(size=260, color=VERMILION, strokeWidth=1.6).transform_filter(
        "datum.chosen && datum.what == 'predicted'"
    )
    joined = base.mark_line(color=GREY, strokeWidth=1).encode(detail="candidate:N")
    return alt.layer(joined, marks, ring).properties(
        width=1.6 * WIDTH, height=max(60, 24 * len(open_ones)),
        title=heading(title, "ringed: chosen; the library decides by its own estimate"),
    )  # fmt: skip
