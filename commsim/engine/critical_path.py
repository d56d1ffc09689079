"""What the end of a collective hung on: from its last arrival back to its beginning, op by op.

An op becomes ready with the last of what it must have: an op that it waits for (sent, if both have
one source; its first byte arrived, if it is passed on as it comes; else arrived), or an end that
joins; and what is passed on is not sent before it has arrived. Following that one back from the op
that arrived last gives stretches of time without gap or overlap from `asked` to `end`: what is not
on the path could have taken longer without harm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from commsim.engine.network import Floats, Network
from commsim.engine.plan import INSTANT
from commsim.engine.played import Played
from commsim.engine.unrolled import Unrolled
from commsim.units import Bytes, Seconds, format_size, format_time

FIRST, SENT, ARRIVED = range(3)  # what of an op another has waited for
KINDS = ("launch", "late", "software", "transfer", "latency")


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """An op on the path. `after`: the op that let it begin, `known_at` that end of its own which
    knew that one done; both None where an end's joining let it begin (`known_at` alone: where the
    waited-for op shares no end with it).

    link: of the links on its way the one that all transfers together kept busiest; None without
    links. That one link set its rate is likely, not certain: the shares of every instant are not
    kept. alone: s from `begun` to `sent` if its healthy way had carried nothing else.
    """

    op: int
    source: int | str
    destination: int | str
    channel: int
    round: int
    nbytes: Bytes
    after: int | None
    known_at: int | str | None
    link: str | None
    alone: Seconds

    def __str__(self) -> str:
        return (
            f"op {self.op} ({format_size(self.nbytes)} from {self.source} to {self.destination}, "
            f"channel {self.channel}, round {self.round})"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One stretch of the path.

    launch, late: `who` had not joined yet, by the launch that all need and by what came on top.
    software, transfer, latency: of `move`, at the vertex `who` (latency: at its receiver).
    """

    kind: str
    begin: Seconds
    end: Seconds
    who: int | str
    move: Move | None = None

    @property
    def duration(self) -> Seconds:
        """s from `begin` to `end`."""
        return self.end - self.begin

    def __str__(self) -> str:
        what = f"{format_time(self.duration)} {self.kind}"
        if self.move is None:
            return f"{what} of {self.who}"
        over = ""
        if self.kind == "transfer" and self.move.link is not None:
            over = f" over {self.move.link} (alone: {format_time(self.move.alone)})"
        return f"{what}: {self.move}{over}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticalPath:
    """The steps in the order of time; none if the collective never ends."""

    steps: tuple[Step, ...]

    @property
    def totals(self) -> dict[str, Seconds]:
        """s of each kind; together the collective's duration."""
        return {kind: math.fsum(s.duration for s in self.steps if s.kind == kind) for kind in KINDS}

    @property
    def shared(self) -> Seconds:
        """s of `transfer` that came from sharing links with others, or from broken links."""
        moves = [(s, s.move) for s in self.steps if s.kind == "transfer" and s.move is not None]
        return math.fsum(max(0.0, s.duration - move.alone) for s, move in moves)


def critical_path(played: Played, network: Network, link_bytes: Floats) -> CriticalPath:
    """The critical path of one collective; link_bytes: what each link carried in all."""
    if math.isinf(played.end):
        return CriticalPath(steps=())
    walk = _Walk(played, network, link_bytes)
    walk.go()
    return CriticalPath(steps=tuple(reversed(walk.steps)))


