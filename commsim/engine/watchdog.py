"""Which ranks report a time-out, when, for whom they wait, and what is behind it.

As torch's watchdog for NCCL does it: each rank for itself, once a collective has kept it for the
time that `Conditions.watchdog` allows. What follows (torch ends the process, and others see their
connections close) is not played.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from commsim.engine.network import Floats, Network
from commsim.engine.plan import Change
from commsim.engine.played import Played
from commsim.units import Bytes, Seconds, format_size, format_time


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """What holds `op`, whose waits are all over: a rank that is "dead" or "late", a "link" that has
    failed; "under way": none of these, it only takes long. who: the rank's or the link's name.
    time: s, when it died, failed or joins (inf: never).
    """

    kind: str
    op: int
    who: int | str | None = None
    time: Seconds = math.nan

    def __str__(self) -> str:
        match self.kind:
            case "dead":
                return f"{_called(self.who)} died at {format_time(self.time)}"
            case "late" if math.isinf(self.time):
                return f"{_called(self.who)} never joins"
            case "late":
                return f"{_called(self.who)} joins only at {format_time(self.time)}"
            case "link":
                return f"link {self.who} failed at {format_time(self.time)}"
        return f"op {self.op} is still under way"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a rank's watchdog says at `time`, and what it cannot know: the cause.

    op: the first of the rank's ops that is not over; waits_for: that op's other end. chain: this
    rank, the one that it waits for, the one that this one waits for, ... up to one that waits for
    none, or that stands in the chain already: two ranks wait for each other on a failed link.
    """

    operation: str
    size: Bytes
    rank: int
    time: Seconds
    timeout: Seconds
    waits_for: int | str
    op: int
    nbytes: Bytes
    channel: int
    cause: Cause
    chain: tuple[int | str, ...]

    def __str__(self) -> str:
        chain = " -> ".join(map(str, self.chain if len(self.chain) <= 6 else (
            *self.chain[:3], "...", *self.chain[-2:]
        )))  # fmt: skip
        return (
            f"[rank {self.rank}] Watchdog caught collective operation timeout: {self.operation} of "
            f"{format_size(self.size)} ran for {format_time(self.timeout)}: rank {self.rank} waits "
            f"for {_called(self.waits_for)} (op {self.op}: {format_size(self.nbytes)}, channel "
            f"{self.channel}). Chain: {chain}. Cause: {self.cause}"
        )


def _called(vertex: int | str | None) -> str:
    """A rank, or a switch by its name."""
    return f"rank {vertex}" if isinstance(vertex, int) else str(vertex)


def watchdog(
    played: Played,
    network: Network,
    *,
    timeout: Seconds,
    deaths: Mapping[int, Seconds] | None = None,
    changes: Sequence[Change] = (),
) -> tuple[Report, ...]:
    """Every report on one collective, the first one first; none if all ranks are through in time.

    deaths: s, by rank; a dead one reports nothing. changes: what happens to links.
    """
    dies = np.full(played.laid.schedule.vertices, np.inf)
    dies[: played.n] = [(deaths or {}).get(rank, np.inf) for rank in played.ranks]
    times = played.joined + timeout
    keeps = (played.finished > times) & (dies > times) & played.taking_part
    keeps[played.n :] = False  # switches have no watchdog
    if not keeps.any():
        return ()
    state = _State(played, network, dies, changes)
    times[~keeps] = times[keeps].max()
    waits = dict[int, tuple[int, int]]()
    for vertex, time in enumerate(times.tolist()):
        found = state.waits_for(vertex, time)
        if found is not None:
            waits[vertex] = found
    reports = [
        _report(played, state, vertex, float(times[vertex]), timeout, waits)
        for vertex in np.flatnonzero(keeps).tolist()
    ]
    return tuple(sorted(reports, key=lambda r: (r.time, r.rank)))


def _report(
    played: Played,
    state: _State,
    vertex: int,
    time: Seconds,
    timeout: Seconds,
    waits: Mapping[int, tuple[int, int]],
) -> Report:
    other, op = waits[vertex]
    schedule = played.laid.schedule
    return Report(
        operation=played.collective.operation,
        size=played.collective.nbytes,
        rank=played.ranks[vertex],
        time=time,
        timeout=timeout,
        waits_for=played.name_of(other),
        op=op,
        nbytes=int(schedule.nbytes[op]),
        channel=int(schedule.channel[op]),
        cause=state.cause(op, time),
        chain=tuple(played.name_of(v) for v in _chain(vertex, waits)),
    )


