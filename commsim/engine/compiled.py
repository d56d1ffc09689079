"""The engine for scale: the semantics of reference.py as arrays and heaps, compiled.

Rates are found again only for the flows that a coming or going flow can touch. Where progressive
filling (sharing.py) is run with and without a flow of rate r, both runs are equal up to level r; so
flows slower than the slowest change keep their rates, and of the others only those that share links
with a change, directly or through each other, are filled again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from commsim.engine import heaps
from commsim.engine.compilation import compiled, read_only
from commsim.engine.plan import INSTANT, Plan, Times
from commsim.engine.presolve import binding

Array = NDArray[Any]
NONE = -1
WAITING, STARTING, FLOWING, HELD, FREED, SENT, ARRIVED, STUCK = range(8)  # an op's phase
FIRST, LAST, ALL = range(3)  # what is told of an op: its first byte is there, its last left, all is
GOING, COMING = 1, 2  # why a link is dirty
NEW = -2  # a flow's bottleneck before its first rate
SLACK = 1 - 1e-9
SAME = 1e-13  # a rate that has changed by less has not changed
DONE, PAUSED, FULL, MARKED = range(4)
FIRST_SLOTS = 1 << 12

# Places in `counts`: how many there are of each, and the last bucket used in either phase.
BUCKETS, SPARE, HEAP, FLOWS, FREE, DIRTY, FRESH, CHANGED, DIED, FINISHED, EPOCH = range(11)
STARTS, ARRIVALS, LINKS, STOPS = 11, 12, 13, 14
NOW, LEVEL = range(2)  # places in `clock`: the time, and the rate below which nothing changes


class State(NamedTuple):
    """Everything that changes. Slots hold the flows under way; a slot has `width` link places."""

    counts: Array
    clock: Array
    ready: Array  # per op
    begun: Array
    sent: Array
    arrived: Array
    pending: Array
    phase: Array
    marked: Array  # whether to stop after the instant in which it arrives; none: empty
    tails: Array  # of an op that streams: what it passes on and has not arrived; none: empty
    next_op: Array  # the next of the same bucket; from the number of ops on, of first bytes
    follow_start: Array
    follow: Array
    heap_time: Array  # buckets: ops that start or arrive at one time
    heap_bucket: Array
    bucket_time: Array
    bucket_head: Array
    bucket_size: Array
    bucket_spare: Array
    capacity: Array  # per link
    head: Array  # its first incidence
    load: Array  # weight of its flows
    bound: Array  # how many flows it is the bottleneck of
    dirt: Array  # why it is dirty
    dirty: Array
    seen: Array
    residual: Array
    rising: Array
    risers: Array
    found_links: Array
    op: Array  # per slot
    left: Array
    rate: Array
    wanted: Array
    updated: Array
    finish: Array
    where: Array  # in the heap of finishes
    bottleneck: Array
    touched: Array
    free: Array
    flows: Array  # the heap of finishes
    fresh: Array
    found_flows: Array
    level_key: Array  # the heap of filling
    level_item: Array
    after: Array  # per slot and link place: its neighbours in the link's list
    before: Array


class Fixed(NamedTuple):
    """The plan's arrays, with the links that can never bind left out of the ways."""

    nbytes: Array
    streams: Array
    leads: Array  # per op: whether one that streams passes it on; none does: empty
    source: Array
    destination: Array
    way: Array
    overhead: Array
    start: Array
    death: Array
    way_start: Array
    crossing: Array
    weight: Array
    latency: Array
    limit: Array
    share: Array  # per way: how many equal transfers one stands for
    timed: Array  # per way: whether bytes take time on it
    change_time: Array
    change_link: Array
    change_capacity: Array
    death_time: Array
    death_vertex: Array
    width: int


def play(
    plan: Plan, watch: Callable[[int, float], None] | None = None, events: int = 1 << 18
) -> Times:
    """The times of every op of the plan, in s.

    watch: called after every so many `events` with the number of ops that have arrived and the
    time (s) reached; it may raise to stop.
    """
    assert not plan.repeats, "rounds are missing: recurrence.py plays such a plan"
    run = Run(plan)
    while True:
        status = run.advance(events)
        if watch is not None:
            watch(run.finished, run.now)
        if status == DONE:
            return run.times


