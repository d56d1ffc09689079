"""The report of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from commsim.report.contents.shared import INTERVAL
from commsim.report.page import Facts, Lines, Part, Table


def title(data: Mapping[str, Any]) -> str:
    """One line: which model on what."""
    return f"Layouts of {data['model']} on {data['n_ranks']} x {data['gpu']} of {data['cluster']}"


LAYOUT = tuple(
    (word, f"layout/{key}")
    for word, key in (
        ("tp", "tp"), ("pp", "pp"), ("dp", "dp"), ("cp", "cp"), ("ep", "ep"),
        ("micro-batch", "micro_batch"), ("chunks", "interleave"), ("schedule", "schedule"),
        ("ZeRO", "zero_stage"), ("recompute", "recompute"),
    )
)  # fmt: skip

PARTS: tuple[Part, ...] = (
    Facts(
        title="Search",
        rows=(
            ("best by", "objective"),
            ("layouts searched", "searched"),
            ("layouts timed", "timed"),
            ("USD per GPU hour", "price/usd_per_gpu_hour"),
            ("price from", "price/source"),
        ),
    ),
    Table(
        title="The best layouts",
        path="plans",
        columns=(
            ("", "place"),
            *LAYOUT,
            ("step", "duration_s"),
            *INTERVAL,
            ("tie", "tie"),
            ("MFU", "mfu"),
            ("memory left", "headroom_bytes"),
            ("bottleneck", "bottleneck"),
            ("its share", "bottleneck_share"),
            ("USD for 10^12 tokens", "usd_per_trillion_tokens"),
        ),
    ),
    Lines(title="Why the best beats the second", path="explanation"),
    Table(
        title="Not beaten in both time and memory",
        path="front",
        columns=(*LAYOUT, ("step", "duration_s"), ("memory left", "headroom_bytes")),
    ),
    Table(
        title="Left out",
        path="rejected",
        columns=(("count", "count"), ("of", "of"), ("why", "reason")),
    ),
    Lines(title="Assumptions and doubts", path="notes"),
)


def parts(data: Mapping[str, Any]) -> tuple[Part, ...]:
    """All parts, whatever the data."""
    return PARTS
