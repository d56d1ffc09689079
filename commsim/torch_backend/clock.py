"""Virtual time of one rank: its host, and the streams on which its GPU works.

A host queues work and runs ahead; work on a stream starts when the stream is free and the host has
queued it: start = max(stream, host), stream = start + duration. A wait on communication moves the
stream, not the host, as with CUDA; `synchronize` moves the host.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from commsim.torch_backend.records import Operation, Post
from commsim.units import Seconds


@dataclass(slots=True, eq=False)
class Lane:
    """A stream of a rank's GPU. time: s, when what is queued on it ends.

    cause: the communication for which it last waited.
    """

    name: str = "compute"
    time: Seconds = 0.0
    cause: Post | None = None


@dataclass(slots=True, frozen=True)
class Mark:
    """A moment on a stream, as a CUDA event records it."""

    time: Seconds
    cause: Post | None = None


@dataclass(slots=True, frozen=True)
class Span:
    """Something that took place on a stream of a rank, from start to end in s."""

    name: str
    lane: str
    start: Seconds
    end: Seconds


@dataclass(slots=True, eq=False)
class Clock:
    """The host's time in s, its streams, and how long they computed and stood still."""

    host: Seconds = 0.0
    default: Lane = field(default_factory=Lane)
    busy: Seconds = 0.0
    exposed: Seconds = 0.0
    awaiting_others: Seconds = 0.0
    queues: dict[Hashable, Operation] = field(default_factory=dict)
    spans: list[Span] = field(default_factory=list)
    current: Lane = field(init=False)

    def __post_init__(self) -> None:
        self.current = self.default

    @property
    def end(self) -> Seconds:
        """s, when everything queued so far is done, on the stream that the script looks at."""
        return max(self.host, self.default.time)

    @property
    def ready(self) -> Seconds:
        """s, when work queued now on the current stream could start."""
        return max(self.current.time, self.host)

    def compute(self, name: str, duration: Seconds, launch: Seconds, keep: bool) -> None:
        """Queue a kernel of `duration` s, for which the host takes `launch` s."""
        self.host += launch
        if duration > 0:
            start = self.ready
            self.current.time = start + duration
            self.busy += duration
            if keep:
                self.spans.append(Span(name, self.current.name, start, self.current.time))

    def wait_for(self, mark: Mark) -> None:
        """The current stream waits for a moment on another."""
        self.hold(self.current, mark)

    def hold(self, lane: Lane, mark: Mark) -> None:
        """A stream waits for a moment; if it is the compute stream, that time is exposed."""
        free = max(lane.time, self.host)
        if mark.time > free:
            if lane is self.default and mark.cause is not None:
                self._expose(mark.cause, free, mark.time)
            lane.cause = mark.cause
        lane.time = max(lane.time, mark.time)

    def synchronize(self, *lanes: Lane) -> None:
        """The host waits for streams: the current one, unless others are named."""
        for lane in lanes or (self.current,):
            self.host = max(self.host, lane.time)

    def _expose(self, post: Post, start: Seconds, end: Seconds) -> None:
        self.exposed += end - start
        post.exposed += end - start
        waited = max(0.0, min(post.operation.start, end) - start)
        post.awaiting_others += waited
        self.awaiting_others += waited

    def follow(self, queue: Hashable, operation: Operation) -> Operation | None:
        """Put an operation in one of the rank's queues: of a group, of messages one way. The one
        before it, after whose end it may use the network."""
        before = self.queues.get(queue)
        self.queues[queue] = operation
        return before
