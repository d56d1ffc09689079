"""The report of a prediction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from commsim.report.contents.shared import CHOICE, INTERVAL, PARTS_OF_TIME
from commsim.report.page import Facts, Lines, Part, Table
from commsim.report.words import words


def title(data: Mapping[str, Any]) -> str:
    """One line: what was asked of what."""
    size = f" of {words('size_bytes', data['size_bytes'])}" if data["size_bytes"] else ""
    return (
        f"{data['operation']}{size} on {data['cluster']}: {data['n_ranks']} ranks on "
        f"{data['nodes']} node{'s' * (data['nodes'] > 1)}, {data['library']}"
    )


PARTS: tuple[Part, ...] = (
    Facts(
        title="Answer",
        rows=(
            ("duration", "duration_s"),
            *INTERVAL,
            ("algorithm bandwidth", "algorithm_bandwidth_bytes_per_s"),
            ("bus bandwidth", "bus_bandwidth_bytes_per_s"),
            *CHOICE,
            ("channels", "channels"),
            ("bottleneck", "bottleneck"),
        ),
    ),
    Table(title="Where the time goes", path="breakdown_s", columns=PARTS_OF_TIME),
    Lines(title="Why the library chooses so", path="reasons"),
    Table(
        title="Candidates",
        path="alternatives",
        columns=(
            *CHOICE,
            ("channels", "channels"),
            ("predicted", "duration_s"),
            ("library's estimate", "estimate_s"),
            ("available", "available"),
            ("why not", "reason"),
        ),
    ),
    Lines(title="Assumptions and doubts", path="notes"),
)


def parts(data: Mapping[str, Any]) -> tuple[Part, ...]:
    """All parts, whatever the data."""
    return PARTS
