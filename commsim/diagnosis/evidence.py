"""What an NCCL log and a topology text show, for faults to look at."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from commsim.measurements.nccl_facts import Finding
from commsim.measurements.nccl_log import NcclLog, read_nccl_log
from commsim.topology.imported import unnamed_machine
from commsim.topology.node import NodeTopology

SHOWN = 50.0
"""How much more likely a cause is if a log or a topology text shows it: such text is seldom wrong,
but the cause may be there and not be what is slow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clue:
    """One line of evidence; `factor` is how much more (or, below 1, less) likely a cause is."""

    text: str
    factor: float = SHOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that is known besides durations.

    settings: variables that the log shows and that the library was not known to have.
    """

    log: NcclLog | None = None
    findings: tuple[Finding, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    node: NodeTopology | None = None

    def told(self, *kinds: str) -> Iterator[Clue]:
        """What the log shows of these kinds, each with its first line."""
        for finding in self.findings:
            if finding.kind in kinds:
                yield Clue(text=f"NCCL log, line {finding.lines[0]}: {finding.text}")

    def set_to(self, name: str) -> str | None:
        """The value that the log shows of a variable; None where it shows none."""
        return dict(self.settings).get(name)


def gather(
    log: NcclLog | str | os.PathLike[str] | None,
    topology: NodeTopology | str | os.PathLike[str] | None,
    known: dict[str, str],
) -> Evidence:
    """The evidence in an NCCL log and a topology text (or file); SpecError where one is no such.

    known: the variables that the library was given.
    """
    if log is not None and not isinstance(log, NcclLog):
        log = read_nccl_log(log)
    if topology is not None and not isinstance(topology, NodeTopology):
        topology = unnamed_machine(Path(topology))
    if log is None:
        return Evidence(node=topology)
    shown = {s.name: s.value for s in log.settings}
    new = {name: value for name, value in shown.items() if known.get(name) != value}
    return Evidence(
        log=log, findings=log.evidence(), settings=tuple(sorted(new.items())), node=topology
    )