class Run:
    """A plan on its way: the engine's inside, for `play` and for recurrence.py."""

    def __init__(self, plan: Plan, marked: Array | None = None) -> None:
        """marked: per op, whether to stop when it has arrived."""
        self.fixed = _fixed(plan)
        self.state = _first_state(plan, self.fixed)
        if marked is not None:
            self.state = self.state._replace(marked=marked)
        _release(self.fixed, self.state)

    def advance(self, events: int) -> int:
        """Play so many events: DONE, PAUSED, or MARKED where a marked op has arrived."""
        while True:
            status = int(_advance(self.fixed, self.state, events))
            if status != FULL:
                return status
            self.state = _grown(self.state, self.fixed.width)

    @property
    def finished(self) -> int:
        """Ops that have arrived."""
        return int(self.state.counts[FINISHED])

    @property
    def now(self) -> float:
        """The time reached, s."""
        return float(self.state.clock[NOW])

    @property
    def times(self) -> Times:
        """What has happened so far."""
        s = self.state
        return Times(ready=s.ready, begun=s.begun, sent=s.sent, arrived=s.arrived)


def _fixed(plan: Plan) -> Fixed:
    kept = binding(plan)
    crossing, weight = plan.crossing, plan.weight
    way_start = plan.way_start
    timed = np.isfinite(plan.limit)
    timed |= np.diff(way_start) > 0
    if not kept.all():
        inside = kept[crossing]
        ends = np.concatenate([[0], np.cumsum(inside)])
        crossing, weight, way_start = crossing[inside], weight[inside], ends[way_start]
        timed &= (np.diff(way_start) > 0) | np.isfinite(plan.limit)
    leads = np.zeros(len(plan) if plan.streams.any() else 0, dtype=np.bool_)
    if len(leads):
        leads[plan.waits[_passed_on(plan)[1]]] = True
    deaths = np.flatnonzero(np.isfinite(plan.death))
    deaths = deaths[np.argsort(plan.death[deaths], kind="stable")]
    fixed = Fixed(
        nbytes=plan.nbytes,
        streams=plan.streams,
        leads=leads,
        source=plan.source,
        destination=plan.destination,
        way=plan.way,
        overhead=plan.overhead,
        start=plan.start,
        death=plan.death,
        way_start=way_start.astype(np.int64),
        crossing=crossing,
        weight=weight,
        latency=plan.latency,
        limit=plan.limit,
        share=plan.share,
        timed=timed,
        change_time=np.array([c.time for c in plan.changes], dtype=np.float64),
        change_link=np.array([c.link for c in plan.changes], dtype=np.int64),
        change_capacity=np.array([c.capacity for c in plan.changes], dtype=np.float64),
        death_time=plan.death[deaths],
        death_vertex=deaths,
        width=int(max(1, np.diff(way_start).max(initial=0))),
    )
    return Fixed(*(read_only(value) for value in fixed))


def _passed_on(plan: Plan) -> tuple[Array, Array]:
    """Of all waits: who waits, and whether it streams and passes on what it waits for."""
    waiter = np.repeat(np.arange(len(plan), dtype=np.int32), np.diff(plan.wait_start))
    return waiter, plan.streams[waiter] & (plan.destination[plan.waits] == plan.source[waiter])


