"""Operations under way at once share the cluster's links.

Model: an operation goes at full speed, 1, where it has its links to itself, and takes its duration
alone; else speeds are max-min fair (engine/sharing.py):

    sum of rate x speed <= capacity, for every link; speed <= 1

Virtual time passes here only when no rank can run, so that whatever takes place at once is known. A
rank whose host lags far behind may still come with an operation that begins before that: what had
ended by then stays as it was, and the operation gets what those left of its links. Neglected: how
operations slow kernels, and kernels operations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from commsim.engine.network import Floats
from commsim.engine.sharing import max_min_rates
from commsim.torch_backend.footprint import Footprint
from commsim.torch_backend.records import Operation
from commsim.units import Seconds

DONE = 1e-12  # of the time that has passed: less than that left is nothing
FULL = 1 + 1e-9  # of a link


@dataclass(slots=True, kw_only=True, eq=False)
class Flow:
    """An operation under way. ready: s, when its ranks have come. after: those that it follows on
    their streams. left: s at full speed. takes: its footprint; several: it stands for others too,
    and so may go slower than 1 without any other.
    """

    operation: Operation
    ready: Seconds
    after: tuple[Operation, ...]
    left: Seconds
    takes: Callable[[], Footprint]
    several: bool = False


@dataclass(slots=True, kw_only=True, eq=False)
class Stretch:
    """From begin to end, in s, these flows went at these speeds."""

    begin: Seconds
    end: Seconds
    flows: list[Flow]
    speeds: list[float]


@dataclass(slots=True, kw_only=True, eq=False)
class Traffic:
    """All operations that have not ended, and what has passed. capacity: bytes/s of every link."""

    capacity: Callable[[], Floats]
    now: Seconds = 0.0
    waiting: list[Flow] = field(default_factory=list)
    running: list[Flow] = field(default_factory=list)
    past: list[Stretch] = field(default_factory=list)
    _known: dict[tuple[int, ...], list[float]] = field(default_factory=dict)

    def add(self, flow: Flow) -> None:
        """The operation may begin."""
        self.waiting.append(flow)

    def advance(self) -> list[Operation]:
        """Let time pass until operations end; which. None: there are none under way."""
        while self.waiting or self.running:
            start, flow = self._next()
            speeds = self.speeds(self.running)
            end = min(
                (self.now + f.left / v for f, v in zip(self.running, speeds, strict=True)),
                default=np.inf,
            )
            if flow is None or end <= start:
                return self._pass(end, speeds)
            if start > self.now:
                self._pass(start, speeds)
            self.waiting.remove(flow)
            flow.operation.start = start
            if start < self.now and self._catch_up(flow, start):
                return [flow.operation]
            self.running.append(flow)
        return []

    def forget(self, until: Seconds) -> None:
        """Nothing will begin before `until`."""
        self.past = [stretch for stretch in self.past if stretch.end > until]

    def _next(self) -> tuple[Seconds, Flow | None]:
        """The flow that begins next, and when."""
        start, found = np.inf, None
        for flow in self.waiting:
            if all(operation.over for operation in flow.after):
                begin = max(flow.ready, max((o.end for o in flow.after), default=0.0))
                if begin < start:
                    start, found = begin, flow
        return start, found

    def _pass(self, until: Seconds, speeds: Sequence[float]) -> list[Operation]:
        """What is under way goes on until then; which operations have ended."""
        passed = until - self.now
        if self.running and passed > 0:
            self.past.append(
                Stretch(
                    begin=self.now, end=until, flows=list(self.running), speeds=list(speeds)
                )
            )  # fmt: skip
        self.now = until
        ended, going = [], []
        for flow, speed in zip(self.running, speeds, strict=True):
            flow.left -= passed * speed
            if flow.left <= DONE * until:
                _end(flow, until)
                ended.append(flow.operation)
            else:
                going.append(flow)
        self.running = going
        return ended

    def speeds(self, flows: Sequence[Flow]) -> list[float]:
        """Of flows that go on together, in their order."""
        if not flows or (len(flows) == 1 and not flows[0].several):
            return [1.0] * len(flows)
        takes = [flow.takes() for flow in flows]
        key = tuple(map(id, takes))
        if key not in self._known:
            self._known[key] = self._solve(takes)
        return self._known[key]

    def _solve(self, takes: Sequence[Footprint]) -> list[float]:
        capacity = self.capacity()
        links = np.concatenate([t.links for t in takes])
        rates = np.concatenate([t.rates for t in takes])
        ones = np.ones(len(takes))
        load = np.bincount(links, weights=rates, minlength=len(capacity))
        if (load <= capacity * FULL).all():
            return [1.0] * len(takes)
        flow = np.repeat(np.arange(len(takes)), [len(t.links) for t in takes])
        return [float(v) for v in max_min_rates(flow, links, rates, capacity, ones, ones)]

    def _catch_up(self, flow: Flow, at: Seconds) -> bool:
        """A flow that began in the past: what others had left of its links. Has it ended?"""
        kept: list[Stretch] = []
        alone = self.speeds([flow])[0]
        for stretch in sorted(self.past, key=lambda s: s.begin):
            if not flow.operation.over and stretch.end > at:
                if stretch.begin > at:
                    at = self._go_on(flow, at, stretch.begin, alone)
                if not flow.operation.over:
                    before, stretch = _cut(stretch, at)
                    kept += before
                    speed = min(alone, self._left(flow, stretch))
                    at = self._go_on(flow, at, stretch.end, speed)
                    before, stretch = _cut(stretch, at)
                    kept += [_with(part, flow, speed) for part in before]
            if stretch.end > stretch.begin:
                kept.append(stretch)
        self.past = kept
        if not flow.operation.over:
            self._go_on(flow, at, self.now, alone)
        return flow.operation.over

    def _go_on(self, flow: Flow, at: Seconds, until: Seconds, speed: float) -> Seconds:
        """s, where the flow has come to: its end, or `until`."""
        if speed > 0 and flow.left <= (until - at) * speed:
            _end(flow, at + flow.left / speed)
            return flow.operation.end
        flow.left -= (until - at) * speed
        return until

    def _left(self, flow: Flow, stretch: Stretch) -> float:
        """The speed that others left to a flow."""
        free = self.capacity().copy()
        for other, speed in zip(stretch.flows, stretch.speeds, strict=True):
            taken = other.takes()
            np.subtract.at(free, taken.links, speed * taken.rates)
        mine = flow.takes()
        load = np.bincount(mine.links, weights=mine.rates, minlength=len(free))
        links = np.flatnonzero(load)
        return float(np.clip(free[links] / load[links], 0.0, 1.0).min(initial=1.0))


def _end(flow: Flow, time: Seconds) -> None:
    flow.left = 0.0
    flow.operation.end, flow.operation.over = time, True


def _cut(stretch: Stretch, at: Seconds) -> tuple[list[Stretch], Stretch]:
    """What of a stretch lies before a moment (nothing, or one), and the rest."""
    if at <= stretch.begin:
        return [], stretch
    at = min(at, stretch.end)
    halves = [
        Stretch(begin=a, end=b, flows=list(stretch.flows), speeds=list(stretch.speeds))
        for a, b in ((stretch.begin, at), (at, stretch.end))
    ]
    return halves[:1], halves[1]


def _with(stretch: Stretch, flow: Flow, speed: float) -> Stretch:
    """The stretch, with one flow more."""
    return Stretch(
        begin=stretch.begin, end=stretch.end, flows=[*stretch.flows, flow],
        speeds=[*stretch.speeds, speed],
    )  # fmt: skip