def _chain(vertex: int, waits: Mapping[int, tuple[int, int]]) -> list[int]:
    """The vertex, the one it waits for, and so on; who comes again ends it."""
    chain = {vertex: True}  # keeps the order
    while vertex in waits:
        vertex = waits[vertex][0]
        if vertex in chain:
            return [*chain, vertex]
        chain[vertex] = True
    return list(chain)


class _State:
    """How far a collective is at any time; what was found out is kept for the next who asks."""

    def __init__(
        self, played: Played, network: Network, dies: Floats, changes: Sequence[Change]
    ) -> None:
        self.played = played
        self.network = network
        self.dies = dies
        self.changes = changes
        times, schedule = played.times, played.laid.schedule
        self.begun, self.sent, self.arrived = (
            np.where(np.isnan(t), np.inf, t) for t in (times.begun, times.sent, times.arrived)
        )
        # Per vertex: the ops that it sends, then (their numbers beyond all ops) what it receives.
        ends = np.concatenate([schedule.source, schedule.destination])
        self.own = np.argsort(ends, kind="stable")
        self.bounds = np.searchsorted(ends[self.own], np.arange(schedule.vertices + 1))
        moments = (self.begun, self.sent, self.arrived, played.joined, dies)
        changed = max((c.time for c in changes), default=0.0)
        self.settled = max(changed, *(float(m[np.isfinite(m)].max(initial=0.0)) for m in moments))
        self.held: dict[tuple[int, Seconds], int] = {}
        self.failed: dict[Seconds, dict[int, Seconds]] = {}

    def waits_for(self, vertex: int, time: Seconds) -> tuple[int, int] | None:
        """The other end of the vertex's first op that is not over, and that op; None if it is
        through, dead, or has not joined.
        """
        if self.dies[vertex] <= time or self.played.joined[vertex] > time:
            return None
        own = self.own[self.bounds[vertex] : self.bounds[vertex + 1]]
        received, ops = np.divmod(own, len(self.sent))
        open_ = ops[np.where(received, self.arrived[ops], self.sent[ops]) > time]
        if len(open_) == 0:
            return None
        op = int(open_.min())
        others = [v for o in (op, self.holder(op, time)) for v in self.ends(o) if v != vertex]
        return (others[0] if others else vertex), op

    def cause(self, op: int, time: Seconds) -> Cause:
        """What holds the op, or the op for which it waits in the end."""
        time = min(time, self.settled)  # nothing happens later
        op = self.holder(op, time)
        ends, name = self.ends(op), self.played.name_of
        dead = [
            Cause(kind="dead", op=op, who=name(v), time=float(self.dies[v]))
            for v in ends
            if self.dies[v] <= time
        ]
        absent = [v for v in ends if self.played.joined[v] > time and self.dies[v] > time]
        if absent:
            joins = float(self.played.joined[absent[0]])
            return Cause(kind="late", op=op, who=name(absent[0]), time=joins)
        found = dead + (self.failed_links(op, time) if self.begun[op] <= time else [])
        return min(found, key=lambda c: c.time, default=Cause(kind="under way", op=op))

    def holder(self, op: int, time: Seconds) -> int:
        """The op itself if its waits are over; else that of the one it has to wait for longest."""
        time, path = min(time, self.settled), list[int]()
        schedule = self.played.laid.schedule
        while (op, time) not in self.held:
            path.append(op)
            waits = schedule.waits[schedule.wait_start[op] : schedule.wait_start[op + 1]]
            own = schedule.source[waits] == schedule.source[op]
            done = np.where(own, self.sent[waits], self.arrived[waits])
            if done.max(initial=-np.inf) <= time:
                self.held[op, time] = op
            else:
                op = int(waits[done.argmax()])
        for each in path:
            self.held[each, time] = self.held[op, time]
        return self.held[op, time]

    def failed_links(self, op: int, time: Seconds) -> list[Cause]:
        """The links on the op's way that carry nothing at that time."""
        if time not in self.failed:
            capacity = {c.link: c for c in self.changes if c.time <= time}  # the last one stays
            self.failed[time] = {link: c.time for link, c in capacity.items() if c.capacity == 0}
        ways, way = self.played.laid.ways, int(self.played.laid.way[op])
        crossed = ways.crossing[ways.start[way] : ways.start[way + 1]].tolist()
        failed = self.failed[time]
        return [
            Cause(kind="link", op=op, who=self.network.links[link], time=failed[link])
            for link in crossed
            if link in failed
        ]

    def ends(self, op: int) -> tuple[int, int]:
        schedule = self.played.laid.schedule
        return int(schedule.source[op]), int(schedule.destination[op])
