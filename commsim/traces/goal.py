"""GOAL, the text that LogGOPSim simulates: per rank its sends, receives and what each requires.

Source of the language: Hoefler, Siebert and Lumsdaine, "Group operation assembly language", ICPP
2009, doi:10.1109/ICPP.2009.70; of the simulator: Hoefler, Schneider and Lumsdaine, "LogGOPSim",
HPDC 2010, doi:10.1145/1851476.1851564.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from commsim.collectives.schedule import Schedule
from commsim.traces import goal_step
from commsim.traces.events import RECEIVE, SEND, Event, events
from commsim.traces.replay import Replay
from commsim.traces.step_writer import StepWriter
from commsim.traces.trace import Trace, TraceWriter


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal(TraceWriter, StepWriter):
    """GOAL text. Ranks are positions in their group; switches follow as further ranks.

    The label and the tag of an op are its number, so that each tag matches one send with one
    receive. Each channel runs on a `cpu` of its own. Sums and copies take no time (`calc 0`): how
    long they take is not in a schedule.
    """

    def write(self, trace: Trace, path: str | os.PathLike[str]) -> None:
        with Path(path).open("w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines(trace.schedule))

    def write_step(self, replay: Replay, path: str | os.PathLike[str]) -> tuple[str, ...]:
        found = list(goal_step.lines(replay))  # nothing is written of what cannot be expressed
        Path(path).write_text("\n".join(found) + "\n", encoding="utf-8")
        return (os.fspath(path),)


def lines(schedule: Schedule) -> Iterator[str]:
    """The lines of a schedule in GOAL."""
    by_vertex = events(schedule)
    yield f"num_ranks {schedule.vertices}"
    for vertex, here in enumerate(by_vertex):
        yield ""
        yield f"rank {vertex} {{"
        for event in here:
            label = f"l{event.op.index}"
            yield f"{label}: {_task(event)} cpu {event.op.channel}"
            yield from (f"{label} requires l{w}" for w in event.waits)
        yield "}"


def _task(event: Event) -> str:
    op = event.op
    if event.kind == SEND:
        return f"send {op.nbytes}b to {op.destination} tag {op.index}"
    if event.kind == RECEIVE:
        return f"recv {op.nbytes}b from {op.source} tag {op.index}"
    return "calc 0"
