"""How fast a large recording is read and replayed: `python benchmarks/traces.py`.

A trace of 200 MB with the events of torch.profiler on a GPU (ops with shapes, launches, arrows,
kernels, NCCL's with their metadata) is made up in a temporary folder, one training step after
another, and read in a process of its own. Limits: 30 s and 2 GB. CPU time and memory are those of
the whole process, with Python's and commsim's start.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from commsim.traces.joining import join
from commsim.traces.reading import read_recordings
from commsim.traces.replay import Where, replay

SIZE, LAYERS, BUCKETS = 200_000_000, 40, 8  # bytes, of a model, of its gradients
TIME_LIMIT, MEMORY_LIMIT = 30.0, 2e9  # s, bytes
RANKS = list(range(8))
HOST, COMPUTE, NCCL = 4242, 7, 20  # process, streams
KERNEL = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
    "std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)"
)
Event = dict[str, Any]


class Step:
    """One training step's events; every step is like the one before, later in us."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.now = 5_109_850_314_234.845 + 40_000.0 * number
        self.busy = self.now + 20.0
        self.id = 20_000 * number
        self.seq = BUCKETS * number

    def events(self) -> Iterator[Event]:
        """All of them, as they are written."""
        began = self.now
        for name in ("aten::linear", "aten::gelu", "aten::native_layer_norm") * LAYERS:
            yield from self.op(name)
        for _ in range(BUCKETS):
            for name in ("AddmmBackward0", "GeluBackward0", "aten::add_") * (2 * LAYERS // BUCKETS):
                yield from self.op(name)
            yield from self.all_reduce(1 << 22)
        yield self.call("cudaStreamSynchronize", 0)
        name = f"ProfilerStep#{self.number}"
        yield self.slice("user_annotation", name, HOST, HOST, began, self.now - began)

    def op(self, name: str) -> Iterator[Event]:
        """An op inside another one, its launch, its kernel."""
        outer, self.now = self.now, self.now + 2.0
        shape = {
            "Input Dims": [[16384, 4096], [4096, 4096], []], "Input type": ["float"] * 3,
            "Input Strides": [[4096, 1], [4096, 1], []], "Concrete Inputs": ["", "", "1"],
        }  # fmt: skip
        self.id += 2
        yield self.slice("cpu_op", name, HOST, HOST, outer, 20.0, **shape)
        yield self.slice("cpu_op", f"{name}_out", HOST, HOST, outer + 1, 18.0, **shape)
        launched = self.now
        yield self.call("cudaLaunchKernel", self.id)
        start = self.busy = max(self.busy, self.now)
        yield self.kernel(KERNEL, COMPUTE, start, 17.5)
        yield self.arrow("s", HOST, HOST, launched)
        yield self.arrow("f", 0, COMPUTE, start)
        self.busy += 17.5
        self.now = outer + 22.0

    def all_reduce(self, elements: int) -> Iterator[Event]:
        """NCCL's kernel, and the op that asked for it."""
        self.seq += 1
        self.id += 2
        said = {
            "Collective name": "allreduce", "dtype": "Float", "In msg nelems": elements,
            "Out msg nelems": elements, "Group size": len(RANKS), "Process Group Name": "0",
            "Process Group Description": "default_pg", "Process Group Ranks": str(RANKS),
            "In split size": "[]", "Out split size": "[]", "Rank": 0, "Seq": self.seq,
        }  # fmt: skip
        yield self.slice("cpu_op", "record_param_comms", HOST, HOST, self.now, 12.0, **said)
        self.now += 2.0
        yield self.call("cudaLaunchKernelExC", self.id)
        name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
        yield self.kernel(name, NCCL, max(self.busy, self.now), 90.0, **said)

    def slice(
        self, category: str, name: str, process: int, thread: int, start: float, duration: float,
        **arguments: Any,
    ) -> Event:  # fmt: skip
        """Something that lasts."""
        return {
            "ph": "X", "cat": category, "name": name, "pid": process, "tid": thread,
            "ts": round(start, 3), "dur": duration,
            "args": {"External id": self.id, "Record function id": self.id, **arguments},
        }  # fmt: skip

    def call(self, name: str, launch: int) -> Event:
        """Of the CUDA runtime."""
        event = self.slice(
            "cuda_runtime", name, HOST, HOST, self.now, 6.0, cbid=211, correlation=launch
        )
        self.now += 6.0
        return event

    def kernel(self, name: str, stream: int, start: float, duration: float, **said: Any) -> Event:
        """Of the GPU, on a stream."""
        return self.slice(
            "kernel", name, 0, stream, start, duration, **said, queued=0, device=0, context=1,
            stream=stream, correlation=self.id, grid=[64, 1, 1], block=[128, 1, 1],
            **{"registers per thread": 32, "shared memory": 0, "blocks per SM": 0.48,
               "warps per SM": 1.94, "est. achieved occupancy %": 3},
        )  # fmt: skip

    def arrow(self, phase: str, process: int, thread: int, at: float) -> Event:
        """From a launch to its kernel."""
        return {
            "ph": phase, "id": self.id, "pid": process, "tid": thread, "ts": round(at, 3),
            "cat": "ac2g", "name": "ac2g", "bp": "e",
        }  # fmt: skip


def write(path: Path) -> int:
    """A trace of SIZE bytes at least; how many events are in it."""
    group = {"pg_name": "0", "pg_desc": "default_pg", "pg_size": len(RANKS), "ranks": RANKS}
    info = {"backend": "nccl", "rank": 0, "world_size": len(RANKS), "pg_config": [group]}
    with path.open("w") as file:
        file.write(
            f'{{"schemaVersion": 1, "distributedInfo": {json.dumps(info)},\n"traceEvents": ['
        )
        count = 0
        for number in itertools.count():
            events = list(Step(number).events())
            file.write("," * bool(number) + json.dumps(events, indent=1)[1:-1])
            count += len(events)
            if file.tell() > SIZE:
                break
        file.write('], "baseTimeNanoseconds": 1790857026000000000}\n')
    return count


def read(path: Path, again: bool) -> tuple[float, float, float, int]:
    """CPU s and bytes at most of this process, s that it took, events that were kept."""
    start = time.perf_counter()
    recordings = read_recordings([path])
    if again:
        replay(join(recordings), Where())
    took = time.perf_counter() - start
    memory = 1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return time.process_time(), memory, took, sum(len(each.events) for each in recordings)


def main() -> None:
    """Prints every figure."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rank0.json"
        count = write(path)
        print(f"{path.stat().st_size / 1e6:.0f} MB, {count:,} trace events")
        with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
            for name, again in (("read", False), ("read and replayed", True)):
                cpu, memory, took, kept = pool.apply(read, (path, again))
                over = cpu > TIME_LIMIT or memory > MEMORY_LIMIT
                print(
                    f"{name:<20}{cpu:>6.1f} CPU s{took:>7.1f} s{memory / 1e6:>7,.0f} MB  "
                    f"{kept:,} events kept  {'above the limit' if over else 'ok'}"
                )


if __name__ == "__main__":
    main()
