"""What the reports of several commands show alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from commsim.report.page import Table

ERRORS = (
    ("points", "points"),
    ("median", "median"),
    ("mean", "mean"),
    ("a tenth exceeds", "worst_tenth"),
    ("bias", "bias"),
)
"""Columns of a group's errors, |predicted / measured - 1|."""
CHOICE = (("algorithm", "algorithm"), ("protocol", "protocol"))
INTERVAL = (("from (80 %)", "interval_s/0"), ("to (80 %)", "interval_s/1"))
PARTS_OF_TIME = (("part", "#key"), ("time", ""))


def memory_by_stage(stages: Sequence[Mapping[str, Any]]) -> Table:
    """A row a stage, a column for each kind of bytes that any of them holds."""
    held = dict.fromkeys(k for stage in stages for k in stage if k.endswith("_bytes"))
    return Table(
        title="Memory by stage",
        path="memory/stages",
        columns=(
            ("stage", "stage"),
            ("rank", "rank"),
            ("fullest", "moment"),
            *((k.removesuffix("_bytes").replace("_", " "), k) for k in held),
        ),
    )
