"""One GPU, through torch.cuda: work goes onto streams, and events tell when it is done there.

`cuda` is the module torch.cuda; the tests give one of their own, which runs on a CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from commsim.measure import tensors
from commsim.measure.device import Device, Spans, Stopwatch, spans
from commsim.units import Bytes, Seconds

AHEAD = 4  # runs of the other work that are queued before the first work is
WARM_UP = 3  # runs before a capture, as torch's documentation of CUDA graphs asks for


class EventStopwatch(Stopwatch):
    """Events on the current stream; s since the first of them, or since `origin`."""

    def __init__(self, cuda: Any, origin: Any = None) -> None:
        self.cuda = cuda
        self.origin = origin
        self.events: list[Any] = []

    def mark(self) -> None:
        event = self.cuda.Event(enable_timing=True)
        event.record(self.cuda.current_stream())
        self.events.append(event)

    def read(self) -> list[Seconds]:
        events, self.events = self.events, []
        if not events:
            return []
        events[-1].synchronize()
        before = events[0] if self.origin is None else self.origin
        # From one to the next: CUDA tells ms as a float32, which of 10 s keeps no microsecond.
        steps = [a.elapsed_time(b) * 1e-3 for a, b in pairwise((before, *events))]
        return list(accumulate(steps))


class Cuda(Device):
    """The GPU that this process works on: number `index`."""

    kind = "cuda"
    clocked = False

    def __init__(self, index: int = 0, cuda: Any = torch.cuda, place: str | None = None) -> None:
        self.index = index
        self.cuda = cuda
        self.place = place or f"cuda:{index}"
        cuda.set_device(index)

    def raw(self, nbytes: Bytes) -> Any:
        return torch.zeros(nbytes, dtype=torch.uint8, device=self.place)

    def typed(self, raw: Any, dtype: str) -> Any:
        return raw.view(getattr(torch, dtype))

    def words(self, buffer: Any) -> Any:
        return tensors.words(buffer)

    def encode(self, values: npt.NDArray[Any], dtype: str) -> Any:
        return tensors.encode(values, dtype).to(self.place)

    def values(self, buffer: Any) -> npt.NDArray[np.float64]:
        return tensors.values(buffer)

    def stopwatch(self) -> Stopwatch:
        return EventStopwatch(self.cuda)

    def finish(self) -> None:
        self.cuda.synchronize()

    def graph(self, work: Callable[[], None]) -> Callable[[], None]:
        side = self.cuda.Stream()
        side.wait_stream(self.cuda.current_stream())
        with self.cuda.stream(side):
            for _ in range(WARM_UP):
                work()
        self.cuda.current_stream().wait_stream(side)
        self.cuda.synchronize()
        graph = self.cuda.CUDAGraph()
        # other threads (NCCL's watchdog) may query events meanwhile
        with self.cuda.graph(graph, capture_error_mode="thread_local"):
            work()

        def replay() -> None:
            graph.replay()

        return replay

    def matmul(self, m: int, n: int, k: int, dtype: str) -> Callable[[], None]:
        return tensors.matmul(m, n, k, dtype, self.place)

    def beside(
        self, work: Callable[[int], None], times: int, other: Callable[[], None], ratio: float
    ) -> tuple[Spans, Spans]:
        origin = self.cuda.Event(enable_timing=True)
        origin.record(self.cuda.current_stream())
        one, two = self.cuda.Stream(), self.cuda.Stream()
        for stream in (one, two):
            stream.wait_event(origin)
        mine, others = EventStopwatch(self.cuda, origin), EventStopwatch(self.cuda, origin)

        def beside() -> None:
            with self.cuda.stream(two):
                others.mark()
                other()
                others.mark()

        for _ in range(AHEAD):
            beside()
        owed = 0.0
        for i in range(times):
            with self.cuda.stream(one):
                mine.mark()
                work(i)
                mine.mark()
            owed += ratio
            while owed >= 1:
                beside()
                owed -= 1
        self.cuda.synchronize()
        return spans(mine.read()), spans(others.read())

    @property
    def cache(self) -> Bytes:
        return int(self.cuda.get_device_properties(self.index).L2_cache_size)

    @property
    def free(self) -> Bytes:
        kept = self.cuda.memory_reserved(self.index) - self.cuda.memory_allocated(self.index)
        return int(self.cuda.mem_get_info(self.index)[0] + kept)

    def facts(self) -> dict[str, object]:
        about = self.cuda.get_device_properties(self.index)
        return {
            "device": str(about.name),
            "memory_bytes": int(about.total_memory),
            "multiprocessors": int(about.multi_processor_count),
            "cache_bytes": self.cache,
        }
