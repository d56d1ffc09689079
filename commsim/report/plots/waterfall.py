"""From link rate to bus bandwidth: what each stage leaves, and what it takes away."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from commsim.report.explanation import Stage
from commsim.report.plots.style import BLUE, GB, ORANGE, TEXT, WIDTH, Chart, data, heading
from commsim.units import format_rate


def waterfall(stages: Sequence[Stage], title: str) -> Chart:
    """A bar of bytes/s for each stage, in order; what was lost since the one before in orange."""
    rows = []
    before = None
    for s in stages:
        lost = max(0.0, (before or s.bandwidth) - s.bandwidth)
        factor = "" if before is None else f"  (x {s.bandwidth / before:.3g})"
        rows.append(
            {
                "stage": s.name, "bandwidth": s.bandwidth / GB, "end": (s.bandwidth + lost) / GB,
                "text": format_rate(s.bandwidth) + factor, "reason": s.reason,
            }
        )  # fmt: skip
        before = s.bandwidth
    across = alt.X("bandwidth:Q").axis(title="bandwidth (GB/s)", tickCount=8)
    base = alt.Chart(data(rows)).encode(
        y=alt.Y("stage:N").sort([s.name for s in stages]).axis(title=None, ticks=False),
        tooltip=["stage:N", alt.Tooltip("text:N", title="bandwidth"), "reason:N"],
    )
    kept = base.mark_bar(color=BLUE).encode(x=across)
    gone = base.mark_bar(color=ORANGE, opacity=0.55).encode(x=across, x2="end:Q")
    words = base.mark_text(align="left", dx=6, color=TEXT).encode(x=alt.X("end:Q"), text="text:N")
    return alt.layer(kept, gone, words).properties(
        width=1.6 * WIDTH, height=30 * len(rows),
        title=heading(title, "blue: left after the stage; orange: lost in it"),
    )  # fmt: skip
