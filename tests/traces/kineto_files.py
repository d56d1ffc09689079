"""PyTorch profiler traces written by hand, as a GPU with NCCL leaves them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Event = dict[str, Any]
COMPUTE, NCCL = 7, 20  # streams


def kernel(
    name: str, start: float, duration: float, stream: int = COMPUTE, launch: int = 0, **args: Any
) -> Event:
    """A kernel on a stream; times in us."""
    return {
        "ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": start,
        "dur": duration, "args": {"stream": stream, "correlation": launch, **args},
    }  # fmt: skip


def runtime(name: str, start: float, duration: float, launch: int = 0) -> Event:
    """A call of the CUDA runtime."""
    return {
        "ph": "X", "cat": "cuda_runtime", "name": name, "pid": 100, "tid": 1, "ts": start,
        "dur": duration, "args": {"correlation": launch},
    }  # fmt: skip


def metadata(
    collective: str, nelems: int, seq: int, ranks: tuple[int, ...] = (0, 1), group: str = "0",
    dtype: str = "Float", **more: Any,
) -> Event:  # fmt: skip
    """What PyTorch notes about an operation of NCCL."""
    return {
        "Collective name": collective, "dtype": dtype, "In msg nelems": nelems,
        "Out msg nelems": nelems, "Group size": len(ranks), "Process Group Name": group,
        "Process Group Ranks": str(list(ranks)), "Seq": seq, **more,
    }  # fmt: skip


def trace(
    events: list[Event], rank: int = 0, world: int = 2, base: int = 0, host: str = "a"
) -> dict[str, Any]:
    """A whole trace."""
    return {
        "schemaVersion": 1,
        "distributedInfo": {
            "backend": "nccl", "rank": rank, "world_size": world,
            "pg_config": [{"pg_name": "0", "pg_desc": "default_pg", "pg_size": world,
                           "ranks": list(range(world))}],
        },
        "host_name": host, "baseTimeNanoseconds": base, "traceEvents": events,
    }  # fmt: skip


def step(late: float = 0.0, elements: int = 1 << 20, transfer: float = 100.0) -> list[Event]:
    """Backward, an all_reduce beside more backward, an optimizer that waits for it; `late`: us by
    which the rank comes late to the all_reduce. The all_reduce ends at 300 on all ranks."""
    arrival = 300.0 - transfer - 50.0 + late
    return [
        runtime("cudaLaunchKernel", 10, 5, 1), runtime("cudaLaunchKernel", 20, 5, 2),
        runtime("cudaLaunchKernel", 30, 5, 3), runtime("cudaLaunchKernel", 40, 5, 4),
        kernel("backward_1", 20, arrival - 20, launch=1),
        kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(args)", arrival, 300 - arrival, NCCL, 2,
               **metadata("allreduce", elements, 1)),
        kernel("backward_2", arrival, 60, launch=3),
        kernel("optimizer", 303, 20, launch=4),
    ]  # fmt: skip


def write(path: Path, events: list[Event], **more: Any) -> Path:
    """A trace as a file."""
    path.write_text(json.dumps(trace(events, **more)))
    return path