def _first_state(plan: Plan, fixed: Fixed) -> State:
    n, links = len(plan), len(plan.capacity)
    tails, events = np.zeros(len(fixed.leads), dtype=np.int32), n + len(fixed.leads)
    if len(tails):
        waiter, passed_on = _passed_on(plan)
        tails[:] = np.bincount(waiter[passed_on], minlength=n)
    slots = min(n, FIRST_SLOTS) or 1
    follow_start = np.zeros(n + 2, dtype=np.int32)
    follow = np.empty(len(plan.waits), dtype=np.int32)
    _follow(read_only(plan.wait_start), read_only(plan.waits), follow_start, follow)
    buckets = events + 1
    state = State(
        counts=np.zeros(16, dtype=np.int64),
        clock=np.zeros(2),
        ready=np.full(n, np.nan),
        begun=np.full(n, np.nan),
        sent=np.full(n, np.nan),
        arrived=np.full(n, np.nan),
        pending=np.diff(plan.wait_start).astype(np.int32),
        phase=np.zeros(n, dtype=np.int8),
        marked=np.zeros(0, dtype=np.bool_),
        tails=tails,
        next_op=np.full(events, NONE, dtype=np.int32),
        follow_start=follow_start,
        follow=follow,
        heap_time=np.empty(buckets),
        heap_bucket=np.empty(buckets, dtype=np.int32),
        bucket_time=np.empty(buckets),
        bucket_head=np.empty(buckets, dtype=np.int32),
        bucket_size=np.empty(buckets, dtype=np.int32),
        bucket_spare=np.empty(buckets, dtype=np.int32),
        capacity=plan.capacity.copy(),
        head=np.full(links, NONE, dtype=np.int32),
        load=np.zeros(links),
        bound=np.zeros(links, dtype=np.int32),
        dirt=np.zeros(links, dtype=np.int8),
        dirty=np.empty(links, dtype=np.int32),
        seen=np.zeros(links, dtype=np.int64),
        residual=np.empty(links),
        rising=np.empty(links),
        risers=np.empty(links, dtype=np.int32),
        found_links=np.empty(links, dtype=np.int32),
        **_slots(slots, fixed.width, links),
    )
    state.counts[STARTS] = state.counts[ARRIVALS] = NONE
    state.clock[LEVEL] = np.inf
    state.counts[FREE] = slots
    state.free[:slots] = np.arange(slots - 1, -1, -1)
    return state


def _slots(count: int, width: int, links: int) -> dict[str, Array]:
    return {
        "op": np.full(count, NONE, dtype=np.int32),
        "left": np.empty(count),
        "rate": np.empty(count),
        "wanted": np.empty(count),
        "updated": np.empty(count),
        "finish": np.empty(count),
        "where": np.full(count, NONE, dtype=np.int32),
        "bottleneck": np.empty(count, dtype=np.int32),
        "touched": np.zeros(count, dtype=np.int64),
        "free": np.empty(count, dtype=np.int32),
        "flows": np.empty(count, dtype=np.int32),
        "fresh": np.empty(count, dtype=np.int32),
        "found_flows": np.empty(count, dtype=np.int32),
        "level_key": np.empty(count + links),
        "level_item": np.empty(count + links, dtype=np.int32),
        "after": np.empty(count * width, dtype=np.int32),
        "before": np.empty(count * width, dtype=np.int32),
    }


def _grown(state: State, width: int) -> State:
    """The state with twice as many slots."""
    old = len(state.op)
    new = _slots(2 * old, width, len(state.head))
    for name, column in new.items():
        known = getattr(state, name)
        column[: len(known)] = known
    free = int(state.counts[FREE])
    new["free"][free : free + old] = np.arange(2 * old - 1, old - 1, -1)
    state.counts[FREE] += old
    return state._replace(**new)


@compiled
def _follow(wait_start: Array, waits: Array, start: Array, follow: Array) -> None:
    """Fill in, per op, the ops that wait for it, in the order of their numbers."""
    n = len(wait_start) - 1
    for w in waits:
        start[w + 2] += 1
    for i in range(n):
        start[i + 2] += start[i + 1]
    for i in range(n):
        for j in range(wait_start[i], wait_start[i + 1]):
            w = waits[j] + 1
            follow[start[w]] = i
            start[w] += 1


@compiled
def _put(s: State, op: int, time: float, phase: int) -> None:
    """The op starts or arrives at `time`, or goes on there."""
    s.phase[op] = phase
    _file(s, op, time, STARTS if phase == STARTING else ARRIVALS)


