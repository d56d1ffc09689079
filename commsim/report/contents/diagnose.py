"""The report of a diagnosis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from commsim.report.contents.shared import INTERVAL
from commsim.report.page import Facts, Lines, Part, Table


def title(data: Mapping[str, Any]) -> str:
    """One line: the verdict."""
    if data["healthy"]:
        return "Diagnosis: healthy"
    return f"Diagnosis: sick, most likely {data['hypotheses'][0]['cause']}"


def parts(data: Mapping[str, Any]) -> tuple[Part, ...]:
    """The verdict, the causes, and for the likeliest three what speaks for them."""
    likeliest = () if data["healthy"] else data["hypotheses"][:3]
    return (
        Facts(
            title="Verdict",
            rows=(
                ("healthy", "healthy"),
                ("likelihood of health", "likelihood"),
                ("measured", "summary"),
            ),
        ),
        Table(
            title="Causes, most likely first",
            path="hypotheses",
            columns=(
                ("likelihood", "likelihood"),
                ("cause", "cause"),
                ("what it is", "what"),
                ("fits best", "detail"),
            ),
        ),
        Table(
            title="What to look at and what to do",
            path="hypotheses",
            columns=(("cause", "cause"), ("check", "check"), ("fix", "fix")),
        ),
        *(
            Lines(title=f"Evidence: {h['cause']}", path=f"hypotheses/{i}/evidence")
            for i, h in enumerate(likeliest)
        ),
        Lines(title="Not visible in these measurements", path="untold"),
        Table(
            title="Measured and expected",
            path="points",
            columns=(
                ("operation", "operation"),
                ("size", "size_bytes"),
                ("ranks", "n_ranks"),
                ("measured", "measured_s"),
                ("expected", "expected_s"),
                *INTERVAL,
            ),
        ),
        Lines(title="Assumptions and doubts", path="notes"),
    )
