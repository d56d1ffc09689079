"""How a collective, or a training step, does on more and more machines."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from commsim.prediction import Prediction
from commsim.report.plots.style import (
    BLUE,
    GB,
    GREY,
    HEIGHT,
    TIME_LABEL,
    WIDTH,
    Chart,
    data,
    heading,
)
from commsim.units import format_rate, format_size, format_time
from commsim.workload.step import StepPrediction


def scaling(found: Sequence[Prediction]) -> Chart:
    """Time and bus bandwidth of one collective over node counts, with the 80 % interval."""
    one = found[0]
    rows = []
    for p in found:
        low, high = p.interval
        moved = p.bus_bandwidth * p.duration
        rows.append(
            {
                "count": p.cluster.nodes, "ranks": p.n_ranks, "time": p.duration, "time_low": low,
                "time_high": high, "bandwidth": p.bus_bandwidth / GB,
                "bandwidth_low": moved / high / GB, "bandwidth_high": moved / low / GB,
                "time_text": format_time(p.duration),
                "bandwidth_text": format_rate(p.bus_bandwidth),
                "choice": ", ".join(filter(None, (p.algorithm, p.protocol))),
            }
        )  # fmt: skip
    tip = ["count:N", "ranks:N", "time_text:N", "bandwidth_text:N", "choice:N"]
    across = _counts([p.cluster.nodes for p in found], "nodes")

    def panel(what: str, axis: alt.Axis) -> Chart:
        base = alt.Chart(data(rows)).encode(x=across, tooltip=tip)
        upwards = alt.Y(f"{what}:Q").scale(zero=True)
        band = base.mark_area(opacity=0.2, color=BLUE).encode(
            y=alt.Y(f"{what}_low:Q", axis=axis), y2=f"{what}_high:Q"
        )
        return alt.layer(
            band, base.mark_line(point=alt.OverlayMarkDef(color=BLUE), color=BLUE).encode(y=upwards)
        ).properties(width=WIDTH, height=HEIGHT * 0.8)

    size = f" of {format_size(one.collective.nbytes)}" if one.collective.nbytes else ""
    return alt.hconcat(
        panel("bandwidth", alt.Axis(title="bus bandwidth (GB/s)")),
        panel("time", alt.Axis(title="time", labelExpr=TIME_LABEL)),
        spacing=28,
    ).properties(
        title=heading(
            f"{one.collective.operation}{size} on more and more nodes of {one.cluster.name}",
            "line: predicted; band: 80 % interval",
        )
    )


def step_scaling(found: Sequence[StepPrediction], title: str) -> Chart:
    """Tokens/s of one GPU in a training step over GPU counts, beside those with the fewest."""
    fewest = min(found, key=lambda s: s.layout.world)
    rows = [
        {
            "count": s.layout.world, "rate": s.tokens_per_second_per_gpu,
            "low": s.tokens / s.interval[1] / s.layout.world,
            "high": s.tokens / s.interval[0] / s.layout.world,
            "ideal": fewest.tokens_per_second_per_gpu,
            "text": f"{s.tokens_per_second_per_gpu:,.0f} tokens/s/GPU, MFU {s.mfu:.1%}",
        }
        for s in found
    ]  # fmt: skip
    axis = alt.Axis(title="tokens/s of a GPU", format=",d")
    base = alt.Chart(data(rows)).encode(
        x=_counts([s.layout.world for s in found], "GPUs"), tooltip=["count:N", "text:N"]
    )
    point = alt.OverlayMarkDef(color=BLUE)
    return alt.layer(
        base.mark_area(opacity=0.2, color=BLUE).encode(y=alt.Y("low:Q", axis=axis), y2="high:Q"),
        base.mark_line(color=GREY, strokeDash=[5, 4]).encode(y=alt.Y("ideal:Q")),
        base.mark_line(point=point, color=BLUE).encode(y=alt.Y("rate:Q")),
    ).properties(
        width=1.5 * WIDTH, height=HEIGHT,
        title=heading(
            title,
            "line: predicted; band: 80 % interval; dashed: as with the fewest GPUs",
        ),
    )  # fmt: skip


def _counts(counts: Sequence[int], title: str) -> alt.X:
    return (
        alt.X("count:Q")
        .scale(type="log", base=2, nice=False)
        .axis(title=title, values=sorted(set(counts)), format="d")
    )
