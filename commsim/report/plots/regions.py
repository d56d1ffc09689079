"""Which algorithm and protocol a library chooses where: regions over size, a row a case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import altair as alt

from commsim.report.plots.style import GROUND, WIDTH, Chart, colour, data, heading, sizes_axis
from commsim.report.regions import Region
from commsim.units import format_size


def regions(rows: Mapping[str, Sequence[Region]], title: str) -> Chart:
    """Bars from the size at which a choice begins to the one at which it ends."""
    known = [
        {
            "row": name,
            "size": r.low,
            "end": r.high,
            "choice": r.choice,
            "from": f"{format_size(r.low)} to {format_size(r.high)}",
        }
        for name, row in rows.items()
        for r in row
    ]
    choices = list(dict.fromkeys(r.choice for row in rows.values() for r in row))
    across = sizes_axis([n for row in rows.values() for r in row for n in (r.low, r.high)])
    return (
        alt.Chart(data(known))
        .mark_bar(stroke=GROUND, strokeWidth=1)
        .encode(
            x=across,
            x2=alt.X2("end:Q"),
            y=alt.Y("row:N").sort(list(rows)).axis(title=None, ticks=False),
            color=colour("choice", choices, title="chosen", always=True),
            tooltip=["row:N", "choice:N", "from:N"],
        )
        .properties(width=2 * WIDTH, height=max(1, len(rows)) * 34, title=heading(title))
    )
