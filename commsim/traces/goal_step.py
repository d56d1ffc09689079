"""A step as GOAL: computing and pauses as `calc` (ns), operations as the messages that carry them
out.

Every rank's part must be known. A step of which one rank is recorded, all its groups being all
ranks, is taken to be alike on every rank; other ranks' files cannot be done without.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from commsim.collectives.schedule import Schedule
from commsim.errors import ScheduleError
from commsim.libraries.carry_out import carry_out
from commsim.prediction import Prediction
from commsim.traces.events import LOCAL, SEND, Event, events
from commsim.traces.line import Part
from commsim.traces.merging import BEGIN
from commsim.traces.replay import Priced, Replay


def lines(replay: Replay) -> Iterator[str]:
    """The lines of a step in GOAL. Ranks, then the switches that take part in operations."""
    _check(replay)
    own = {rank: replay.parts.get(rank) or next(iter(replay.parts.values()))
           for rank in range(replay.world)}  # fmt: skip
    like = {rank: rank if rank in replay.parts else next(iter(replay.parts))
            for rank in range(replay.world)}  # fmt: skip
    carried = _Carried(replay)
    body: list[str] = []
    for rank, parts in own.items():
        body += ["", f"rank {rank} {{", *_rank(replay, rank, like[rank], parts, carried), "}"]
    switches = carried.switches(replay)
    for vertex in sorted(switches):
        body += ["", f"rank {vertex} {{", *switches[vertex], "}"]
    yield f"num_ranks {replay.world + len(switches)}"
    yield from body


def _check(replay: Replay) -> None:
    if any(p.prediction is None and len(p.ranks) > 1 for p in replay.operations):
        raise ScheduleError(
            "GOAL holds the messages of operations: give a cluster (--cluster), whose library says"
            " which they are, and a recording that says the sizes"
        )
    missing = [r for r in range(replay.world) if r not in replay.parts]
    alike = len(replay.parts) == 1 and all(
        set(p.ranks) == set(range(replay.world)) and not p.call.is_message
        for p in replay.operations
    )
    if missing and not alike:
        raise ScheduleError(
            f"GOAL needs every rank: of {replay.world} ranks {len(missing)} are not recorded, rank"
            f" {missing[0]} first; give their files"
        )


@dataclass(slots=True)
class _Messages:
    """What carries an operation out: by vertex its events; whose vertices they are; its number."""

    number: int
    by_vertex: tuple[tuple[Event, ...], ...]
    ranks: tuple[int, ...]
    first_tag: int


class _Carried:
    """The messages of every operation, each with tags of its own."""

    def __init__(self, replay: Replay) -> None:
        self.known: dict[int, tuple[tuple[Event, ...], ...]] = {}  # by a prediction's identity
        self.of: dict[Priced, _Messages] = {}
        tag = 0
        for i, priced in enumerate(replay.operations):
            if priced.prediction is None:
                continue
            found = self._events(priced.prediction)
            self.of[priced] = _Messages(i, found, priced.ranks, tag)
            tag += 1 + max((e.op.index for here in found for e in here), default=0)

    def _events(self, prediction: Prediction) -> tuple[tuple[Event, ...], ...]:
        if id(prediction) not in self.known:
            schedule: Schedule = carry_out(
                prediction.collective, prediction.choice, prediction.cluster, fold=False
            ).schedule
            self.known[id(prediction)] = events(schedule)
        return self.known[id(prediction)]

    def switches(self, replay: Replay) -> dict[int, list[str]]:
        """What switches do, by their number behind the ranks."""
        found: dict[int, list[str]] = {}
        for told in self.of.values():
            for vertex in range(len(told.ranks), len(told.by_vertex)):
                number = replay.world + vertex - len(told.ranks)
                line = found.setdefault(number, [])
                for event in told.by_vertex[vertex]:
                    line += _event(told, event, replay.world, 0, ())
        return found


def _rank(
    replay: Replay, rank: int, recorded: int, parts: Sequence[Part], carried: _Carried
) -> Iterator[str]:
    """A rank's lines. A part's label ends when the part does."""
    lead = replay.spans.ends[replay.task[recorded, BEGIN]]
    yield f"begin: calc {round(lead * 1e9)} cpu 0"
    cpus: dict[str, int] = {}
    last: dict[str, int] = {}
    streams = len({part.stream for part in parts})
    for i, part in enumerate(parts):
        cpu = cpus.setdefault(part.stream, len(cpus))
        before = last.get(part.stream)
        last[part.stream] = i
        needs = [f"p{j}" for j in (*part.after, *([] if before is None else [before]))]
        needs = needs or ["begin"]
        priced = replay.priced.get((recorded, i))
        told = None if priced is None else carried.of.get(priced)
        if told is None or rank not in told.ranks:
            at = replay.task[recorded, i]
            nanoseconds = round((replay.spans.ends[at] - replay.spans.starts[at]) * 1e9)
            yield f"p{i}: calc {nanoseconds} cpu {cpu}"
            yield from (f"p{i} requires {need}" for need in dict.fromkeys(needs))
            continue
        here = told.by_vertex[told.ranks.index(rank)]
        for event in here:
            yield from _event(told, event, replay.world, streams, tuple(dict.fromkeys(needs)))
        yield f"p{i}: calc 0 cpu {cpu}"
        ends = [f"o{told.number}_{e.op.index}" for e in here] or needs
        yield from (f"p{i} requires {end}" for end in dict.fromkeys(ends))


def _event(
    told: _Messages, event: Event, world: int, cpus: int, needs: Sequence[str]
) -> Iterator[str]:
    """A message's line, and what it requires."""
    op = event.op
    label = f"o{told.number}_{op.index}"
    tag = told.first_tag + op.index

    def name(vertex: int) -> int:
        n = len(told.ranks)
        return told.ranks[vertex] if vertex < n else world + vertex - n

    does = "calc 0"
    if event.kind == SEND:
        does = f"send {op.nbytes}b to {name(op.destination)} tag {tag}"
    elif event.kind != LOCAL:
        does = f"recv {op.nbytes}b from {name(op.source)} tag {tag}"
    yield f"{label}: {does} cpu {cpus + op.channel}"
    waits = [f"o{told.number}_{w}" for w in event.waits] or needs
    yield from (f"{label} requires {wait}" for wait in waits)
