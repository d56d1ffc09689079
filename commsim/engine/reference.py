"""The engine as one reads it: every op a simpy process, every flow shared by `max_min_rates`.

Slow on purpose; compiled.py plays the same semantics fast and must give the same times.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np
import simpy

from commsim.engine.plan import INSTANT, Plan, Times
from commsim.engine.sharing import max_min_rates
from commsim.units import Seconds

Steps = Generator[simpy.Event, Any, None]
LAST: Any = (
    2  # simpy's priorities are 0 and 1: what comes after everything else of the same instant
)


class _Links:
    """Flows under way. Whatever comes or goes at one instant, rates are found once, after it."""

    def __init__(self, env: simpy.Environment, plan: Plan) -> None:
        self.env = env
        self.plan = plan
        self.capacity = plan.capacity.copy()
        self.left: dict[int, float] = {}
        self.rate: dict[int, float] = {}
        self.done: dict[int, simpy.Event] = {}
        self.updated: Seconds = 0.0
        self._asked = False
        self._version = 0

    def carry(self, op: int) -> simpy.Event:
        """An event that happens when the op's last byte has left."""
        done = self.env.event()
        self.left[op], self.rate[op], self.done[op] = float(self.plan.nbytes[op]), 0.0, done
        self.share()
        return done

    def drop(self, vertex: int) -> None:
        """The vertex has died: its flows go, and never are done unless they end just now."""
        self._advance()
        for op in [o for o in self.left if vertex in self._ends(o)]:
            ends = self.rate[op] > 0 and self._end(op) <= self.env.now * (1 + INSTANT)
            del self.left[op], self.rate[op]
            done = self.done.pop(op)
            if ends:
                done.succeed()
        self.share()

    def share(self) -> None:
        """Find everyone's rate again at the end of this instant."""
        if not self._asked:
            self._asked = True
            last = self.env.event()
            last._ok, last._value = True, None
            last.callbacks.append(lambda _: self._solve())
            self.env.schedule(last, priority=LAST)

    def _ends(self, op: int) -> tuple[int, int]:
        return int(self.plan.source[op]), int(self.plan.destination[op])

    def _advance(self) -> None:
        passed = self.env.now - self.updated
        for op, rate in self.rate.items():
            if rate:
                self.left[op] -= rate * passed if np.isfinite(rate) else self.left[op]
        self.updated = self.env.now

    def _solve(self) -> None:
        self._asked = False
        self._advance()
        plan, ops = self.plan, list(self.left)
        ways = [range(plan.way_start[w], plan.way_start[w + 1]) for w in plan.way[ops]]
        crossing = np.array([c for way in ways for c in way], dtype=np.int64)
        rates = max_min_rates(
            np.repeat(np.arange(len(ops)), [len(way) for way in ways]),
            plan.crossing[crossing].astype(np.int64),
            plan.weight[crossing],
            self.capacity,
            plan.limit[plan.way[ops]],
            plan.share[plan.way[ops]],
        )
        self.rate = dict(zip(ops, rates.tolist(), strict=True))
        self._version += 1
        ends = {op: self._end(op) for op in ops if self.rate[op] > 0}
        if ends:
            self.env.process(self._wake(min(ends.values()), ends, self._version))

    def _end(self, op: int) -> Seconds:
        return self.env.now + max(0.0, self.left[op]) / self.rate[op]

    def _wake(self, first: Seconds, ends: dict[int, Seconds], version: int) -> Steps:
        yield self.env.timeout(max(0.0, first - self.env.now))
        if version != self._version:
            return
        self._advance()
        for op in [op for op, end in ends.items() if end <= first * (1 + INSTANT)]:
            if op in self.done:
                del self.left[op], self.rate[op]
                self.done.pop(op).succeed()
        self.share()


def play(plan: Plan) -> Times:
    """The times of every op of the plan, in s."""
    env = simpy.Environment()
    links = _Links(env, plan)
    count = len(plan)
    ready, begun, left, there = (np.full(count, np.nan) for _ in range(4))
    times = Times(ready=ready, begun=begun, sent=left, arrived=there)
    first, sent, arrived = ([env.event() for _ in range(count)] for _ in range(3))

    def live(op: int) -> Steps:
        source, way = plan.source[op], plan.way[op]
        joined = max(plan.start[source], plan.start[plan.destination[op]])
        death = min(plan.death[source], plan.death[plan.destination[op]])
        waits = plan.waits[plan.wait_start[op] : plan.wait_start[op + 1]].tolist()
        passes_on = [w for w in waits if plan.streams[op] and plan.destination[w] == source]
        whole = [w for w in waits if w not in passes_on]
        yield env.all_of(
            [first[w] for w in passes_on]
            + [(sent if plan.source[w] == source else arrived)[w] for w in whole]
        )
        if np.isinf(joined):
            return
        yield env.timeout(max(0.0, joined - env.now))
        times.ready[op] = env.now
        yield env.timeout(plan.overhead[op])
        if env.now * (1 + INSTANT) >= death:
            return
        times.begun[op] = env.now
        env.process(lead(op))
        crosses = plan.way_start[way + 1] > plan.way_start[way] or np.isfinite(plan.limit[way])
        if crosses and plan.nbytes[op] > 0:
            yield links.carry(op)
        yield env.all_of([arrived[w] for w in passes_on])
        if env.now > death * (1 + INSTANT):
            return
        times.sent[op] = env.now
        sent[op].succeed()
        yield env.timeout(plan.latency[way])
        times.arrived[op] = env.now
        arrived[op].succeed()

    def lead(op: int) -> Steps:
        """The first byte of an op on its way."""
        yield env.timeout(plan.latency[plan.way[op]])
        first[op].succeed()

    def change(time: Seconds, link: int, capacity: float) -> Steps:
        yield env.timeout(time)
        links.capacity[link] = capacity
        links.share()

    def die(vertex: int) -> Steps:
        yield env.timeout(plan.death[vertex])
        links.drop(vertex)

    for each in plan.changes:
        env.process(change(each.time, each.link, each.capacity))
    for vertex in np.flatnonzero(np.isfinite(plan.death)).tolist():
        env.process(die(vertex))
    for op in range(count):
        env.process(live(op))
    env.run()
    return times
