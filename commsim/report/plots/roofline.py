"""The roofline of a training step's GPU, with the products and attention of its layers."""

from __future__ import annotations

from typing import Any

import altair as alt

from commsim.report.plots.style import (
    BLACK,
    GREY,
    HEIGHT,
    WIDTH,
    Chart,
    colour,
    data,
    heading,
    log_ticks,
)
from commsim.report.roofline import Roofline
from commsim.units import format_time

TERA = 1e12


def roofline(found: Roofline) -> Chart:
    """FLOP/s over FLOP per byte: the data sheet's roof, the best reached, every operator."""
    rows: list[dict[str, Any]] = [
        {
            "name": o.name, "intensity": o.intensity, "rate": o.rate / TERA,
            "kind": o.name.split()[0],
            "direction": o.name.partition(", ")[2].split()[0],
            "text": f"{o.rate / TERA:.4g} TFLOP/s, {format_time(o.duration)}",
        }
        for o in found.operators
    ]  # fmt: skip
    kinds = list(dict.fromkeys(str(r["kind"]) for r in rows))
    knee = found.sheet / found.memory
    left = min(knee / 20, *(o.intensity / 2 for o in found.operators))
    right = max(knee * 20, *(o.intensity * 2 for o in found.operators))
    roofs: list[dict[str, Any]] = [
        {"roof": roof, "intensity": x, "rate": min(top, x * found.memory) / TERA}
        for roof, top in (("data sheet", found.sheet), ("best product reached", found.reached))
        for x in (left, top / found.memory, right)
    ]
    across = (
        alt.X("intensity:Q")
        .scale(type="log", nice=False, domain=[left, right])
        .axis(
            title="arithmetic intensity (FLOP/byte)", format="~g", values=log_ticks([left, right])
        )
    )
    ticks = log_ticks([r["rate"] for r in (*roofs, *rows)])
    upwards = (
        alt.Y("rate:Q")
        .scale(type="log", nice=False, domain=[ticks[0], 1.3 * found.sheet / TERA])
        .axis(title="TFLOP/s", format="~g", values=ticks)
    )
    lines = alt.Chart(data(roofs)).encode(x=across, y=upwards)
    dash = alt.StrokeDash("roof:N").scale(
        domain=["data sheet", "best product reached"], range=[[1, 0], [5, 4]]
    ).legend(title=None, symbolStrokeColor=BLACK)  # fmt: skip
    return alt.layer(
        lines.mark_line(color=GREY).encode(strokeDash=dash),
        alt.Chart(data(rows)).mark_point(filled=True, size=80, opacity=0.8).encode(
            x=across, y=upwards, color=colour("kind", kinds),
            shape=alt.Shape("direction:N").scale(
                domain=["forward", "backward"], range=["circle", "triangle-down"]
            ).legend(title=None),
            tooltip=["name:N", "text:N"],
        ),
    ).properties(
        width=1.4 * WIDTH, height=HEIGHT,
        title=heading(
            f"Roofline of {found.gpu}",
            f"memory {found.memory / 1e12:.3g} TB/s, dense products {found.sheet / TERA:.4g} "
            "TFLOP/s by the data sheet",
        ),
    )  # fmt: skip
