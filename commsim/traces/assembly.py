"""From what a profiler saw of a GPU and of the threads that drive it to events in their order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from commsim.traces.recording import COMMUNICATION, ISSUE, WAIT, Call, Event
from commsim.traces.stream_waits import EXACT, StreamWait, with_waits
from commsim.units import Seconds

SYNCHRONIZING = (
    "cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize", "cudaMemcpy",
    "cuCtxSynchronize", "cuStreamSynchronize", "cuEventSynchronize", "hipDeviceSynchronize",
    "hipStreamSynchronize", "hipEventSynchronize", "hipMemcpy", "hipMemcpyWithStream",
)  # fmt: skip
"""Calls that return when the GPU is done (CUDA and HIP runtime and driver APIs)."""


STREAM_WAIT = ("cudaStreamWaitEvent", "cuStreamWaitEvent", "hipStreamWaitEvent")


def makes_a_stream_wait(name: str) -> bool:
    """Whether a call of the runtime makes a stream wait for an event."""
    return name.startswith(STREAM_WAIT)


def synchronizes(name: str) -> bool:
    """Whether a call of the runtime waits for the GPU; version suffixes (_v3020) do not matter."""
    return name.split("_v")[0].split("_ptsz")[0] in SYNCHRONIZING


@dataclass(slots=True, kw_only=True)
class Work:
    """Something on a GPU's stream, from start to end, s. correlation: that of its launch."""

    name: str
    kind: str
    stream: str
    start: Seconds
    end: Seconds
    correlation: int | None = None
    call: Call | None = None


@dataclass(slots=True, kw_only=True)
class Seen:
    """What was seen: work on the GPU, launches by correlation (thread, s), waits of threads and of
    streams. by_order: how many waits of streams were found by the order of operations."""

    work: list[Work] = field(default_factory=list)
    launches: dict[int, tuple[str, Seconds]] = field(default_factory=dict)
    waits: list[tuple[str, Seconds, Seconds]] = field(default_factory=list)
    stream_waits: list[StreamWait] = field(default_factory=list)
    by_order: int = 0

    def events(self) -> tuple[Event, ...]:
        """All of it in the order of issue: a moment for each launch, then what it launched."""
        rows: list[tuple[Seconds, int, Event, int | None]] = []
        used: dict[int, tuple[str, Seconds]] = {}
        last: dict[str, Seconds] = {}
        for each in in_lanes(self.work):
            launch = None if each.correlation is None else self.launches.get(each.correlation)
            issued = each.start
            correlation = None
            if launch is not None and launch[1] <= each.start:
                assert each.correlation is not None
                correlation, issued = each.correlation, launch[1]
                used[correlation] = launch
            last[each.stream] = issued = max(issued, last.get(each.stream, issued))
            event = Event(
                name=each.name, kind=each.kind, stream=each.stream, start=each.start,
                end=each.end, call=each.call,
            )  # fmt: skip
            rows.append((issued, 1, event, correlation))
        for correlation, (thread, time) in used.items():
            event = Event(name="launch", kind=ISSUE, stream=thread, start=time, end=time)
            rows.append((time, 0, event, correlation))
        for thread, start, end in self.waits:
            waiting = Event(name="wait", kind=WAIT, stream=thread, start=start, end=end)
            rows.append((start, 0, waiting, None))
        rows.sort(key=lambda row: row[:2])
        place = {c: i for i, (_, device, _, c) in enumerate(rows) if c is not None and not device}
        cut = without_overlaps(
            replace(event, issuer=place[c]) if device and c is not None else event
            for _, device, event, c in rows
        )
        events, self.by_order = with_waits(cut, self.stream_waits)
        return events


def in_lanes(work: Iterable[Work]) -> list[Work]:
    """By start; what overlaps with something on its stream is put on a stream beside it, as a
    profiler's clock is not exact and batched messages share a stream."""
    found = sorted(work, key=lambda w: (w.start, w.end))
    free: dict[str, list[Seconds]] = defaultdict(list)
    for each in found:
        lanes = free[each.stream]
        lane = next((i for i, end in enumerate(lanes) if end <= each.start + EXACT), len(lanes))
        if lane == len(lanes):
            lanes.append(each.start)
        each.start = max(each.start, lanes[lane])
        lanes[lane] = each.end = max(each.end, each.start)
        if lane:
            each.stream = f"{each.stream} ({lane + 1})"
    return found


def without_overlaps(events: Iterable[Event]) -> tuple[Event, ...]:
    """The events, those of a host thread cut so that none begins before the last one is over."""
    found: list[Event] = []
    over: dict[str, Seconds] = {}
    for event in events:
        if event.kind in (ISSUE, WAIT):
            start = max(event.start, over.get(event.stream, event.start))
            if start != event.start:
                event = replace(event, start=start, end=max(start, event.end))
            over[event.stream] = event.end
        found.append(event)
    return tuple(found)


def numbered(events: Sequence[Event]) -> tuple[Event, ...]:
    """The events; calls without a number get the next one of their group."""
    counts: dict[tuple[str, object], int] = defaultdict(int)
    found = []
    for event in events:
        call = event.call
        if event.kind == COMMUNICATION and call is not None:
            kind = call.operation if call.is_message else "collective"
            key = call.group, (kind, call.peer) if call.is_message else kind
            if call.sequence < 0 or call.is_message:
                event = replace(event, call=replace(call, sequence=counts[key]))
            counts[key] += 1
        found.append(event)
    return tuple(found)
