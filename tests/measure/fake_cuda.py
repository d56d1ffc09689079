"""torch.cuda and NCCL as a GPU machine has them, played on a CPU: work waits on streams.

What is enqueued runs when the host waits for it, in the order of its simulated time. So a host that
reads too early reads what was there before, and streams that do not wait for one another run side
by side. That real GPUs and NCCL do so is what this takes for granted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

Job = tuple[float, Callable[[], None]]


def nothing() -> None:
    """What work does that only takes time."""


class Stream:
    """A queue of work: where its end is, in s."""

    def __init__(self) -> None:
        self.end = 0.0

    def wait_event(self, event: Event) -> None:
        self.end = max(self.end, event.at)

    def wait_stream(self, other: Stream) -> None:
        self.end = max(self.end, other.end)


class Event:
    machine: FakeCuda

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing
        self.at = -1.0

    def record(self, stream: Stream) -> None:
        assert self.machine.capturing is None, "an event that tells time, recorded in a capture"
        self.at = stream.end

    def synchronize(self) -> None:
        self.machine.play(self.at)

    def elapsed_time(self, later: Event) -> float:
        assert self.at >= 0 <= later.at, "an event that was never recorded"
        assert max(self.at, later.at) <= self.machine.played, "an event not reached yet"
        return 1e3 * (later.at - self.at)  # ms


class FakeCuda:
    """What Cuda asks of torch.cuda."""

    Stream = Stream

    def __init__(self) -> None:
        self.stream_now = self.default = Stream()
        self.streams: list[Stream] = [self.default]
        self.capturing: list[Job] | None = None
        self.waiting: list[tuple[float, int, Callable[[], None]]] = []
        self.played = 0.0
        self.graphs = self.replays = self.enqueued = 0
        self.Event = type("Event", (Event,), {"machine": self})

    def work(
        self, duration: float, does: Callable[[], None] = nothing, on: Stream | None = None
    ) -> None:
        """Puts work onto a stream, the current one where none is named."""
        if self.capturing is not None:
            self.capturing.append((duration, does))
            return
        stream = on or self.stream_now
        if stream not in self.streams:
            self.streams.append(stream)
        stream.end += duration
        self.enqueued += 1
        self.waiting.append((stream.end, self.enqueued, does))

    def play(self, until: float) -> None:
        """All that is done by then, in the order of its end."""
        self.played = max(self.played, until)
        due = sorted(job for job in self.waiting if job[0] <= until)
        self.waiting = [job for job in self.waiting if job[0] > until]
        for _, _, does in due:
            does()

    def synchronize(self) -> None:
        assert self.capturing is None, "the host waits in a capture"
        self.play(max(stream.end for stream in self.streams))

    def current_stream(self) -> Stream:
        return self.stream_now

    @contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        before, self.stream_now = self.stream_now, stream
        if stream not in self.streams:
            self.streams.append(stream)
        yield
        self.stream_now = before

    @contextmanager
    def graph(self, graph: Any, capture_error_mode: str) -> Iterator[None]:
        assert capture_error_mode == "thread_local"
        self.synchronize()
        self.graphs += 1
        self.capturing = graph.work = []
        yield
        self.capturing = None

    def CUDAGraph(self) -> Any:
        graph = SimpleNamespace(work=[])

        def replay() -> None:
            self.replays += 1
            for duration, does in graph.work:
                self.work(duration, does)

        graph.replay = replay
        return graph

    def set_device(self, index: int) -> None:
        assert index == 0

    def get_device_properties(self, index: int) -> Any:
        return SimpleNamespace(L2_cache_size=50 << 20, name="a GPU", total_memory=80 << 30,
                               multi_processor_count=132)  # fmt: skip

    def mem_get_info(self, index: int) -> tuple[int, int]:
        return 10 << 30, 80 << 30

    def memory_reserved(self, index: int) -> int:
        return 3 << 30

    def memory_allocated(self, index: int) -> int:
        return 1 << 30


class Group:
    """A communicator of one rank: its collectives run on a stream of its own."""

    def __init__(self) -> None:
        self.stream = Stream()


class Work:
    """A call that was made: to wait makes the current stream wait, not the host."""

    def __init__(self, cuda: FakeCuda, group: Group) -> None:
        self.cuda, self.group = cuda, group

    def wait(self) -> None:
        self.cuda.current_stream().wait_stream(self.group.stream)


class FakeNccl:
    """What torch.distributed is to one rank of NCCL; `real` does the rest, over Gloo.

    latency: s that each collective takes. calls: what was called, with the buffers' addresses.
    """

    latency = 1e-3

    def __init__(self, cuda: FakeCuda, real: Any) -> None:
        self.cuda, self.real = cuda, real
        self.ReduceOp = real.ReduceOp
        self.calls: list[tuple[str, int]] = []
        self.joined: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def init_process_group(self, backend: str, **more: Any) -> None:
        self.joined = {"backend": backend, **more}
        more.pop("device_id")
        self.real.init_process_group("gloo", **more)

    def new_group(self, ranks: Any = None, timeout: Any = None, backend: str = "nccl") -> Any:
        if backend == "gloo":
            return self.real.new_group(backend="gloo", timeout=timeout)
        return Group()

    def call(self, name: str, group: Group, later: bool, to: Any, source: Any) -> Work | None:
        self.calls.append((name, 0 if to is None else to.data_ptr()))

        def does() -> None:
            if to is not None and to.data_ptr() != source.data_ptr():
                to.copy_(source)

        if self.cuda.capturing is None:
            group.stream.wait_stream(self.cuda.current_stream())
        self.cuda.work(self.latency, does, group.stream)
        work = Work(self.cuda, group)
        if later:
            return work
        work.wait()
        return None

    def all_reduce(self, tensor: Any, op: Any, group: Group, later: bool) -> Work | None:
        return self.call("all_reduce", group, later, tensor, tensor)

    def reduce(self, tensor: Any, root: int, op: Any, group: Group, later: bool) -> Work | None:
        return self.call("reduce", group, later, tensor, tensor)

    def broadcast(self, tensor: Any, root: int, group: Any, later: bool = False) -> Any:
        if not isinstance(group, Group):
            return self.real.broadcast(tensor, root, group=group)
        return self.call("broadcast", group, later, tensor, tensor)

    def all_gather(self, to: Any, source: Any, group: Group, later: bool) -> Work | None:
        return self.call("all_gather", group, later, to, source)

    def reduce_scatter(
        self, to: Any, source: Any, op: Any, group: Group, later: bool
    ) -> Work | None:
        return self.call("reduce_scatter", group, later, to, source)

    def all_to_all_single(self, to: Any, source: Any, group: Group, async_op: bool) -> Work | None:
        return self.call("all_to_all", group, async_op, to, source)

    def gather(self, source: Any, to: Any, root: int, group: Group, later: bool) -> Work | None:
        return self.call("gather", group, later, to[0], source)

    def scatter(self, to: Any, source: Any, root: int, group: Group, later: bool) -> Work | None:
        return self.call("scatter", group, later, to, source[0])

    def barrier(self, group: Group | None = None, later: bool = False) -> None:
        if group is not None:
            self.call("barrier", group, False, None, None)
        self.cuda.synchronize()  # NCCL's barrier keeps the host waiting
