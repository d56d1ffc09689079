"""Predicted against measured as a picture: PNG, or SVG in a page that needs nothing else."""

from __future__ import annotations

import html
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from commsim.calibration.agreement import Agreement, Compared
from commsim.errors import CalibrationError
from commsim.units import format_size, format_time

FORMATS = (".png", ".html")
COLOURS = ("#1b6ca8", "#d1602d", "#3a8a4d", "#8a4fa3", "#b58a00", "#4b4b4b")
US = 1e6  # microseconds of a second
PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{title}</title>
<style>body{{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:62em;padding:0 1em}}
svg{{width:100%;height:auto}} table{{border-collapse:collapse;margin:1em 0}}
td,th{{padding:.15em .8em;text-align:right;border-bottom:1px solid #ddd}}
td:first-child,th:first-child,td:nth-child(2),th:nth-child(2){{text-align:left}}</style>
<h1>{title}</h1>
{picture}
{tables}
</html>
"""


def check_picture(path: Path) -> None:
    """Raises CalibrationError for a file that `draw` cannot write."""
    if path.suffix.lower() not in FORMATS:
        raise CalibrationError(
            f"{path}: expected a picture's name ending in {' or '.join(FORMATS)}, got "
            f"{path.suffix or 'no ending'}"
        )
    _pyplot()


def draw(path: Path, compared: Sequence[Compared], rows: Sequence[Agreement], profile: str) -> None:
    """Writes the picture; .html with the tables and the largest errors below it.

    Left: every point, predicted over measured. Right: how far off by size. Raises CalibrationError
    where matplotlib is missing or the ending is neither .png nor .html.
    """
    check_picture(path)
    figure = _figure(compared, rows)
    if path.suffix.lower() == ".png":
        figure.savefig(path, dpi=150)
    else:
        svg = io.StringIO()
        figure.savefig(svg, format="svg", metadata={"Date": None})
        picture = svg.getvalue()
        title = html.escape(f"Predicted against measured, profile {profile}")
        page = PAGE.format(
            title=title, picture=picture[picture.index("<svg") :],
            tables=_table(rows) + _worst(compared),
        )  # fmt: skip
        path.write_text(page, encoding="utf-8")
    _pyplot().close(figure)


def _pyplot() -> Any:
    try:
        import matplotlib  # optional, and slow to load

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError as error:
        raise CalibrationError(
            "a picture needs matplotlib, which is not installed; pip install 'commsim[plot]'"
        ) from error
    return pyplot


def _figure(compared: Sequence[Compared], rows: Sequence[Agreement]) -> Any:
    plt = _pyplot()
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.8))
    operations = list(dict.fromkeys(c.point.case.operation for c in compared))
    for operation, colour in zip(operations, COLOURS * len(operations), strict=False):
        for nodes, marker in (("one node", "o"), ("several nodes", "^")):
            mine = [
                c
                for c in compared
                if c.point.case.operation == operation
                and (c.point.case.nodes > 1) == (nodes == "several nodes")
            ]
            if not mine:
                continue
            style = {"s": 16, "alpha": 0.55, "color": colour, "marker": marker, "linewidths": 0}
            measured = [c.point.measured * US for c in mine]
            predicted = [c.prediction.duration * US for c in mine]
            left.scatter(measured, predicted, label=f"{operation}, {nodes}", **style)
            sizes = [max(1, c.point.collective.nbytes) for c in mine]
            right.scatter(sizes, [100 * (c.ratio - 1) for c in mine], **style)
    ends = [c.point.measured * US for c in compared]
    ends += [c.prediction.duration * US for c in compared]
    span = (min(ends) / 1.3, max(ends) * 1.3)
    left.plot(span, span, color="black", linewidth=0.8, zorder=1.5)
    left.set(xscale="log", yscale="log", xlabel="measured, us", ylabel="predicted, us")
    left.set(xlim=span, ylim=span)
    left.legend(frameon=False, fontsize=8, loc="upper left")
    right.axhline(0, color="black", linewidth=0.8, zorder=1.5)
    right.set_xscale("log", base=2)
    most = max(30.0, *(min(150.0, abs(100 * (c.ratio - 1)) * 1.05) for c in compared))
    right.set(xlabel="size", ylabel="predicted / measured - 1, %", ylim=(-min(most, 100), most))
    right.xaxis.set_major_formatter(lambda value, _: format_size(round(value)) if value else "")
    right.tick_params(axis="x", labelrotation=30)
    whole = rows[0]
    figure.suptitle(
        f"{whole.points} points: median error {whole.median:.1%}, mean {whole.mean:.1%}, "
        f"{whole.inside:.0%} inside the 80 % interval",
        fontsize=11,
    )
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(visible=True, color="#eeeeee")
        axes.set_axisbelow(True)
    figure.tight_layout()
    return figure


def _table(rows: Sequence[Agreement]) -> str:
    head = ("by", "group", "points", "median", "mean", "90 %", "bias", "inside")
    body = [
        (
            r.kind, r.group, str(r.points), f"{r.median:.1%}", f"{r.mean:.1%}",
            f"{r.worst_tenth:.1%}", f"{r.bias:.3f}", f"{r.inside:.0%}",
        )
        for r in rows
    ]  # fmt: skip
    return _html(head, body)


def _worst(compared: Sequence[Compared], count: int = 20) -> str:
    worst = sorted(compared, key=lambda c: -abs(c.ratio - 1))[:count]
    head = ("largest errors", "where", "measured", "predicted", "error")
    body = [
        (
            str(c.point), c.point.where, format_time(c.point.measured),
            format_time(c.prediction.duration), f"{c.ratio - 1:+.0%}",
        )
        for c in worst
    ]  # fmt: skip
    return _html(head, body)


def _html(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    def row(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in cells) + "</tr>"

    return "<table>" + row(head, "th") + "".join(row(cells, "td") for cells in body) + "</table>"
