"""Bandwidth and latency curves in nccl-tests' manner: the interval a band, measurements on top."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import altair as alt

from commsim.collectives.collective import bus_factor
from commsim.measurements.measurement import Measurement
from commsim.prediction import Prediction
from commsim.report.plots.style import (
    BLACK,
    GB,
    HEIGHT,
    WIDTH,
    Chart,
    colour,
    data,
    heading,
    sizes_axis,
    times,
)
from commsim.units import format_rate, format_size, format_time


def curves(
    lines: Mapping[str, Sequence[Prediction]], measured: Sequence[Measurement] = ()
) -> Chart:
    """Bus bandwidth and time by size of every named line; measured points of its operation.

    A barrier, which has no size, is left out.
    """
    names = list(lines)
    rows = [r for name in names for r in _rows(name, lines[name])]
    points = list(_measured(measured))
    sizes = [r["size"] for r in rows] + [r["size"] for r in points]
    ends = [r[key] for r in rows for key in ("time_low", "time_high")]
    ends += [r["time"] for r in points]
    across, coloured = sizes_axis(sizes), colour("line", names, orient="bottom", columns=1)
    tip = [
        alt.Tooltip(f"{name}:N", title=title)
        for name, title in (
            ("line", "what"), ("size_text", "size"), ("time_text", "time"),
            ("bandwidth_text", "bus bandwidth"), ("choice", "choice"),
        )
    ]  # fmt: skip
    first = next(iter(lines.values()))[0]
    title = first.collective.operation
    if len({line[0].n_ranks for line in lines.values()}) == 1:
        title += f", {first.n_ranks} ranks"
    interval = "line: predicted; band: 80 % interval" + ("; dots: measured" if points else "")

    def panel(what: str, upwards: Callable[[str], alt.Y]) -> Chart:
        base = alt.Chart(data(rows)).encode(x=across, y=upwards(what), color=coloured)
        band = base.mark_area(opacity=0.22).encode(
            y=upwards(f"{what}_low"), y2=alt.Y2(f"{what}_high:Q")
        )
        layers: list[Any] = [band, base.mark_line(), base.mark_circle(size=26).encode(tooltip=tip)]
        if points:
            dots = alt.Chart(data(points)).mark_point(size=34, color=BLACK, strokeWidth=1.2)
            layers.append(dots.encode(x=across, y=upwards(what), tooltip=tip[1:4]))
        return alt.layer(*layers).properties(width=WIDTH, height=HEIGHT)

    return alt.hconcat(
        panel("bandwidth", lambda name: alt.Y(f"{name}:Q").axis(title="bus bandwidth (GB/s)")),
        panel("time", lambda name: alt.Y(f"{name}:Q", **times("time", ends))),
        spacing=28,
    ).properties(title=heading(title, interval))


def _rows(name: str, predictions: Sequence[Prediction]) -> Iterator[dict[str, Any]]:
    for p in predictions:
        low, high = p.interval
        if not p.collective.nbytes:
            continue
        moved = p.collective.nbytes * bus_factor(p.collective.operation, p.n_ranks)
        yield {
            "line": name, "size": p.collective.nbytes, "time": p.duration, "time_low": low,
            "time_high": high, "bandwidth": p.bus_bandwidth / GB,
            "bandwidth_low": moved / high / GB, "bandwidth_high": moved / low / GB,
            "size_text": format_size(p.collective.nbytes), "time_text": format_time(p.duration),
            "bandwidth_text": format_rate(p.bus_bandwidth),
            "choice": ", ".join(filter(None, (p.algorithm, p.protocol))),
        }  # fmt: skip


def _measured(measured: Sequence[Measurement]) -> Iterator[dict[str, Any]]:
    for m in measured:
        if m.collective.nbytes:
            yield {
                "size": m.collective.nbytes, "time": m.duration,
                "bandwidth": m.bus_bandwidth / GB,
                "size_text": format_size(m.collective.nbytes),
                "time_text": format_time(m.duration),
                "bandwidth_text": format_rate(m.bus_bandwidth),
            }  # fmt: skip
