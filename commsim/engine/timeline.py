"""When everything happened: the times of played schedules, and what they say about ranks and links.

All times are s from the moment at which the simulation begins.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from commsim.collectives.collective import Collective, bus_factor
from commsim.collectives.schedule import Op
from commsim.engine.conditions import Conditions
from commsim.engine.network import Floats, Laid, Network
from commsim.engine.plan import Change, Times
from commsim.units import Bytes, BytesPerSecond, Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One op of one collective. `ready` to `begun` is software, `begun` to `sent` the bytes leave,
    `sent` to `arrived` the last of them travel; nan where that never happened. source and
    destination are ranks; a switch is its name.
    """

    collective: int
    op: int
    source: int | str
    destination: int | str
    channel: int
    round: int
    nbytes: Bytes
    reduces: bool
    ready: Seconds
    begun: Seconds
    sent: Seconds
    arrived: Seconds


@dataclass(frozen=True, kw_only=True, eq=False)
class Played:
    """One collective as it was played.

    asked: when its first rank may begin. joined: when each vertex really took part, after its
    delay and the launch. ranks: the global rank of each position. multiplicity: how many equal
    transfers one op stands for (1 unless folded).
    """

    collective: Collective
    ranks: tuple[int, ...]
    laid: Laid
    times: Times
    asked: Seconds
    joined: Floats
    launch: Seconds
    algorithm: str
    protocol: str
    multiplicity: int = 1
    notes: tuple[str, ...] = ()

    @property
    def n(self) -> int:
        """Ranks in the group, folded or not."""
        return len(self.ranks)

    @cached_property
    def end(self) -> Seconds:
        """When the last byte arrived; inf if some never did."""
        arrived = self.times.arrived
        if self.times.stalled:
            return math.inf
        return float(arrived.max(initial=float(self.joined[: self.n].max(initial=self.asked))))

    @property
    def duration(self) -> Seconds:
        """s from `asked` to `end`."""
        return self.end - self.asked

    @property
    def bus_bandwidth(self) -> BytesPerSecond:
        """nccl-tests' busbw in bytes/s."""
        factor = bus_factor(self.collective.operation, self.n)
        return self.collective.nbytes * factor / self.duration if self.duration > 0 else math.inf

    @cached_property
    def finished(self) -> Floats:
        """Per vertex, when its last op was over: sent by it, or arrived there; inf if never."""
        schedule, times = self.laid.schedule, self.times
        last = self.joined.copy()
        sent = np.where(np.isnan(times.sent), np.inf, times.sent)
        arrived = np.where(np.isnan(times.arrived), np.inf, times.arrived)
        np.maximum.at(last, schedule.source, sent)
        np.maximum.at(last, schedule.destination, arrived)
        return last

    @cached_property
    def transferring(self) -> Floats:
        """Per vertex, s in which at least one of its transfers was under way (software included)."""
        schedule, times = self.laid.schedule, self.times
        over = np.where(np.isnan(times.arrived), times.begun, times.arrived)
        moves = (schedule.source != schedule.destination) & ~np.isnan(over)
        ends = np.concatenate([schedule.source[moves], schedule.destination[moves]])
        begin = np.tile(times.ready[moves], 2)
        over = np.tile(over[moves], 2)
        order = np.lexsort((begin, ends))
        ends, begin, over = ends[order], begin[order], over[order]
        busy = np.zeros(schedule.vertices)
        if len(ends):
            # Per vertex the latest end so far: what begins before it adds only what lies beyond.
            first = np.append(True, ends[1:] != ends[:-1])
            lift = np.cumsum(first) * (float(over.max()) + 1.0)
            latest = np.maximum.accumulate(over + lift) - lift
            before = np.where(first, -np.inf, np.concatenate([[0.0], latest[:-1]]))
            np.add.at(busy, ends, np.maximum(0.0, over - np.maximum(begin, before)))
        return busy

    def name_of(self, vertex: int) -> int | str:
        """A position's rank, or a switch's name."""
        return self.ranks[vertex] if vertex < self.n else f"switch{vertex - self.n}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Timeline:
    """Everything that was played together on one network.

    changes: what happened to links on the way. conditions: what was disturbed. notes: every
    assumption, one sentence each.
    """

    played: tuple[Played, ...]
    network: Network
    changes: tuple[Change, ...] = ()
    conditions: Conditions = field(default_factory=Conditions)
    notes: tuple[str, ...] = ()

    @property
    def duration(self) -> Seconds:
        """s from the first collective's start to the last one's end; inf if one never ends."""
        start = min(p.asked for p in self.played)
        return max(p.end for p in self.played) - start

    @property
    def spans(self) -> Iterator[Span]:
        """Every op, readable, in the order of the schedules."""
        for number, each in enumerate(self.played):
            for op in each.laid.schedule:
                yield self._span(number, each, op)

    def _span(self, number: int, each: Played, op: Op) -> Span:
        times, i = each.times, op.index
        return Span(
            collective=number, op=i,
            source=each.name_of(op.source), destination=each.name_of(op.destination),
            channel=op.channel, round=op.round, nbytes=op.nbytes, reduces=op.reduces,
            ready=float(times.ready[i]), begun=float(times.begun[i]),
            sent=float(times.sent[i]), arrived=float(times.arrived[i]),
        )  # fmt: skip

    @cached_property
    def link_bytes(self) -> Floats:
        """Per link of the network, bytes that passed over it, protocol overhead included."""
        total = np.zeros(len(self.network.capacity))
        for each in self.played:
            ways, times = each.laid.ways, each.times
            done = np.where(np.isnan(times.sent), 0.0, each.laid.schedule.nbytes)
            by_way = np.bincount(each.laid.way, weights=done, minlength=len(ways))
            crossed = np.repeat(by_way, np.diff(ways.start)) * ways.weight
            total += np.bincount(ways.crossing, weights=crossed, minlength=len(total))
        return total

    @cached_property
    def link_utilization(self) -> dict[str, float]:
        """Share of each used link's time that its bytes needed, the hottest link first."""
        span = self._busy_span
        share = np.zeros(len(self.link_bytes))
        if span > 0:
            share = self.link_bytes / (np.asarray(self.network.capacity) * span)
        used = np.flatnonzero(self.link_bytes)
        order = used[np.argsort(-share[used], kind="stable")]
        names = self.network.links
        return {names[i]: float(share[i]) for i in order}

    @property
    def _busy_span(self) -> Seconds:
        ends = [float(np.nanmax(p.times.sent, initial=p.asked)) for p in self.played]
        return max(ends) - min(p.asked for p in self.played)
