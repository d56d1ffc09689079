"""The same collective on several groups: on each alone, then on all at the same time."""

from __future__ import annotations

from dataclasses import replace

from commsim.measure.plan import Step
from commsim.measure.session import Record, Session
from commsim.measure.trial import trial


def measure(step: Step, session: Session) -> list[Record]:
    """Of each group a record alone, then one together, which tells how much longer it took."""
    assert step.collective is not None
    asked = step.collective
    roots = [None if asked.root is None else group[0] for group in step.groups]
    collectives = [
        replace(asked, ranks=group, root=root)
        for group, root in zip(step.groups, roots, strict=True)
    ]
    found: list[Record] = []
    for in_place in step.forms:
        alone = [trial(session, [collective], in_place) for collective in collectives]
        together = trial(session, collectives, in_place)
        if together is None:
            continue
        groups = [list(group) for group in step.groups]
        for lone, record in zip(alone, together, strict=True):
            assert lone is not None
            slower = record["duration_s"] / lone[0]["duration_s"]
            found += lone
            found.append(
                record | {"kind": "together", "groups": groups, "slowdown": slower,
                          "alone_s": lone[0]["duration_s"]}
            )  # fmt: skip
    return found