@compiled
def _file(s: State, event: int, time: float, last: int) -> None:
    """Equal events mostly come one after the other: they share a bucket, the last of their kind, so
    that a thousand of them are one entry of the heap."""
    b = s.counts[last]
    if b == NONE or s.bucket_time[b] != time:
        if s.counts[SPARE] > 0:
            s.counts[SPARE] -= 1
            b = np.int64(s.bucket_spare[s.counts[SPARE]])
        else:
            b = s.counts[BUCKETS]
            s.counts[BUCKETS] += 1
        s.bucket_time[b] = time
        s.bucket_head[b] = NONE
        s.bucket_size[b] = 0
        heaps.push(s.heap_time, s.heap_bucket, s.counts[HEAP], time, b)
        s.counts[HEAP] += 1
        s.counts[last] = b
    s.next_op[event] = s.bucket_head[b]
    s.bucket_head[b] = event
    s.bucket_size[b] += 1


@compiled
def _release(f: Fixed, s: State) -> None:
    """Start the ops that wait for none."""
    for op in range(len(f.nbytes)):
        if s.pending[op] == 0:
            _ready(f, s, op, 0.0)


@compiled
def _ready(f: Fixed, s: State, op: int, now: float) -> None:
    joined = max(f.start[f.source[op]], f.start[f.destination[op]])
    if joined == np.inf:
        s.phase[op] = STUCK
        return
    at = max(now, joined)
    s.ready[op] = at
    _put(s, op, at + f.overhead[op], STARTING)


@compiled
def _tell(f: Fixed, s: State, op: int, now: float, what: int) -> None:
    """Tell followers of an op: those that pass it on of its first byte, and when all is there;
    others with its source of its last byte; the rest when all is there."""
    for i in range(s.follow_start[op], s.follow_start[op + 1]):
        follower = s.follow[i]
        own = f.source[follower] == f.source[op]
        if len(f.leads) and f.streams[follower] and f.destination[op] == f.source[follower]:
            if what == ALL:
                s.tails[follower] -= 1
                if s.tails[follower] == 0 and s.phase[follower] == HELD:
                    _put(s, follower, now, FREED)
            if what != FIRST:
                continue
        elif what == FIRST or own != (what == LAST):
            continue
        s.pending[follower] -= 1
        if s.pending[follower] == 0:
            _ready(f, s, follower, now)


@compiled
def _sent(f: Fixed, s: State, op: int, now: float) -> None:
    """The op's last byte has left, unless it has yet to come."""
    if len(f.leads) and s.tails[op] > 0:
        s.phase[op] = HELD
        return
    s.sent[op] = now
    _tell(f, s, op, now, LAST)
    _put(s, op, now + f.latency[f.way[op]], SENT)


@compiled
def _start(f: Fixed, s: State, op: int, now: float) -> None:
    if now * (1 + INSTANT) >= min(f.death[f.source[op]], f.death[f.destination[op]]):
        s.phase[op] = STUCK
        return
    s.begun[op] = now
    way = f.way[op]
    if len(f.leads) and f.leads[op]:
        _file(s, len(f.nbytes) + op, now + f.latency[way], ARRIVALS)
    if not f.timed[way] or f.nbytes[op] <= 0:
        _sent(f, s, op, now)
        return
    s.phase[op] = FLOWING
    s.counts[FREE] -= 1
    slot = s.free[s.counts[FREE]]
    s.op[slot] = op
    s.left[slot] = f.nbytes[op]
    s.rate[slot] = 0.0
    s.updated[slot] = now
    s.finish[slot] = np.inf
    s.bottleneck[slot] = NEW
    s.fresh[s.counts[FRESH]] = slot
    s.counts[FRESH] += 1
    at = slot * f.width
    for i in range(f.way_start[way], f.way_start[way + 1]):
        link = f.crossing[i]
        s.after[at] = s.head[link]
        s.before[at] = NONE
        if s.head[link] != NONE:
            s.before[s.head[link]] = at
        s.head[link] = at
        s.load[link] += f.weight[i] * f.share[way]
        _soil(s, link, COMING)
        at += 1


