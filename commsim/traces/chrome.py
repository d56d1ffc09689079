"""A played timeline as a Chrome trace, which https://ui.perfetto.dev and chrome://tracing open.

A process per rank (and switch): what it does in each collective, and a row per channel and
direction. A send lasts from `ready` to `sent` with its software inside, a receive from `begun` to
`arrived`. The process "links" shows how full the hottest links are.
Source of the format: "Trace Event Format", the Chromium project, 2016.
"""

from __future__ import annotations

import heapq
import itertools
import json
import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from commsim.engine.link_load import link_load
from commsim.engine.played import Played
from commsim.engine.timeline import Timeline
from commsim.traces import chrome_step
from commsim.traces.replay import Replay
from commsim.traces.step_writer import StepWriter
from commsim.units import Seconds, format_size

MOST = 100_000  # transfers, two slices each: what a browser still handles
STEPS, HOTTEST = 200, 50  # of the links' load

Event = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chrome(StepWriter):
    """A step as a Chrome trace: a process per rank, a row per stream, counters, and the links if
    the step is small enough to simulate them. links: whether to try."""

    links: bool = True

    def write_step(self, replay: Replay, path: str | os.PathLike[str]) -> tuple[str, ...]:
        found = itertools.chain(chrome_step.events(replay), self._links(replay))
        write_events(found, path)
        return (os.fspath(path),)

    def _links(self, replay: Replay) -> Iterator[Event]:
        timeline = chrome_step.simulated(replay) if self.links else None
        if timeline is not None:
            yield from _links(timeline, max(replay.parts) + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Slice:
    """A stretch of time in a process; slices of one row name that overlap get rows of their own."""

    row: tuple[int, int, str]  # collective, channel (-1: the collective as a whole), direction
    begin: int  # ns
    end: int
    name: str
    args: dict[str, Any]
    software: int = 0  # ns at its beginning


def write(timeline: Timeline, path: str | os.PathLike[str], most: int = MOST) -> None:
    """Write the trace, an event per line; see `events`."""
    write_events(events(timeline, most), path)


def write_events(found: Iterable[Event], path: str | os.PathLike[str]) -> None:
    """Write any events, one a line."""
    with Path(path).open("w", encoding="utf-8") as file:
        file.write('{"displayTimeUnit": "ns", "traceEvents": [\n')
        for i, event in enumerate(found):
            file.write((",\n" if i else "") + json.dumps(event))
        file.write("\n]}\n")


def events(timeline: Timeline, most: int = MOST) -> Iterator[Event]:
    """The events of a trace, times in us, in whole ns.

    Of more than `most` transfers the first rounds are kept, and the first event says so. What never
    ends is drawn until the last moment at which anything happened, and named so.
    """
    timeline = timeline.whole
    kept = _kept(timeline, most)
    total = sum(len(p.laid.schedule) for p in timeline.played)
    notes = list(timeline.notes)
    if total > most:
        notes.insert(0, f"only {most} of {total} transfers are shown: those of the first rounds")
    start = to_ns(min(p.asked for p in timeline.played))
    for note in notes:
        yield {"ph": "i", "s": "g", "pid": 0, "tid": 0, "ts": to_us(start), "name": note}
    slices: dict[int | str, list[_Slice]] = {}
    horizon = _horizon(timeline)
    for number, (each, ops) in enumerate(zip(timeline.played, kept, strict=True)):
        _add_collective(slices, number, each, horizon)
        _add_ops(slices, number, each, ops, horizon)
    order = sorted(slices, key=lambda who: (isinstance(who, str), who))  # ranks, then switches
    titles = tuple(f"{p.collective.operation} {i}" for i, p in enumerate(timeline.played))
    for pid, who in enumerate(order, start=1):
        name = f"rank {who}" if isinstance(who, int) else who
        yield from _process(pid, name, slices[who], titles)
    yield from _links(timeline, len(order) + 1)


def _kept(timeline: Timeline, most: int) -> list[list[int]]:
    """Per collective the ops to show, in their order."""
    rounds = [p.laid.schedule.round for p in timeline.played]
    first = np.argsort(np.concatenate(rounds), kind="stable")[:most]
    starts = np.cumsum([0, *map(len, rounds)])
    shown = np.zeros(starts[-1], dtype=np.bool_)
    shown[first] = True
    return [np.flatnonzero(shown[a:b]).tolist() for a, b in itertools.pairwise(starts)]


def _horizon(timeline: Timeline) -> Seconds:
    """The last moment at which anything happened."""
    moments = [t for p in timeline.played for t in (p.times.arrived, p.times.begun, p.joined)]
    moments.append(np.array([*timeline.conditions.deaths.values()], dtype=np.float64))
    moments.append(np.array([change.time for change in timeline.changes], dtype=np.float64))
    return max(float(m[np.isfinite(m)].max(initial=0.0)) for m in moments)


def _add_collective(
    slices: dict[int | str, list[_Slice]], number: int, each: Played, horizon: Seconds
) -> None:
    title = f"{each.collective.operation} {format_size(each.collective.nbytes)}"
    args = {"algorithm": each.algorithm, "protocol": each.protocol, "ranks": each.n}
    for p in np.flatnonzero(each.taking_part[: each.n]).tolist():
        end, joined = float(each.finished[p]), float(each.joined[p])
        if math.isfinite(joined):
            ends = math.isfinite(end)
            one = _Slice(
                row=(number, -1, ""),
                begin=to_ns(joined),
                end=to_ns(end if ends else horizon),
                name=title if ends else f"{title} (never ends)",
                args=args,
            )
            slices.setdefault(each.ranks[p], []).append(one)


def _add_ops(
    slices: dict[int | str, list[_Slice]],
    number: int,
    each: Played,
    ops: list[int],
    horizon: Seconds,
) -> None:
    schedule, times = each.laid.schedule, each.times
    for i in ops:
        if math.isnan(times.begun[i]):
            continue
        op = schedule[i]
        source, destination = each.name_of(op.source), each.name_of(op.destination)
        args = {"op": i, "round": op.round, "bytes": op.nbytes, "reduces": op.reduces}
        ready, begun = float(times.ready[i]), float(times.begun[i])
        sent, arrived = float(times.sent[i]), float(times.arrived[i])
        parts = [
            (source, "send", f"to {destination}", ready, sent),
            (destination, "receive", f"from {source}", begun, arrived),
        ]
        if op.source == op.destination:
            parts = [(source, "local", "local", ready, arrived)]
        for who, direction, what, begin, end in parts:
            lost = " (never arrives)" if math.isnan(end) else ""
            one = _Slice(
                row=(number, op.channel, direction),
                begin=to_ns(begin),
                end=to_ns(horizon if lost else end),
                name=f"{format_size(op.nbytes)} {what}{lost}",
                args=args,
                software=to_ns(begun) - to_ns(begin),
            )
            slices.setdefault(who, []).append(one)


def _process(
    pid: int, name: str, slices: list[_Slice], collectives: tuple[str, ...]
) -> Iterator[Event]:
    """The slices of a process in rows within which none overlap."""
    yield from naming(pid, 0, "process", name)
    slices.sort(key=lambda s: (s.row, s.begin, s.end))
    row, lanes, lane, last = None, list[tuple[int, int]](), 0, 0  # lanes: (free from, thread)
    for each in slices:
        if each.row != row:
            row, lanes, lane = each.row, [], 0
        if lanes and lanes[0][0] <= each.begin:
            thread = heapq.heappop(lanes)[1]
        else:
            last, lane = last + 1, lane + 1
            thread = last
            number, channel, direction = each.row
            title = collectives[number]
            if channel >= 0:
                title = f"channel {channel} {direction}"
                title += f", {collectives[number]}" if len(collectives) > 1 else ""
            yield from naming(pid, thread, "thread", f"{title} ({lane})" if lane > 1 else title)
        heapq.heappush(lanes, (each.end, thread))
        at = {"ph": "X", "pid": pid, "tid": thread, "ts": to_us(each.begin)}
        yield {**at, "dur": to_us(each.end - each.begin), "name": each.name, "args": each.args}
        if each.software > 0:
            yield {**at, "dur": to_us(each.software), "name": "software"}


def naming(pid: int, tid: int, what: str, name: str) -> Iterator[Event]:
    """The name of a process or of a thread, and its place among the others."""
    at = {"ph": "M", "pid": pid, "tid": tid}
    yield {**at, "name": f"{what}_name", "args": {"name": name}}
    order = pid if what == "process" else tid
    yield {**at, "name": f"{what}_sort_index", "args": {"sort_index": order}}


def _links(timeline: Timeline, pid: int) -> Iterator[Event]:
    """A counter per link: the share of its bandwidth in use, at each change."""
    load = link_load(timeline, STEPS, HOTTEST)
    yield from naming(pid, 0, "process", f"links (the {len(load.links)} hottest)")
    for name, shares in zip(load.links, load.share.round(4).tolist(), strict=True):
        before = None
        for time, share in zip(load.edges.tolist(), [*shares, 0.0], strict=True):
            if share != before:
                yield {
                    "ph": "C", "pid": pid, "ts": to_us(to_ns(time)), "name": name,
                    "args": {"share": share},
                }  # fmt: skip
            before = share


def to_ns(time: Seconds) -> int:
    """Whole ns."""
    return round(time * 1e9)


def to_us(time: int) -> float:
    """us of a number of ns, such that a reader who cuts to whole ns finds it again."""
    value = time / 1000
    return value if int(value * 1000) == time else math.nextafter(value, math.inf)
