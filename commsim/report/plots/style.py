"""What all pictures share: colours, axes with units, and the look.

The eight colours are told apart with every common colour blindness (Okabe and Ito, "Color Universal
Design", 2008), on a light ground and on a dark one, where what is black here is nearly white.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import altair as alt

Chart: TypeAlias = Any
"""An Altair chart of whatever kind: how charts are joined decides their class."""
Rows: TypeAlias = Iterable[Mapping[str, Any]]

BLUE, VERMILION, GREEN, PINK = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
ORANGE, SKY, GREY, BLACK = "#E69F00", "#56B4E9", "#8A8A8A", "#222222"
COLOURS = (BLUE, VERMILION, GREEN, PINK, ORANGE, SKY, BLACK, GREY)
TEXT, GRID, GROUND = "#333333", "#E4E4E4", "#FFFFFF"
IDLE, HOTTEST = "#CDCDD3", "#8C1C00"
WARMTH = (IDLE, ORANGE, VERMILION, HOTTEST)
"""From nothing to all, darker and darker: read without colours too."""
DARK = {
    GROUND: "#16181D", BLACK: "#ECECF1", TEXT: "#D3D5DC", GRID: "#343843",
    IDLE: "#4B4F5B", HOTTEST: "#FFC2AD",
}  # fmt: skip
"""What a dark picture has in place of a light one's colours."""
PAGE = {GROUND: "ground", BLACK: "ink", TEXT: "text", GRID: "grid", IDLE: "idle", HOTTEST: "hot"}
"""Colours that a page with pictures inside gives, as variables --plot-ink and so on."""
GB = 1e9
WIDTH, HEIGHT = 420, 280

# Vega expressions that write an axis' numbers as units.format_size and format_time do.
SIZE_LABEL = (
    "datum.value >= 1099511627776 ? format(datum.value / 1099511627776, '~g') + ' TiB' :"
    "datum.value >= 1073741824 ? format(datum.value / 1073741824, '~g') + ' GiB' :"
    "datum.value >= 1048576 ? format(datum.value / 1048576, '~g') + ' MiB' :"
    "datum.value >= 1024 ? format(datum.value / 1024, '~g') + ' KiB' : datum.value + ' B'"
)
TIME_LABEL = (
    "datum.value == 0 ? '0' : abs(datum.value) < 1e-3 ? format(datum.value * 1e6, '~r') + ' µs' :"
    "abs(datum.value) < 1 ? format(datum.value * 1e3, '~r') + ' ms' : "
    "format(datum.value, '~r') + ' s'"
)


def data(rows: Rows) -> Any:
    """The rows as they go into the picture; a number that is not finite becomes null."""
    return alt.InlineData(
        values=[
            {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in r.items()}
            for r in rows
        ]
    )


def sizes_axis(sizes: Iterable[int], title: str = "size") -> alt.X:
    """A size in bytes across, powers of two apart."""
    known = [max(1, n) for n in sizes]
    low, high = math.floor(math.log2(min(known))), math.ceil(math.log2(max(known)))
    apart = max(1, math.ceil((high - low) / 8))
    return alt.X("size:Q").scale(type="log", base=2, domain=[2**low, 2 ** max(high, low + 1)]).axis(
        title=title, values=[2**k for k in range(low, high + 1, apart)], labelExpr=SIZE_LABEL,
        labelAngle=-35, labelOverlap=False, grid=True,
    )  # fmt: skip


def log_ticks(values: Iterable[float]) -> list[float]:
    """Round numbers (1, 2 and 5 times powers of ten; tens alone over four decades) that hold all
    values between the first and the last."""
    known = [v for v in values if 0 < v < math.inf]
    low, high = math.log10(min(known)), math.log10(max(known))
    mantissas = (1, 2, 5) if high - low < 4 else (1,)
    ticks = [m * 10.0**k for k in range(math.floor(low), math.ceil(high) + 1) for m in mantissas]
    first = max([i for i, t in enumerate(ticks) if t <= min(known)], default=0)
    last = min([i for i, t in enumerate(ticks) if t >= max(known)], default=len(ticks) - 1)
    return [float(f"{t:.3g}") for t in ticks[first : max(last, first + 1) + 1]]


def times(name: str, values: Iterable[float]) -> dict[str, Any]:
    """Scale and axis of times in s on a logarithmic scale: `alt.Y("time:Q", **times("time", ...))`.

    name: the axis' title."""
    ticks = log_ticks(values)
    return {
        "scale": alt.Scale(type="log", domain=[ticks[0], ticks[-1]], nice=False),
        "axis": alt.Axis(title=name, labelExpr=TIME_LABEL, values=ticks),
    }


def colour(
    name: str,
    order: Sequence[str],
    title: str | None = None,
    *,
    always: bool = False,
    **legend: Any,
) -> alt.Color:
    """A colour for each name, the same for the same order; of a single one a legend if `always`."""
    scale = alt.Scale(domain=list(order), range=[COLOURS[i % 8] for i in range(len(order))])
    shown = (
        alt.Legend(title=title, labelLimit=620, symbolOpacity=1, **legend)
        if always or len(order) > 1
        else None
    )
    return alt.Color(f"{name}:N", scale=scale, legend=shown)


def together(*charts: Any) -> Chart:
    """Pictures below one another, each with its own colours."""
    if len(charts) == 1:
        return charts[0]
    return alt.vconcat(*charts, spacing=36).resolve_scale(
        color="independent", shape="independent", x="independent", y="independent",
        strokeWidth="independent", strokeDash="independent",
    )  # fmt: skip


def heading(title: str, *lines: str) -> alt.TitleParams:
    """A picture's title with smaller lines below it."""
    return alt.TitleParams(text=title, subtitle=list(lines)) if lines else alt.TitleParams(title)


def styled(chart: Any) -> Any:
    """The whole picture in commsim's look."""
    return (
        chart.configure(background=GROUND, font="system-ui, 'DejaVu Sans', sans-serif", padding=14)
        .configure_axis(
            gridColor=GRID, domainColor=GREY, tickColor=GREY, labelColor=TEXT, titleColor=TEXT,
            labelFontSize=11, titleFontSize=12, titleFontWeight="normal", labelLimit=320,
            labelFlush=False, labelSeparation=6,
        )
        .configure_title(
            anchor="start", color=BLACK, fontSize=14, subtitleColor=TEXT, subtitleFontSize=11,
            offset=10,
        )
        .configure_legend(
            labelColor=TEXT, titleColor=TEXT, labelFontSize=11, titleFontSize=11, labelLimit=620,
            symbolBaseFillColor=GREY, symbolBaseStrokeColor=GREY,
        )
        .configure_header(labelColor=TEXT, titleColor=TEXT)
        .configure_view(stroke=None)
    )  # fmt: skip


def spec(chart: Any, *, dark: bool = False) -> dict[str, Any]:
    """The whole picture as Vega-Lite, in commsim's look, for a light or a dark ground."""
    found: dict[str, Any] = styled(chart).to_dict()
    data = found.pop("datasets", {})
    if dark:
        found = _recoloured(found)
    return found | {"datasets": data}


def _recoloured(part: Any) -> Any:
    if isinstance(part, dict):
        return {key: _recoloured(value) for key, value in part.items()}
    if isinstance(part, list):
        return [_recoloured(value) for value in part]
    return DARK.get(part, part) if isinstance(part, str) else part
