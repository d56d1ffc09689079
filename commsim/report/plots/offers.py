"""What 10^12 tokens take and cost on several clusters, and which parts of a step that goes to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import altair as alt

from commsim.planning.comparison import Offer
from commsim.report.plots.style import (
    BLACK,
    GROUND,
    WIDTH,
    Chart,
    colour,
    data,
    heading,
    together,
)
from commsim.units import Seconds

DAY = 86400.0
Figures = Callable[[Offer], tuple[float, tuple[float, float]] | None]


def offers(found: Sequence[Offer]) -> Chart:
    """Days, and USD where any price is known, of 10^12 tokens: a bar a cluster, in the order given,
    with its 80 % interval."""
    given = sorted(found, key=lambda offer: offer.number)
    charts = [_bars(given, _days, "days", "Days for 10^12 tokens")]
    if any(offer.cost is not None for offer in given):
        charts.append(_bars(given, _cost, "USD", "USD for 10^12 tokens"))
    return together(*charts)


def _days(offer: Offer) -> tuple[float, tuple[float, float]] | None:
    if offer.duration is None or offer.interval is None:
        return None
    low, high = offer.interval
    return offer.duration / DAY, (low / DAY, high / DAY)


def _cost(offer: Offer) -> tuple[float, tuple[float, float]] | None:
    if offer.cost is None or offer.cost_interval is None:
        return None
    return offer.cost, offer.cost_interval


def _bars(given: Sequence[Offer], figures: Figures, unit: str, title: str) -> Chart:
    names = [_name(offer) for offer in given]
    parts: list[dict[str, Any]] = []
    wholes: list[dict[str, Any]] = []
    order: dict[str, None] = {}
    for offer, name in zip(given, names, strict=True):
        known = figures(offer)
        if known is None:
            why = "nothing fits" if offer.plan is None else "price not known"
            wholes.append({"cluster": name, "low": 0.0, "high": 0.0, "text": why})
            continue
        value, (low, high) = known
        begun = 0.0
        for part, share in _shares(offer).items():
            order.setdefault(part)
            end = begun + share * value
            text = f"{_number(share * value)} {unit}, {share:.1%}"
            parts.append({"cluster": name, "part": part, "begin": begun, "end": end, "text": text})
            begun = end
        text = f"{_number(value)} {unit}, 80 %: {_number(low)} to {_number(high)}"
        wholes.append({"cluster": name, "low": low, "high": high, "text": text})
    down = alt.Y("cluster:N").sort(names).axis(title=None, ticks=False, labelLimit=420)
    across = alt.X("begin:Q").axis(title=f"{unit} for 10^12 tokens", tickCount=8)
    bars = alt.Chart(data(parts)).encode(y=down, tooltip=["cluster:N", "part:N", "text:N"])
    whole = alt.Chart(data(wholes)).encode(y=down, tooltip=["cluster:N", "text:N"])
    words = whole.encode(x="high:Q", text="text:N")
    return alt.layer(
        bars.mark_bar(opacity=0.85).encode(
            x=across, x2="end:Q", color=colour("part", list(order), always=True, orient="bottom")
        ),
        whole.mark_rule(color=BLACK, strokeWidth=2).encode(x="low:Q", x2="high:Q"),
        words.mark_text(align="left", dx=6, stroke=GROUND, strokeWidth=4, strokeJoin="round"),
        words.mark_text(align="left", dx=6, color=BLACK),
    ).properties(
        width=1.5 * WIDTH, height=36 * len(names),
        title=heading(title, "by the parts of a step; line: 80 % interval"),
    )  # fmt: skip


def _shares(offer: Offer) -> dict[str, Seconds]:
    """The parts of a step that show, as shares of it."""
    assert offer.plan is not None
    whole = offer.plan.duration
    return {k: v / whole for k, v in offer.plan.step.breakdown.items() if v > 1e-3 * whole}


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _name(offer: Offer) -> str:
    where = offer.cluster
    return f"{where.name}, {where.nodes} x {where.gpus_per_node} {where.gpu.name}"
