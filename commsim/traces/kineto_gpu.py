"""What a Kineto trace says of GPUs: their work, the calls that launched it, and who waited."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from commsim.traces import call_names as names
from commsim.traces import metadata
from commsim.traces.assembly import Seen, Work, makes_a_stream_wait, numbered, synchronizes
from commsim.traces.kernel_calls import KernelCalls
from commsim.traces.recording import COMMUNICATION, COMPUTE, COPY, Event
from commsim.traces.stream_waits import StreamWait
from commsim.units import Seconds

DEVICE = {
    "kernel": COMPUTE, "gpu_memcpy": COPY, "gpu_memset": COPY, "Kernel": COMPUTE, "Memcpy": COPY,
    "Memset": COPY,
}  # fmt: skip
RUNTIME = frozenset({"cuda_runtime", "cuda_driver", "privateuse1_runtime", "Runtime"})
SYNC = "cuda_sync"
Arguments = dict[str, Any]


@dataclass(slots=True, kw_only=True)
class Gpus:
    """Everything met so far. work: by process, which is a device or, in a file of several ranks, a
    rank. by_order: how many waits of streams were found by the order of operations."""

    work: dict[object, list[Work]] = field(default_factory=dict)
    calls: KernelCalls = field(default_factory=KernelCalls)
    by_order: int = 0
    _process: dict[int, object] = field(default_factory=dict)  # by identity of work
    _launches: dict[int, tuple[str, Seconds]] = field(default_factory=dict)
    _waits: list[tuple[str, Seconds, Seconds]] = field(default_factory=list)
    _stream_waits: list[StreamWait] = field(default_factory=list)
    _noted: list[Arguments] = field(default_factory=list)

    def ran(
        self, category: str, name: str, at: tuple[object, object], begin: Seconds, end: Seconds,
        arguments: Arguments,
    ) -> None:  # fmt: skip
        """A kernel or a copy; at: its process and thread."""
        kind = DEVICE[category]
        if metadata.NAME in arguments or names.is_communication(name):
            kind = COMMUNICATION
        process, thread = at
        work = Work(
            name=sys.intern(name), kind=kind, start=begin, end=end,
            stream=sys.intern(f"stream {arguments.get('stream', thread)}"),
            correlation=metadata.number(arguments.get("correlation")),
        )  # fmt: skip
        self.work.setdefault(process, []).append(work)
        if kind == COMMUNICATION:
            self.calls.ran(work, arguments)
            self._process[id(work)] = process

    def called(
        self, name: str, thread: str, begin: Seconds, end: Seconds, arguments: Arguments
    ) -> None:
        """A call of the runtime or of the driver."""
        correlation = metadata.number(arguments.get("correlation"))
        if correlation is not None:
            self._launches[correlation] = thread, begin
        if synchronizes(name):
            self._waits.append((thread, begin, end))
        elif makes_a_stream_wait(name):
            self._stream_waits.append(StreamWait(thread=thread, time=begin))

    def synchronized(self, name: str, arguments: Arguments) -> None:
        """What a stream waited for, if the profiler notes it."""
        if name.startswith("Stream Wait"):
            self._noted.append(arguments)

    def name_calls(self) -> None:
        """Gives each kernel its operation, once all is read."""
        for work, other in self.calls.put_together(self._launches):
            self.work[self._process[id(work)]].append(other)

    def events(self, processes: Sequence[object]) -> tuple[Event, ...]:
        """The events of these processes."""
        seen = Seen(
            launches=self._launches, waits=self._waits,
            stream_waits=self._known_waits() or self._stream_waits,
        )  # fmt: skip
        for process in processes:
            for work in self.work[process]:
                if len(processes) > 1:
                    work.stream = f"device {process} {work.stream}"
                seen.work.append(work)
        events = numbered(seen.events())
        self.by_order += seen.by_order
        return events

    def _known_waits(self) -> list[StreamWait]:
        found = []
        for arguments in self._noted:
            called = self._launches.get(metadata.number(arguments.get("correlation")) or 0)
            record = metadata.number(arguments.get("wait_on_cuda_event_record_corr_id"))
            marked = self._launches.get(record or 0)
            if called is not None and marked is not None:
                behind = f"stream {arguments.get('wait_on_stream')}", marked[1]
                found.append(
                    StreamWait(
                        thread=called[0], time=called[1], behind=behind,
                        stream=f"stream {arguments.get('stream')}",
                    )
                )  # fmt: skip
        return found