@compiled
def _soil(s: State, link: int, why: int) -> None:
    if s.dirt[link] == 0:
        s.dirty[s.counts[DIRTY]] = link
        s.counts[DIRTY] += 1
    s.dirt[link] = max(s.dirt[link], why)


@compiled
def _leave(f: Fixed, s: State, slot: int) -> None:
    """The flow is over: its links are free of it."""
    way = f.way[s.op[slot]]
    at = slot * f.width
    for i in range(f.way_start[way], f.way_start[way + 1]):
        link = f.crossing[i]
        if s.before[at] == NONE:
            s.head[link] = s.after[at]
        else:
            s.after[s.before[at]] = s.after[at]
        if s.after[at] != NONE:
            s.before[s.after[at]] = s.before[at]
        s.load[link] -= f.weight[i] * f.share[way]
        if s.head[link] == NONE:
            s.load[link] = 0.0
        _soil(s, link, GOING)
        at += 1
    if s.bottleneck[slot] >= 0:
        s.bound[s.bottleneck[slot]] -= 1
    s.clock[LEVEL] = min(s.clock[LEVEL], s.rate[slot] / f.share[way])
    s.op[slot] = NONE
    s.free[s.counts[FREE]] = slot
    s.counts[FREE] += 1


@compiled
def _change(f: Fixed, s: State) -> None:
    """The next change of a link's capacity."""
    i = s.counts[CHANGED]
    s.counts[CHANGED] += 1
    s.capacity[f.change_link[i]] = f.change_capacity[i]
    _soil(s, f.change_link[i], COMING)
    s.clock[LEVEL] = 0.0


@compiled
def _die(f: Fixed, s: State) -> None:
    """The next death of a vertex: what it sends or receives is lost."""
    vertex = f.death_vertex[s.counts[DIED]]
    s.counts[DIED] += 1
    for slot in range(len(s.op)):
        op = s.op[slot]
        if op != NONE and (f.source[op] == vertex or f.destination[op] == vertex):
            s.phase[op] = STUCK
            s.counts[FLOWS] = heaps.remove(s.flows, s.where, s.finish, s.counts[FLOWS], slot)
            _leave(f, s, slot)


@compiled
def _advance(f: Fixed, s: State, budget: int) -> int:
    """Play on until all is done, `budget` events have passed, or the slots are full."""
    while budget > 0:
        now = np.inf
        if s.counts[HEAP] > 0:
            now = s.heap_time[0]
        if s.counts[FLOWS] > 0:
            now = min(now, s.finish[s.flows[0]])
        if s.counts[CHANGED] < len(f.change_time):
            now = min(now, f.change_time[s.counts[CHANGED]])
        if s.counts[DIED] < len(f.death_time):
            now = min(now, f.death_time[s.counts[DIED]])
        if s.counts[FINISHED] == len(f.nbytes) or now == np.inf:
            return DONE
        now = max(now, s.clock[NOW])
        s.clock[NOW] = now
        horizon = now * (1 + INSTANT)
        again = True
        while again:
            again = False
            while (
                s.counts[CHANGED] < len(f.change_time)
                and f.change_time[s.counts[CHANGED]] <= horizon
            ):
                _change(f, s)
            while s.counts[FLOWS] > 0 and s.finish[s.flows[0]] <= horizon:
                slot = s.flows[0]
                s.counts[FLOWS] = heaps.remove(s.flows, s.where, s.finish, s.counts[FLOWS], slot)
                op = s.op[slot]
                _leave(f, s, slot)
                _sent(f, s, op, now)
                budget -= 1
            # What ends in the instant of a death has ended; what would begin does not.
            while s.counts[DIED] < len(f.death_time) and f.death_time[s.counts[DIED]] <= horizon:
                _die(f, s)
            while s.counts[HEAP] > 0 and s.heap_time[0] <= horizon:
                b = np.int64(s.heap_bucket[0])
                if s.bucket_size[b] > s.counts[FREE]:
                    return FULL
                again = True
                heaps.pop(s.heap_time, s.heap_bucket, s.counts[HEAP])
                s.counts[HEAP] -= 1
                for last in (STARTS, ARRIVALS):
                    if s.counts[last] == b:
                        s.counts[last] = NONE
                op = s.bucket_head[b]
                budget -= s.bucket_size[b]
                s.bucket_spare[s.counts[SPARE]] = b
                s.counts[SPARE] += 1
                while op != NONE:
                    following = s.next_op[op]
                    if op >= len(f.nbytes):
                        _tell(f, s, op - len(f.nbytes), now, FIRST)
                    elif s.phase[op] == STARTING:
                        _start(f, s, op, now)
                    elif s.phase[op] == FREED:
                        if now > min(f.death[f.source[op]], f.death[f.destination[op]]) * (
                            1 + INSTANT
                        ):
                            s.phase[op] = STUCK
                        else:
                            _sent(f, s, op, now)
                    else:
                        s.phase[op] = ARRIVED
                        s.arrived[op] = now
                        s.counts[FINISHED] += 1
                        if len(s.marked) and s.marked[op]:
                            s.counts[STOPS] = 1
                        _tell(f, s, op, now, ALL)
                    op = following
        _share(f, s, now)
        if s.counts[STOPS]:
            s.counts[STOPS] = 0
            return MARKED
    return PAUSED


