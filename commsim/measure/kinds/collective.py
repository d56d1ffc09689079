"""One collective of one size, in each of its forms: a record for each."""

from __future__ import annotations

from commsim.measure.plan import Step
from commsim.measure.session import Record, Session
from commsim.measure.trial import trial


def measure(step: Step, session: Session) -> list[Record]:
    """A record of each form."""
    assert step.collective is not None
    found: list[Record] = []
    for in_place in step.forms:
        found += trial(session, [step.collective], in_place) or []
    return found