class _Walk:
    """Goes back through the ops, and collects steps that each end where the next one begins."""

    def __init__(self, played: Played, network: Network, link_bytes: Floats) -> None:
        self.played = played
        self.network = network
        with np.errstate(divide="ignore", invalid="ignore"):  # a link that never worked
            self.pace = 1 / network.capacity
            self.load = np.nan_to_num(link_bytes * self.pace)
        self.every = Unrolled(played=len(played.laid.schedule), jumps=played.times.jumps)
        self.reached = played.end
        self.steps: list[Step] = []

    def go(self) -> None:
        arrived = self.played.times.arrived
        if len(arrived) == 0 or arrived.max() < self.played.end:
            self.join(int(self.played.joined[: self.played.n].argmax()))
            return
        op: int | None = self.every.number(int(arrived.argmax()))
        what = ARRIVED
        while op is not None:
            op, what = self.back(op, what)

    def back(self, op: int, what: int) -> tuple[int | None, int]:
        """Adds the op's steps, from its first byte, `sent` or `arrived` back to `ready`. The op
        that let it begin, or end, and what of that it waited for; None at the beginning.
        """
        schedule, times = self.played.laid.schedule, self.played.times
        (played,), (early,), _ = self.every.locate(np.array([op]))
        source, destination = int(schedule.source[played]), int(schedule.destination[played])
        waits = schedule.waits[schedule.wait_start[played] : schedule.wait_start[played + 1]]
        waits = waits + (op - played)  # as they are numbered with what was not played
        those, sooner, _ = self.every.locate(waits)
        streamed = schedule.streams[played] & (schedule.destination[those] == source)
        wanted = np.where(schedule.source[those] == source, SENT, ARRIVED)
        wanted[streamed] = FIRST
        leads = times.begun[those] + self.played.laid.ways.latency[self.played.laid.way[those]]
        done = np.choose(wanted, [leads, times.sent[those], times.arrived[those]]) - sooner
        tail = np.where(streamed, times.arrived[those] - sooner, -np.inf)
        last = int(done.argmax()) if len(waits) else None
        late = max((source, destination), key=lambda v: float(self.played.joined[v]))
        if last is not None and done[last] <= self.played.joined[late]:
            last = None
        before = None if last is None else int(waits[last])
        move = self.move(op, before)
        sent = times.sent[played] - early
        if what == ARRIVED:
            self.step("latency", sent, destination, move)
        if what != FIRST and tail.max(initial=-np.inf) >= sent * (1 - INSTANT):
            return int(waits[tail.argmax()]), ARRIVED
        kind, at = ("latency", destination) if what == FIRST else ("transfer", source)
        self.step(kind, times.begun[played] - early, at, move)
        self.step("software", times.ready[played] - early, source, move)
        if last is None:
            self.join(late)
        return before, ARRIVED if last is None else int(wanted[last])

    def join(self, vertex: int) -> None:
        """Adds what came before a vertex took part."""
        self.step("late", self.played.asked + self.played.launch, vertex)
        self.step("launch", self.played.asked, vertex)

    def step(self, kind: str, begin: Seconds, vertex: int, move: Move | None = None) -> None:
        if begin < self.reached:
            self.steps.append(
                Step(
                    kind=kind,
                    begin=float(begin),
                    end=self.reached,
                    who=self.played.name_of(vertex),
                    move=move,
                )
            )
            self.reached = float(begin)

    def move(self, op: int, after: int | None) -> Move:
        (played,), _, (further,) = self.every.locate(np.array([op]))
        row, ways = self.played.laid.schedule[int(played)], self.played.laid.ways
        way = int(self.played.laid.way[played])
        crossed = slice(ways.start[way], ways.start[way + 1])
        links = ways.crossing[crossed]
        busiest = int(links[self.load[links].argmax()]) if len(links) else None
        seconds = ways.weight[crossed] * self.pace[links]
        alone = row.nbytes * max(1 / float(ways.limit[way]), float(seconds.max(initial=0.0)))
        name = self.played.name_of
        known = None
        if after is not None:
            known = self.known_at(int(played), int(self.every.locate(np.array([after])).op[0]))
        return Move(
            op=op,
            source=name(row.source),
            destination=name(row.destination),
            channel=row.channel,
            round=row.round + int(further),
            nbytes=row.nbytes,
            after=after,
            known_at=None if known is None else name(known),
            link=None if busiest is None else self.network.links[busiest],
            alone=alone,
        )

    def known_at(self, op: int, after: int) -> int | None:
        """The end that two ops share: where the first is sent from, else where it arrives."""
        schedule = self.played.laid.schedule
        ends = (int(schedule.source[op]), int(schedule.destination[op]))
        first, second = int(schedule.source[after]), int(schedule.destination[after])
        if first == ends[0]:
            return first
        return next((v for v in (second, first) if v in ends), None)
