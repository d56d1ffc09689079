"""Streams and events of virtual time, in the place of those of `torch.cpu` (and of CUDA's).

FSDP2 overlaps by them: it takes them from `torch.cpu` on a mesh of CPUs, where they do nothing.
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any

from commsim.torch_backend.clock import Clock, Lane, Mark

HERE = threading.local()  # .clock: the clock of the calling thread's rank


def clock() -> Clock:
    """The calling rank's clock; one that nobody reads outside a rank."""
    found: Clock | None = getattr(HERE, "clock", None)
    return Clock() if found is None else found


class Event:
    """A moment on a stream, once recorded."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.mark: Mark | None = None

    def record(self, stream: Stream | None = None) -> None:
        lane = clock().current if stream is None else stream.lane
        self.mark = Mark(max(lane.time, clock().host), lane.cause)

    def wait(self, stream: Stream | None = None) -> None:
        if self.mark is not None:
            clock().hold(clock().current if stream is None else stream.lane, self.mark)

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        if self.mark is not None:
            clock().host = max(clock().host, self.mark.time)

    def elapsed_time(self, end: Event) -> float:
        """ms, as CUDA's."""
        if self.mark is None or end.mark is None:
            raise RuntimeError("both events must be recorded before their distance is asked for")
        return (end.mark.time - self.mark.time) * 1e3


class Stream:
    """A queue of work beside others."""

    def __init__(self, *_: Any, lane: Lane | None = None, **__: Any) -> None:
        self.lane = Lane(f"stream {id(self):x}") if lane is None else lane

    def wait_stream(self, stream: Stream) -> None:
        clock().hold(self.lane, Mark(stream.lane.time, stream.lane.cause))

    def wait_event(self, event: Event) -> None:
        event.wait(self)

    def record_event(self, event: Event | None = None) -> Event:
        event = Event() if event is None else event
        event.record(self)
        return event

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        clock().synchronize(self.lane)

    def is_capturing(self) -> bool:
        """Into a graph? There are none."""
        return False

    def __enter__(self) -> Stream:
        self._before = clock().current
        clock().current = self.lane
        return self

    def __exit__(self, *_: object) -> None:
        clock().current = self._before


class StreamContext:
    """Work queued inside goes to the stream."""

    def __init__(self, stream: Stream | None) -> None:
        self._stream = stream

    def __enter__(self) -> None:
        self._before = clock().current
        if self._stream is not None:
            clock().current = self._stream.lane

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        clock().current = self._before


def stream(stream: Stream | None) -> StreamContext:
    """Within this context, work goes to that stream."""
    return StreamContext(stream)


def current_stream(device: Any = None) -> Stream:
    """The stream to which work goes."""
    return Stream(lane=clock().current)


def default_stream(device: Any = None) -> Stream:
    """The stream of a rank that never chose one."""
    return Stream(lane=clock().default)


def synchronize(device: Any = None) -> None:
    """The host waits for the stream of the script."""
    clock().synchronize(clock().default, clock().current)
