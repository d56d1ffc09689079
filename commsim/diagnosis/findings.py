"""What a diagnosis finds: healthy or not, and the causes that may be behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from commsim.collectives.collective import Collective
from commsim.units import Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One collective: measured (the median of repeats), and predicted for a healthy machine, s."""

    collective: Collective
    n_ranks: int
    measured: Seconds
    expected: Seconds
    low: Seconds
    high: Seconds

    @property
    def slower(self) -> float:
        """Measured over expected."""
        return self.measured / self.expected


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypothesis:
    """A cause, and how well it explains what was measured.

    likelihood: probability that this is the cause if something is wrong; all sum to 1. detail: the
    way of the fault that fits best. evidence: lines on why it is ranked so. curve: the durations
    in s that it predicts, one for each of Findings.points.
    """

    cause: str
    likelihood: float
    what: str
    detail: str
    evidence: tuple[str, ...]
    check: str
    fix: str
    curve: tuple[Seconds, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The verdict. likelihood: probability that the machine is healthy. hypotheses: most likely
    first, also for a healthy machine. points: what was compared. untold: causes that these
    measurements cannot show, as they would change nothing. notes: doubts and assumptions.
    """

    healthy: bool
    likelihood: float
    summary: str
    hypotheses: tuple[Hypothesis, ...]
    points: tuple[Compared, ...]
    untold: tuple[str, ...]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON-able figures, keys with a unit suffix."""
        return {
            "healthy": self.healthy,
            "likelihood": self.likelihood,
            "summary": self.summary,
            "hypotheses": [
                {
                    "cause": h.cause,
                    "likelihood": h.likelihood,
                    "what": h.what,
                    "detail": h.detail,
                    "evidence": list(h.evidence),
                    "check": h.check,
                    "fix": h.fix,
                    "curve_s": list(h.curve),
                }
                for h in self.hypotheses
            ],
            "points": [
                {
                    "operation": p.collective.operation,
                    "size_bytes": p.collective.nbytes,
                    "dtype": p.collective.dtype,
                    "n_ranks": p.n_ranks,
                    "measured_s": p.measured,
                    "expected_s": p.expected,
                    "interval_s": [p.low, p.high],
                }
                for p in self.points
            ],
            "untold": list(self.untold),
            "notes": list(self.notes),
        }
