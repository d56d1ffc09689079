"""Which work of a GPU waits for which other stream's, from the calls that make streams wait.

A profiler asked for it (enable_cuda_sync_events) notes of each cudaStreamWaitEvent the stream and
the event it waits for: then all is known. Else only that the call was made: right before the launch
of an operation it is how PyTorch puts NCCL's stream behind the current one (line.py knows that);
elsewhere it is a wait for an operation, Work.wait(). It is taken for the oldest that nobody has
waited for: of those that bring what is computed with (all_gather, all_to_all ...) before those that
carry results away (all_reduce, reduce_scatter). An operation still under way when the waiting work
began cannot be meant.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from commsim.traces.recording import COMMUNICATION, ISSUE, WAIT, Event
from commsim.units import Seconds

EXACT = 2e-9  # s: profilers write whole ns
AWAY = ("all_reduce", "reduce_scatter", "reduce", "gather", "send")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamWait:
    """A stream was made to wait. thread, time: of the call. stream: which one, None if not noted.
    behind: the stream waited for, and the time of the call that marked the moment on it."""

    thread: str
    time: Seconds
    stream: str | None = None
    behind: tuple[str, Seconds] | None = None


def with_waits(
    events: Sequence[Event], waits: Sequence[StreamWait]
) -> tuple[tuple[Event, ...], int]:
    """The events, in their order, knowing what they waited for; how many waits were taken by the
    order of operations."""
    issued: dict[str, list[tuple[Seconds, int]]] = defaultdict(list)  # by thread
    on: dict[str, list[tuple[Seconds, int]]] = defaultdict(list)  # by stream
    for i, event in enumerate(events):
        if event.kind not in (ISSUE, WAIT) and event.issuer is not None:
            issuer = events[event.issuer]
            issued[issuer.stream].append((issuer.start, i))
            on[event.stream].append((issuer.start, i))
    for line in (*issued.values(), *on.values()):
        line.sort()
    after: dict[int, list[int]] = defaultdict(list)
    exact = [w for w in waits if w.stream is not None and w.behind is not None]
    taken = 0
    if exact:
        for wait in exact:
            _known(wait, on, after)
    else:
        for thread in issued:
            mine = sorted((w for w in waits if w.thread == thread), key=lambda w: w.time)
            taken += _by_order(mine, events, issued[thread], after)
    found = tuple(
        replace(event, after=tuple(dict.fromkeys([*event.after, *after[i]]))) if i in after
        else event
        for i, event in enumerate(events)
    )  # fmt: skip
    return found, taken


def _known(
    wait: StreamWait,
    on: dict[str, list[tuple[Seconds, int]]],
    after: dict[int, list[int]],
) -> None:
    """The next work on the stream waits for the last that was put on the other before its mark."""
    assert wait.stream is not None
    assert wait.behind is not None
    line, (other, marked) = on.get(wait.stream, []), wait.behind
    place = bisect_left(line, (wait.time, -1))
    before = bisect_left(on.get(other, []), (marked, -1)) - 1
    if place < len(line) and before >= 0:
        after[line[place][1]].append(on[other][before][1])


def _by_order(
    waits: Sequence[StreamWait],
    events: Sequence[Event],
    issued: Sequence[tuple[Seconds, int]],
    after: dict[int, list[int]],
) -> int:
    """Waits of one thread for the operations that it issued; how many."""
    pending: list[int] = []
    passed = taken = 0
    for wait in waits:
        place = bisect_left(issued, (wait.time, -1))
        pending += [i for _, i in issued[passed:place] if events[i].kind == COMMUNICATION]
        passed = max(passed, place)
        if place == len(issued) or events[issued[place][1]].kind == COMMUNICATION:
            continue
        waiting = issued[place][1]
        over = [i for i in pending if events[i].end <= events[waiting].start + EXACT]
        chosen = min(over, key=lambda i: (_away(events[i]), i), default=None)
        if chosen is not None:
            pending.remove(chosen)
            after[waiting].append(chosen)
            taken += 1
    return taken


def _away(event: Event) -> bool:
    return event.call is not None and event.call.operation in AWAY
