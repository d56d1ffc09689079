"""The report of a calibration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from commsim.report.contents.shared import ERRORS
from commsim.report.page import Facts, Lines, Part, Table


def title(data: Mapping[str, Any]) -> str:
    """One line: the profile and what it was made from."""
    report = data["report"]
    return (
        f"Profile {data['profile']}: {report['points']} points of {report['measurements']} "
        "measurements"
    )


PARTS: tuple[Part, ...] = (
    Facts(
        title="Calibration",
        rows=(
            ("made", "made"),
            ("commsim", "commsim"),
            ("started from", "base"),
            ("saved as", "output"),
            ("measurements", "report/measurements"),
            ("points", "report/points"),
            ("median error on the points of the fit", "report/fitted"),
        ),
    ),
    Table(
        title="Error on points held back from the fit",
        path="report/held_out",
        columns=(
            ("held back by", "left_out"),
            ("group", "group"),
            *ERRORS,
        ),
    ),
    Table(
        title="Measured",
        path="covered",
        columns=(
            ("operation", "operation"),
            ("hardware", "hardware"),
            ("nodes from", "nodes/0"),
            ("to", "nodes/1"),
            ("ranks from", "ranks/0"),
            ("to", "ranks/1"),
            ("sizes from", "sizes_bytes/0"),
            ("to", "sizes_bytes/1"),
            ("points", "points"),
        ),
    ),
    Table(
        title="Constants learnt",
        path="report/learnt",
        columns=(
            ("constant", "name"),
            ("x base", "factor"),
            ("+- before", "before"),
            ("+- now", "after"),
            ("meaning", "meaning"),
        ),
    ),
    Lines(title="Not determined by these measurements", path="report/undetermined"),
    Table(
        title="Outliers",
        path="report/outliers",
        columns=(
            ("where", "where"),
            ("what", "what"),
            ("measured", "measured_s"),
            ("expected", "predicted_s"),
        ),
    ),
    Lines(title="Files", path="files"),
)


def parts(data: Mapping[str, Any]) -> tuple[Part, ...]:
    """All parts, whatever the data."""
    return PARTS
