"""A cluster drawn: devices, switches and links, wide where fast, warm where hot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt

from commsim.report.drawing import LEVELS, MOST_NODES, Drawing, drawing
from commsim.report.plots.style import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    GROUND,
    HOTTEST,
    ORANGE,
    PINK,
    SKY,
    VERMILION,
    WARMTH,
    WIDTH,
    Chart,
    data,
    heading,
)
from commsim.topology.cluster import Cluster
from commsim.units import format_rate

BINDS = "binds"
LINKS = {
    "nvlink": GREEN, "xgmi": GREEN, "pcie": SKY, "c2c": PINK, "socket": GREY, "port": SKY,
    "network": ORANGE, BINDS: HOTTEST,
}  # fmt: skip
DOTS = {
    "gpu": (GREEN, "square"), "nic": (ORANGE, "triangle-up"), "card": (ORANGE, "circle"),
    "cpu": (BLACK, "square"), "pcie-switch": (SKY, "diamond"), "nvswitch": (BLUE, "diamond"),
    "leaf": (VERMILION, "diamond"), "router": (VERMILION, "diamond"),
    "spine": (PINK, "diamond"), "core": (GREY, "diamond"),
}  # fmt: skip
ACROSS, UPWARDS = alt.X("x:Q").axis(None), alt.Y("y:Q").axis(None).scale(padding=18)
NAMED = 40
"""Vertices up to which each carries its name."""


def topology(
    cluster: Cluster,
    load: Mapping[str, float] | None = None,
    *,
    nodes: int = MOST_NODES,
    binds: str = "",
    remark: str = "",
) -> Chart:
    """Machines and fabric; with `load` (share of time by link) the hot links in warm
    colours, with `binds` (a part of `report.binding`) the links that bind stand out.

    nodes: the most that are drawn; remark: one more line below the title.
    """
    drawn = drawing(cluster, load, nodes)
    kinds = [k for k in LEVELS if any(d.kind == k for d in drawn.dots)]
    dots = alt.Chart(
        data({"x": d.x, "y": d.y, "kind": d.kind, "name": d.name} for d in drawn.dots)
    ).encode(
        x=ACROSS, y=UPWARDS,
        tooltip=["name:N", "kind:N"],
    )  # fmt: skip
    marks = dots.mark_point(filled=True, size=110, opacity=1, stroke=GROUND, strokeWidth=1).encode(
        color=alt.Color("kind:N").scale(domain=kinds, range=[DOTS[k][0] for k in kinds]).legend(
            title="device", orient="right"
        ),
        shape=alt.Shape("kind:N").scale(domain=kinds, range=[DOTS[k][1] for k in kinds]).legend(
            title="device", orient="right"
        ),
    )  # fmt: skip
    few = len(drawn.dots) <= NAMED * 2
    named = dots.transform_calculate(short="replace(datum.name, /^.*\\//, '')").encode(
        text="short:N"
    )
    layers: list[Any] = [_wires(drawn, load is not None, binds), marks]
    if few:  # each name stands on a ground of its own, not on the links
        ground = named.mark_text(
            dy=-11, fontSize=9, stroke=GROUND, strokeWidth=3, strokeJoin="round"
        )
        layers += [ground, named.mark_text(dy=-11, fontSize=9, color=BLACK)]
    note = (
        f"the first {drawn.nodes} of {cluster.nodes} nodes" if drawn.nodes < cluster.nodes
        else f"{cluster.nodes} node{'s' * (cluster.nodes > 1)}"
    )  # fmt: skip
    for kind, count in drawn.left_out.items():
        note += f"; {count} more {kind}{'s' * (count > 1)} like these"
    note += "; a link's width grows with its bandwidth"
    if load is not None:
        note += "; its colour is the share of its time in which it was busy"
    span = max(d.x for d in drawn.dots) - min(d.x for d in drawn.dots)
    return (
        alt.layer(*layers)
        .resolve_scale(color="independent", shape="independent")
        .properties(
            width=max(WIDTH, min(2.6 * WIDTH, 42 * span)),
            height=64 * (max(d.y for d in drawn.dots) + 1),
            title=heading(
                f"{cluster.name}: {cluster.nodes} x {cluster.gpus_per_node} {cluster.gpu.name}, "
                f"{cluster.fabric.kind}", note, *((remark,) if remark else ()),
            ),
        )
    )  # fmt: skip


def _wires(drawn: Drawing, loaded: bool, binds: str) -> Chart:
    place = {d.name: d for d in drawn.dots}
    rows: list[dict[str, Any]] = [
        {
            "x": place[w.source].x, "y": place[w.source].y, "x2": place[w.target].x,
            "y2": place[w.target].y, "name": w.name, "kind": w.kind,
            "shown": BINDS if binds and w.part == binds else w.kind,
            "rate": w.bandwidth / 1e9, "text": format_rate(w.bandwidth), "load": w.load or 0.0,
        }
        for w in drawn.wires
    ]  # fmt: skip
    rows.sort(key=lambda r: (r["shown"] == BINDS, r["load"]))  # those that matter on top
    kinds = list(dict.fromkeys(str(r["shown"]) for r in rows))
    shade = (
        alt.Color("load:Q").scale(range=list(WARMTH), domain=[0, 1]).legend(
            title="share of time busy", format=".0%", orient="right"
        )
        if loaded
        else alt.Color("shown:N").scale(domain=kinds, range=[LINKS[k] for k in kinds]).legend(
            title="link", orient="right"
        )
    )  # fmt: skip
    width = (
        alt.StrokeWidth("rate:Q")
        .scale(type="sqrt", range=[1, 6])
        .legend(title="GB/s per direction", orient="right", symbolStrokeColor=GREY)
    )
    rest = 0.4 if BINDS in kinds else 0.8
    tips = ["name:N", "kind:N", alt.Tooltip("text:N", title="per direction")]
    if loaded:
        tips.append(alt.Tooltip("load:Q", format=".1%", title="share of time busy"))
    return (
        alt.Chart(data(rows))
        .mark_rule()
        .encode(
            opacity=alt.condition(f"datum.shown == '{BINDS}'", alt.value(1), alt.value(rest)),
            x=ACROSS, y=UPWARDS, x2="x2:Q", y2="y2:Q", color=shade, strokeWidth=width,
                tooltip=tips)
    )  # fmt: skip
