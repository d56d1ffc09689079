"""`commsim validate`: predicted against measured, for files of measurements."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Annotated

import typer

from commsim.calibration.agreement import Agreement, Compared, agreement, compare
from commsim.cli import _arguments as a
from commsim.cli import _plot as pictures
from commsim.cli._drawn import Drawn, Plot, Report, Theme
from commsim.cli._measured import Files, MeasuredCluster, read_measured
from commsim.cli._output import print_json, print_table
from commsim.errors import UnitError
from commsim.units import format_time

PASSED = 1  # exit code where the error is larger than --tolerance
WORST = 10  # points that are listed


def validate(
    files: Files,
    cluster: MeasuredCluster = None,
    nodes: a.Nodes = None,
    settings: a.Settings = None,
    gpu: a.GpuName = None,
    library: a.LibraryText = None,
    env: a.Environment = None,
    launch: a.Launch = "processes",
    profile: a.ProfilePath = None,
    tolerance: Annotated[
        str | None,
        typer.Option(
            "--tolerance", help="Exit with 1 if the median error of all points is larger: 10%."
        ),
    ] = None,
    plot: Plot = None,
    theme: Theme = "auto",
    report: Report = None,
    json: a.Json = False,
) -> int:
    """How far predictions are off: a table by regime, operation, nodes and ranks, and the worst.

    Repeats of one question are one point, their median the truth; the error of a point is
    |predicted / measured - 1|.

    Example: commsim validate logs/ --cluster dgx-h100 --nodes 4 --tolerance 10%

    Exit codes: 0 ok, 2 bad input, 1 the median error of all points is larger than --tolerance.
    """
    most = None if tolerance is None else read_share("--tolerance", tolerance)
    drawn = Drawn(plot, theme, report).check()
    measurements = read_measured(
        files, cluster, nodes=nodes, settings=settings, gpu=gpu, library=library, env=env,
        launch=launch,
    )  # fmt: skip
    book = a.read_profile(profile)
    compared = compare(measurements, book)
    rows = agreement(compared)
    passed = most is not None and rows[0].median > most
    data = {
        "profile": book.name if book else None,
        "tolerance": most,
        "within_tolerance": None if most is None else not passed,
        "agreement": [asdict(row) for row in rows],
        "points": [_point(c) for c in compared],
    }
    name = data["profile"] or "as shipped"
    drawn.write(
        lambda: pictures.validated(compared, rows, f"Predicted against measured, profile {name}"),
        "validate", data,
    )  # fmt: skip
    if json:
        print_json(data)
    else:
        _print(compared, rows)
        if passed:
            print(f"\nthe median error, {rows[0].median:.1%}, is above --tolerance {most:.3g}")
    return PASSED if passed else 0


def read_share(option: str, text: str) -> float:
    """A share from `10%`."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*%\s*", text)
    if match is None:
        raise UnitError(f"{option}: expected a share such as 10%, got {text!r}")
    return float(match[1]) / 100


def _print(compared: tuple[Compared, ...], rows: tuple[Agreement, ...]) -> None:
    print_table(
        "predicted against measured",
        ("by", "group", ">points", ">median", ">mean", ">90 %", ">bias", ">inside 80 %"),
        (
            (
                row.kind, row.group, str(row.points), f"{row.median:.1%}", f"{row.mean:.1%}",
                f"{row.worst_tenth:.1%}", f"{row.bias:.3f}", f"{row.inside:.0%}",
            )
            for row in rows
        ),
    )  # fmt: skip
    worst = sorted(compared, key=lambda c: -abs(c.ratio - 1))[:WORST]
    print_table(
        "largest errors",
        ("point", "where", ">measured", ">predicted", ">error"),
        (
            (
                str(c.point), c.point.where, format_time(c.point.measured),
                format_time(c.prediction.duration), f"{c.ratio - 1:+.0%}",
            )
            for c in worst
        ),
    )  # fmt: skip


def _point(c: Compared) -> dict[str, object]:
    low, high = c.prediction.interval
    asked = c.point.collective
    return {
        "operation": asked.operation,
        "size_bytes": asked.nbytes,
        "dtype": asked.dtype,
        "n_ranks": c.point.case.ranks,
        "nodes": c.point.case.nodes,
        "measured_s": c.point.measured,
        "predicted_s": c.prediction.duration,
        "interval_s": [low, high],
        "algorithm": c.prediction.algorithm,
        "protocol": c.prediction.protocol,
        "where": c.point.where,
    }