@compiled
def _share(f: Fixed, s: State, now: float) -> None:
    """Fill again what the changes of this instant can touch."""
    level = s.clock[LEVEL]
    for i in range(s.counts[FRESH]):
        slot = s.fresh[i]
        if s.op[slot] == NONE:
            continue
        way = f.way[s.op[slot]]
        level = min(level, f.limit[way] / f.share[way])
        for j in range(f.way_start[way], f.way_start[way + 1]):
            link = f.crossing[j]
            level = min(level, s.capacity[link] / s.load[link])
    level *= SLACK
    s.counts[EPOCH] += 1
    for i in range(s.counts[DIRTY]):
        link = s.dirty[i]
        # Where flows only went, those left can rise if this link is what held them.
        if s.head[link] == NONE or (s.dirt[link] == GOING and s.bound[link] == 0):
            s.dirt[link] = 0
    for i in range(s.counts[DIRTY]):
        link = s.dirty[i]
        if s.dirt[link] != 0 and s.seen[link] != s.counts[EPOCH]:
            flows = _gather(f, s, link, level)
            if flows == 1:
                _fill_one(f, s, now)
            elif flows > 1:
                _fill(f, s, flows, now)
        s.dirt[link] = 0
    for i in range(s.counts[FRESH]):  # flows that cross no link that could bind
        slot = s.fresh[i]
        if s.op[slot] != NONE and s.bottleneck[slot] == NEW:
            s.bottleneck[slot] = NONE
            _set_rate(s, slot, f.limit[f.way[s.op[slot]]], now)
    s.counts[DIRTY] = 0
    s.counts[FRESH] = 0
    s.clock[LEVEL] = np.inf


@compiled
def _gather(f: Fixed, s: State, first: int, level: float) -> int:
    """The number of flows that can change with this link; finds them, their links, what is left."""
    epoch = s.counts[EPOCH]
    flows, links, i = 0, 1, 0
    s.found_links[0] = first
    s.seen[first] = epoch
    while i < links:
        link = s.found_links[i]
        i += 1
        taken, rising, risers = 0.0, 0.0, 0
        at = s.head[link]
        while at != NONE:
            slot = at // f.width
            way = f.way[s.op[slot]]
            begin = f.way_start[way]
            weight = f.weight[begin + at - slot * f.width]
            if s.bottleneck[slot] != NEW and s.rate[slot] < level * f.share[way]:
                taken += weight * s.rate[slot]
                at = s.after[at]
                continue
            rising += weight * f.share[way]
            risers += 1
            if s.touched[slot] != epoch:
                s.touched[slot] = epoch
                s.found_flows[flows] = slot
                flows += 1
                s.wanted[slot] = -1.0
                if s.bottleneck[slot] >= 0:
                    s.bound[s.bottleneck[slot]] -= 1
                for j in range(begin, f.way_start[way + 1]):
                    other = f.crossing[j]
                    if s.seen[other] != epoch:
                        s.seen[other] = epoch
                        s.found_links[links] = other
                        links += 1
            at = s.after[at]
        s.residual[link] = max(0.0, s.capacity[link] - taken)
        s.rising[link] = rising
        s.risers[link] = risers
    s.counts[LINKS] = links
    return flows


