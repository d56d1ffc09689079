"""The report of a validation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from commsim.report.contents.shared import CHOICE, ERRORS, INTERVAL
from commsim.report.page import Facts, Part, Table


def title(data: Mapping[str, Any]) -> str:
    """One line: how many points under which profile."""
    return (
        f"Predicted against measured: {len(data['points'])} points, profile "
        f"{data['profile'] or 'as shipped'}"
    )


PARTS: tuple[Part, ...] = (
    Facts(
        title="All points",
        rows=(
            ("median error", "agreement/0/median"),
            ("mean error", "agreement/0/mean"),
            ("a tenth exceeds", "agreement/0/worst_tenth"),
            ("bias", "agreement/0/bias"),
            ("inside the 80 % interval", "agreement/0/inside"),
            ("tolerance", "tolerance"),
            ("within it", "within_tolerance"),
        ),
    ),
    Table(
        title="By group",
        path="agreement",
        columns=(
            ("by", "kind"),
            ("group", "group"),
            *ERRORS,
            ("inside 80 %", "inside"),
        ),
    ),
    Table(
        title="Points",
        path="points",
        columns=(
            ("operation", "operation"),
            ("size", "size_bytes"),
            ("ranks", "n_ranks"),
            ("nodes", "nodes"),
            ("measured", "measured_s"),
            ("predicted", "predicted_s"),
            *INTERVAL,
            *CHOICE,
            ("where", "where"),
        ),
    ),
)


def parts(data: Mapping[str, Any]) -> tuple[Part, ...]:
    """All parts, whatever the data."""
    return PARTS
