"""When everything happened: played collectives together, and what they say about links.

All times are s from the moment at which the simulation begins.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from commsim.collectives.schedule import Op
from commsim.engine.conditions import Conditions
from commsim.engine.critical_path import CriticalPath, critical_path
from commsim.engine.network import Floats, Network
from commsim.engine.plan import Change
from commsim.engine.played import Played
from commsim.engine.watchdog import Report, watchdog
from commsim.errors import UnknownNameError
from commsim.units import Bytes, Seconds

MOST = 50
"""Links and reports in full in `to_dict`; of the rest the number."""


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
    def stalled(self) -> bool:
        """Whether some collective never ends."""
        return any(math.isinf(p.end) for p in self.played)

    @property
    def spans(self) -> Iterator[Span]:
        """Every op, readable, in the order of the schedules."""
        for number, each in enumerate(self.played):
            whole = each.whole
            for op in whole.laid.schedule:
                yield self._span(number, whole, op)

    @property
    def whole(self) -> Timeline:
        """With every transfer that was not played because it repeats."""
        return replace(self, played=tuple(each.whole for each in self.played))

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
            for jump in times.jumps:
                done[jump.first : jump.first + jump.ops] *= 1 + jump.times
            by_way = np.bincount(each.laid.way, weights=done, minlength=len(ways))
            crossed = np.repeat(by_way, np.diff(ways.start)) * ways.weight
            total += np.bincount(ways.crossing, weights=crossed, minlength=len(total))
        return total

    @cached_property
    def _link(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.network.links)}

    def bytes_of(self, link: str) -> float:
        """Bytes that passed over the link of that name; UnknownNameError if there is none."""
        if link not in self._link:
            raise UnknownNameError("link", link, self.link_utilization)
        return float(self.link_bytes[self._link[link]])

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

    def critical_path(self, collective: int = 0) -> CriticalPath:
        """What the end of a collective hung on."""
        return critical_path(self.played[collective], self.network, self.link_bytes)

    @cached_property
    def watchdog(self) -> tuple[tuple[Report, ...], ...]:
        """Per collective, which ranks report a time-out."""
        timeout = self.conditions.watchdog
        return tuple(
            watchdog(
                each.whole if each.duration > timeout else each,
                self.network,
                timeout=timeout,
                deaths=self.conditions.deaths,
                changes=self.changes,
            )
            for each in self.played
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON-able figures, keys with a unit suffix; None where no finite number exists.

        Links: the hottest first. Ranks for which others stand (folded ones) are left out.
        """
        capacity, used = self.network.capacity, self.link_utilization
        return {
            "duration_s": _finite(self.duration),
            "collectives": [self._collective(i) for i in range(len(self.played))],
            "links": [
                {
                    "name": name,
                    "bytes": self.bytes_of(name),
                    "utilization": share,
                    "capacity_bytes_per_s": _finite(float(capacity[self._link[name]])),
                }
                for name, share in list(used.items())[:MOST]
            ],
            "links_left_out": max(0, len(used) - MOST),
            "notes": list(self.notes),
        }

    def _collective(self, number: int) -> dict[str, Any]:
        each, reports = self.played[number], self.watchdog[number]
        path = self.critical_path(number)
        return {
            "operation": each.collective.operation,
            "size_bytes": each.collective.nbytes,
            "n_ranks": each.n,
            "algorithm": each.algorithm,
            "protocol": each.protocol,
            "start_s": each.asked,
            "end_s": _finite(each.end),
            "duration_s": _finite(each.duration),
            "bus_bandwidth_bytes_per_s": _finite(each.bus_bandwidth),
            "critical_path_s": path.totals if path.steps else None,
            "ranks": [
                {
                    "rank": each.ranks[p],
                    "arrival_s": _finite(float(each.joined[p])),
                    "end_s": _finite(float(each.finished[p])),
                    "transferring_s": float(each.transferring[p]),
                }
                for p in np.flatnonzero(each.taking_part[: each.n]).tolist()
            ],
            "watchdog": [_report(r) for r in reports[:MOST]],
            "watchdog_left_out": max(0, len(reports) - MOST),
            "notes": list(each.notes),
        }


def _report(report: Report) -> dict[str, Any]:
    return {
        "rank": report.rank,
        "time_s": report.time,
        "waits_for": report.waits_for,
        "op": report.op,
        "op_bytes": report.nbytes,
        "channel": report.channel,
        "cause": report.cause.kind,
        "cause_in": report.cause.who,
        "chain": list(report.chain),
        "text": str(report),
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
