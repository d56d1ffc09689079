"""How full the hottest links were over time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

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
            "link": link, "begin": begin, "end": end, "share": share,
            "when": f"{format_time(begin)} to {format_time(end)}",
        }
        for k, link in enumerate(load.links)
        for begin, end, share in _runs(edges, [min(1.0, float(v)) for v in load.share[k]])
    ]  # fmt: skip
    return (
        alt.Chart(data(rows))
        .mark_rect(aria=False)
        .encode(
            x=alt.X("begin:Q").scale(nice=False, domain=[edges[0], edges[-1]]).axis(
                title="time from the start", labelExpr=TIME_LABEL, grid=False, tickCount=8
            ),
            x2="end:Q",
            y=alt.Y("link:N").sort(list(load.links)).axis(title=None, ticks=False),
            color=alt.Color("share:Q").scale(scheme="cividis", domain=[0, 1]).legend(
                title="share of healthy rate", format=".0%"
            ),
            tooltip=["link:N", "when:N", alt.Tooltip("share:Q", format=".1%")],
        )
        .properties(
            width=1.6 * WIDTH, height=15 * len(load.links),
            title=heading("Load of links", f"the {len(load.links)} hottest"),
        )
    )  # fmt: skip


def _runs(edges: Sequence[float], shares: Sequence[float]) -> Iterator[tuple[float, float, float]]:
    """(begin, end, share) of neighbouring steps whose shares look alike, as one."""
    steps = list(zip(edges, edges[1:], shares, strict=False))
    for _, group in groupby(steps, key=lambda step: round(step[2], 2)):
        mine = list(group)
        yield mine[0][0], mine[-1][1], sum(s for _, _, s in mine) / len(mine)
