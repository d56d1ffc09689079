"""Every step of a plan on this rank, in step with the others."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from commsim.measure.backend import Backend
from commsim.measure.plan import Plan, Step
from commsim.measure.provenance import header
from commsim.measure.session import Record, Session


def follow(
    plan: Plan,
    backend: Backend,
    begin: Callable[[Record], None],
    done: Callable[[int, list[Record]], None],
) -> None:
    """Measures every step; on rank 0 tells of the session, then of each step's records."""
    session = Session(backend, plan.settings)
    about = header(plan, session)
    if backend.rank == 0:
        begin(about)
    for index, step in enumerate(plan.steps):
        records = measure(step, session)
        if backend.rank == 0:
            done(index, records)


def measure(step: Step, session: Session) -> list[Record]:
    """The records of one step on rank 0; [] on the others."""
    kind = importlib.import_module(f"commsim.measure.kinds.{step.kind}")
    found: list[Record] = kind.measure(step, session)
    return found
