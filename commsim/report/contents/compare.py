"""The report of a comparison of two clusters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from commsim.report.page import Facts, Lines, Part, Table


def title(data: Mapping[str, Any]) -> str:
    """One line: what was asked of which two."""
    first = data["sizes"][0]
    a, b = first["a"], first["b"]
    return (
        f"{a['operation']}: {a['cluster']} ({a['n_ranks']} ranks) against {b['cluster']} "
        f"({b['n_ranks']} ranks)"
    )


PARTS: tuple[Part, ...] = (
    Table(
        title="By size",
        path="sizes",
        columns=(
            ("size", "a/size_bytes"),
            ("A", "a/duration_s"),
            ("B", "b/duration_s"),
            ("A / B", "ratio"),
            ("A bus bandwidth", "a/bus_bandwidth_bytes_per_s"),
            ("B bus bandwidth", "b/bus_bandwidth_bytes_per_s"),
            ("A algorithm", "a/algorithm"),
            ("A protocol", "a/protocol"),
            ("B algorithm", "b/algorithm"),
            ("B protocol", "b/protocol"),
        ),
    ),
    Facts(title="One attribute of A changed at a time", rows=(("size", "causes_at_bytes"),)),
    Table(
        title="What the difference is due to",
        path="causes",
        columns=(
            ("attribute", "attribute"),
            ("A", "a"),
            ("B", "b"),
            ("A with it", "duration_s"),
            ("why not", "reason"),
        ),
    ),
    Facts(
        title="Price in USD per GPU hour",
        rows=(("A", "price_per_gpu_hour_usd/a"), ("B", "price_per_gpu_hour_usd/b")),
    ),
    Lines(title="Assumptions and doubts: A", path="sizes/0/a/notes"),
    Lines(title="Assumptions and doubts: B", path="sizes/0/b/notes"),
)


def parts(data: Mapping[str, Any]) -> tuple[Part, ...]:
    """All parts, whatever the data."""
    return PARTS