@compiled
def _fill_one(f: Fixed, s: State, now: float) -> None:
    """A flow that shares its links with none: it gets the least of them."""
    slot = s.found_flows[0]
    way = f.way[s.op[slot]]
    rate, bottleneck = f.limit[way], NONE
    for i in range(f.way_start[way], f.way_start[way + 1]):
        link = f.crossing[i]
        level = s.residual[link] / f.weight[i]
        if level < rate:
            rate, bottleneck = level, link
    _set_bottleneck(s, slot, bottleneck)
    _set_rate(s, slot, rate, now)


@compiled
def _fill(f: Fixed, s: State, flows: int, now: float) -> None:
    """Progressive filling: the fullest link first, then the next, as sharing.py does."""
    size = 0
    for i in range(s.counts[LINKS]):
        link = s.found_links[i]
        if s.risers[link] > 0:
            heaps.push(s.level_key, s.level_item, size, s.residual[link] / s.rising[link], link)
            size += 1
    for i in range(flows):
        slot = s.found_flows[i]
        way = f.way[s.op[slot]]
        if f.limit[way] < np.inf:
            limit = f.limit[way] / f.share[way]
            heaps.push(s.level_key, s.level_item, size, limit, -1 - slot)
            size += 1
    while size > 0:
        key, item = s.level_key[0], s.level_item[0]
        heaps.pop(s.level_key, s.level_item, size)
        size -= 1
        if item < 0:
            slot = -1 - item
            if s.wanted[slot] < 0:
                _freeze(f, s, slot, key, NONE)
            continue
        if s.risers[item] == 0:
            continue
        level = s.residual[item] / s.rising[item]
        if level > key * (1 + INSTANT):  # others have frozen since: it fills later
            heaps.push(s.level_key, s.level_item, size, level, item)
            size += 1
            continue
        at = s.head[item]
        while at != NONE:
            slot = at // f.width
            if s.touched[slot] == s.counts[EPOCH] and s.wanted[slot] < 0:
                _freeze(f, s, slot, level, item)
            at = s.after[at]
    for i in range(flows):
        slot = s.found_flows[i]
        _set_rate(s, slot, s.wanted[slot], now)


@compiled
def _freeze(f: Fixed, s: State, slot: int, level: float, bottleneck: int) -> None:
    way = f.way[s.op[slot]]
    rate = min(f.limit[way], level * f.share[way])
    s.wanted[slot] = rate
    _set_bottleneck(s, slot, bottleneck)
    for i in range(f.way_start[way], f.way_start[way + 1]):
        link = f.crossing[i]
        s.risers[link] -= 1
        s.rising[link] -= f.weight[i] * f.share[way]
        s.residual[link] = max(0.0, s.residual[link] - f.weight[i] * rate)


@compiled
def _set_bottleneck(s: State, slot: int, bottleneck: int) -> None:
    s.bottleneck[slot] = bottleneck
    if bottleneck >= 0:
        s.bound[bottleneck] += 1


@compiled
def _set_rate(s: State, slot: int, rate: float, now: float) -> None:
    old = s.rate[slot]
    if abs(rate - old) <= SAME * old:
        return
    s.left[slot] = max(0.0, s.left[slot] - old * (now - s.updated[slot]))
    s.updated[slot] = now
    s.rate[slot] = rate
    if rate > 0:
        s.finish[slot] = now + s.left[slot] / rate
        s.counts[FLOWS] = heaps.place(s.flows, s.where, s.finish, s.counts[FLOWS], slot)
    else:
        s.counts[FLOWS] = heaps.remove(s.flows, s.where, s.finish, s.counts[FLOWS], slot)
