"""A recording as tasks: each event with what it waited for, and how long after that it began.

    start = max(end of the stream's task before, ends of all it waited for) + pause

The pause is what was measured, so that tasks of unchanged durations begin when they were recorded;
it stands as a task of its own before the event. What an event waited for is, in this order: what
the recording says; for work of a GPU the moment of its launch; for an operation of NCCL all that
its thread had put on the stream before, as PyTorch's process groups do (ProcessGroupNCCL's
syncStream), or, without launches, the computing that ended last before it; where more than a moment
remains, the work of another stream that ended last before it began. The last two rules guess.

The way of thinking is that of Zhu et al., "Daydream: accurately estimating the efficacy of
optimizations for DNN training", USENIX ATC 2020.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from commsim.traces.recording import COMMUNICATION, COMPUTE, ISSUE, WAIT, Call, Event, Recording
from commsim.traces.stream_waits import EXACT
from commsim.units import Seconds

PAUSE = "pause"
WITHIN = 20e-6
"""s in which a GPU's stream goes on once what it waits for is over; judged by launch latencies of
4 to 10 us in published traces. A longer gap is taken for the host's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A task of one rank. after: places of tasks of its rank. event: the place of what it was
    recorded as, -1 of a pause."""

    name: str
    kind: str
    stream: str
    duration: Seconds
    after: tuple[int, ...] = ()
    event: int = -1
    call: Call | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A rank's tasks in an order in which they can be played. known, guessed: how many waits for
    other streams the recording tells, and how many were inferred from times. begin: s at which its
    first task starts."""

    recording: Recording
    parts: tuple[Part, ...]
    known: int
    guessed: int
    begin: Seconds


def line(recording: Recording) -> Line:
    """The tasks of a recording."""
    return _Builder(recording).build()


class _Builder:
    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.events = recording.events
        self.ends = [e.start if math.isnan(e.end) else e.end for e in self.events]
        self.begin = min((e.start for e in self.events), default=0.0)
        self.by_end, self.order = _sorted_ends(self.events, self.ends)
        self.parts: list[Part] = []
        self.part: dict[int, int] = {}  # of an event, its task
        self.moment: dict[int, int] = {}  # of an event that issues, the pause that ends then
        self.issues = {e.issuer for e in self.events if e.issuer is not None}
        self.over: dict[str, Seconds] = {}  # of a stream, the end of its last task
        self.known = self.guessed = 0

    def build(self) -> Line:
        previous: dict[str, int] = {}  # of a thread, the last event that it put on a compute stream
        for i in _playable(self.events):
            event = self.events[i]
            over = self.over.get(event.stream, self.begin)
            if event.kind == WAIT:
                self._waiting(i, event, over)
            else:
                self._work(i, event, over, previous)
            self.over[event.stream] = max(over, self.ends[i])
        return Line(
            recording=self.recording, parts=tuple(self.parts), known=self.known,
            guessed=self.guessed, begin=self.begin,
        )  # fmt: skip

    def _work(self, i: int, event: Event, over: Seconds, previous: dict[str, int]) -> None:
        after, ready = list(event.after), over
        thread = ""
        if event.issuer is not None:
            ready = max(ready, self.events[event.issuer].start)
            thread = self.events[event.issuer].stream
        if event.kind == COMMUNICATION and thread in previous:
            after.append(previous[thread])
        elif event.kind == COMMUNICATION and not thread:
            # Nothing tells when it was asked for: not before the computing that was over by then.
            before = self._ended_last(event, -math.inf, event.start, COMPUTE)
            after += [] if before is None else [before]
        after = [j for j in after if j in self.part and self.ends[j] <= event.start + EXACT]
        self.known += len(after)
        ready = max([ready, *(self.ends[j] for j in after)])
        on_device = event.issuer is not None or not self._on_thread(event)
        if on_device and event.start - ready > EXACT:
            found = self._ended_last(event, max(ready, event.start - WITHIN), event.start)
            if found is not None:
                after.append(found)
                self.guessed += 1
                ready = max(ready, self.ends[found])
        waits = [self.part[j] for j in after]
        if event.issuer is not None and event.issuer in self.moment:
            waits.append(self.moment[event.issuer])
            self.known += 1
        pause = max(0.0, event.start - ready)
        issues = i in self.issues
        if pause > 0 or issues or event.kind == COMMUNICATION:
            place = self._add(PAUSE, PAUSE, event.stream, pause, waits)
            waits = []
            if issues:
                self.moment[i] = place
        duration = event.duration if math.isnan(event.end) else max(0.0, event.duration)
        self.part[i] = self._add(
            event.name, event.kind, event.stream, duration, waits, event=i, call=event.call
        )
        if event.kind != COMMUNICATION and thread:
            previous[thread] = i

    def _waiting(self, i: int, event: Event, over: Seconds) -> None:
        after = [j for j in event.after if j in self.part and self.ends[j] <= event.end + EXACT]
        self.known += len(after)
        if not after:
            found = self._ended_last(event, max(over, event.start), event.end)
            if found is not None:
                after = [found]
                self.guessed += 1
        begun = max([over, *(self.ends[j] for j in after)])
        if not after:
            self._add(PAUSE, PAUSE, event.stream, max(0.0, event.start - over), [])
            begun = max(over, event.start)
        self.part[i] = self._add(
            event.name, WAIT, event.stream, max(0.0, event.end - begun),
            [self.part[j] for j in after], event=i,
        )  # fmt: skip

    def _add(
        self, name: str, kind: str, stream: str, duration: Seconds, after: Sequence[int],
        event: int = -1, call: Call | None = None,
    ) -> int:  # fmt: skip
        self.parts.append(
            Part(name=name, kind=kind, stream=stream, duration=duration,
                 after=tuple(dict.fromkeys(after)), event=event, call=call)
        )  # fmt: skip
        return len(self.parts) - 1

    def _on_thread(self, event: Event) -> bool:
        """Whether the event is a thread's own doing: nothing but what it says makes it wait."""
        return event.stream.startswith("thread") and event.kind != COMMUNICATION

    def _ended_last(
        self, event: Event, since: Seconds, until: Seconds, kind: str | None = None
    ) -> int | None:
        """The work of another stream, of that kind, that ended last in (since, until]."""
        place = int(np.searchsorted(self.by_end, until + EXACT, side="right")) - 1
        while place >= 0 and self.by_end[place] > since:
            found = int(self.order[place])
            other = self.events[found]
            elsewhere = other.stream != event.stream and found in self.part
            if elsewhere and other.start < until and kind in (None, other.kind):
                return found
            place -= 1
        return None


def _sorted_ends(
    events: Sequence[Event], ends: Sequence[Seconds]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The ends of what runs beside host threads, in order, and whose they are."""
    places = [
        i for i, e in enumerate(events)
        if e.kind not in (ISSUE, WAIT) and (e.kind == COMMUNICATION or not _threads(e))
        and not math.isnan(e.end)
    ]  # fmt: skip
    found = np.array([ends[i] for i in places], dtype=np.float64)
    order = np.argsort(found, kind="stable")
    return found[order], np.array(places, dtype=np.int64)[order]


def _threads(event: Event) -> bool:
    return event.stream.startswith("thread")


def _playable(events: Sequence[Event]) -> list[int]:
    """The events by start; a wait, which stands for the moment at which it ends, by its end."""

    def moment(i: int) -> tuple[Seconds, int]:
        event = events[i]
        return (event.end if event.kind == WAIT else event.start), i

    return sorted(range(len(events)), key=moment)
