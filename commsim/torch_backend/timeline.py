"""A run as a Chrome trace: a process per rank, a row per stream, and the network's operations.

Operations carry the names and arguments that torch.profiler gives NCCL's kernels (Kineto, torch
2.13), so that tools for such traces read them. Times are virtual.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from commsim.torch_backend.records import Operation, Post
from commsim.torch_backend.run import Run
from commsim.units import Seconds

Event = dict[str, Any]
KINETO_DTYPES = {
    "float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16",
    "int8": "Char", "uint8": "Byte", "int16": "Short", "int32": "Int", "int64": "Long",
    "bool": "Bool",
}  # fmt: skip
KERNELS = {
    "all_reduce": "AllReduce", "all_gather": "AllGather", "reduce_scatter": "ReduceScatter",
    "broadcast": "Broadcast", "reduce": "Reduce",
}  # fmt: skip


def write_timeline(run: Run, path: str | os.PathLike[str]) -> None:
    """Write the trace, an event a line; open it at https://ui.perfetto.dev."""
    world = run.world
    distributed = {
        "backend": "nccl", "rank": 0, "world_size": world.size, "pg_count": 1, "pg_config": [],
    }  # fmt: skip
    with Path(path).open("w", encoding="utf-8") as file:
        head = {"schemaVersion": 1, "distributedInfo": distributed, "displayTimeUnit": "ns"}
        file.write(json.dumps(head)[:-1] + ', "traceEvents": [\n')
        for i, event in enumerate(events(run)):
            file.write((",\n" if i else "") + json.dumps(event))
        file.write("\n]}\n")


def events(run: Run) -> Iterator[Event]:
    """The events, times in us."""
    rows: dict[tuple[int, str], int] = {}
    for rank in run.world.ranks.values():
        yield _named(rank.number, 0, "process_name", f"rank {rank.number} (node {rank.node})")
        for span in rank.clock.spans:
            row = _row(rows, rank.number, span.lane)
            yield _slice(rank.number, row, span.name, span.start, span.end, "kernel", {})
        for start, end in zip([0.0, *rank.steps], rank.steps, strict=False):
            row = _row(rows, rank.number, "steps")
            yield _slice(rank.number, row, "step", start, end, "user_annotation", {})
    for operation in run.operations:
        for post in operation.posts:
            rank_number = post.call.rank
            lane = _lane(operation, post)
            row = _row(rows, rank_number, lane)
            yield _slice(
                rank_number, row, _kernel(post), operation.start, operation.end, "kernel",
                _arguments(operation, post),
            )  # fmt: skip
    for (rank_number, lane), row in rows.items():
        yield _named(rank_number, row, "thread_name", lane)


def _row(rows: dict[tuple[int, str], int], rank: int, lane: str) -> int:
    return rows.setdefault((rank, lane), 1 + sum(1 for other, _ in rows if other == rank))


def _lane(operation: Operation, post: Post) -> str:
    if operation.is_message:
        return "network: sends" if post.call.is_send else "network: receives"
    return f"network: group {operation.group}"


def _kernel(post: Post) -> str:
    call = post.call
    name = KERNELS.get(call.operation, "SendRecv")
    return f"ncclDevKernel_{name}({call.function})"


def _arguments(operation: Operation, post: Post) -> Event:
    """What Kineto writes for an NCCL kernel, and the line of the script."""
    call = post.call
    elements = sum(call.counts) or call.nbytes
    n = len(operation.group.ranks)
    before, after = elements, elements
    if call.operation in ("all_gather", "gather"):
        after = elements * n
    elif call.operation in ("reduce_scatter", "scatter"):
        before = elements * n
    found: Event = {
        "Collective name": call.function,
        "dtype": KINETO_DTYPES.get(call.dtype, "Byte"),
        "In msg nelems": before,
        "Out msg nelems": after,
        "Group size": n,
        "Process Group Name": operation.group.name,
        "Process Group Description": operation.group.description,
        "Process Group Ranks": str(list(operation.group.ranks)),
        "Rank": call.rank,
        "Seq": operation.sequence if operation.sequence >= 0 else operation.number,
        "bytes": call.nbytes,
        "script": str(call.where),
        "exposed (us)": _micro(post.exposed),
    }
    if call.peer is not None:
        found |= {"Src Rank": call.rank, "Dst Rank": call.peer}
        if not call.is_send:
            found |= {"Src Rank": call.peer, "Dst Rank": call.rank}
    return found


def _slice(
    pid: int, tid: int, name: str, start: Seconds, end: Seconds, category: str, args: Event
) -> Event:
    return {
        "ph": "X", "pid": pid, "tid": tid, "ts": _micro(start), "dur": _micro(end - start),
        "name": name, "cat": category, "args": args,
    }  # fmt: skip


def _named(pid: int, tid: int, what: str, name: str) -> Event:
    return {"ph": "M", "pid": pid, "tid": tid, "name": what, "args": {"name": name}}


def _micro(time: Seconds) -> float:
    return round(time * 1e6, 3)
