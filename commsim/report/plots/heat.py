"""How full the hottest links were over time."""

from __future__ import annotations

import altair as alt

from commsim.engine.link_load import link_load
from commsim.engine.timeline import Timeline
from commsim.report.plots.style import TIME_LABEL, WIDTH, Chart, data, heading
from commsim.units import format_time

STEPS, MOST = 120, 30


def link_heat(found: Timeline) -> Chart:
    """Share of its bandwidth that each of the hottest links carried in each of 120 equal steps."""
    load = link_load(found, steps=STEPS, most=MOST)
    edges = [float(e) for e in load.edges]
    rows = [
        {
            "link": link, "begin": edges[i], "end": edges[i + 1],
            "share": min(1.0, float(load.share[k, i])),
            "when": f"{format_time(edges[i])} to {format_time(edges[i + 1])}",
        }
        for k, link in enumerate(load.links)
        for i in range(len(edges) - 1)
    ]  # fmt: skip
    return (
        alt.Chart(data(rows))
        .mark_rect()
        .encode(
            x=alt.X("begin:Q").scale(nice=False, domain=[edges[0], edges[-1]]).axis(
                title="time from the start", labelExpr=TIME_LABEL, grid=False, tickCount=8
            ),
            x2="end:Q",
            y=alt.Y("link:N").sort(list(load.links)).axis(title=None, ticks=False),
            color=alt.Color("share:Q").scale(scheme="cividis", domain=[0, 1]).legend(
                title="share of bandwidth", format=".0%"
            ),
            tooltip=["link:N", "when:N", alt.Tooltip("share:Q", format=".1%")],
        )
        .properties(
            width=1.6 * WIDTH, height=15 * len(load.links),
            title=heading("Load of links", f"the {len(load.links)} hottest"),
        )
    )  # fmt: skip
