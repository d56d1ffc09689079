"""A played step as events of a Chrome trace: a process per rank, a row per stream, and counters.

Operations carry the names of arguments that PyTorch gives NCCL's kernels, so that tools for such
traces, commsim's own reader too, understand them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from commsim.collectives.collective import DTYPES, Collective, bus_factor
from commsim.engine.timeline import Timeline
from commsim.simulation import simulate
from commsim.traces.recording import COMMUNICATION, COMPUTE, COPY, RECEIVE, SEND, WAIT
from commsim.traces.replay import Priced, Replay
from commsim.units import Seconds

MOST_OPERATIONS, MOST_RANKS = 64, 64  # of a step whose links are simulated: a few seconds
CATEGORIES = {COMPUTE: "kernel", COPY: "gpu_memcpy", COMMUNICATION: "kernel"}
KINETO = {
    "float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16",
    "int8": "Char", "uint8": "Byte", "int16": "Short", "int32": "Int", "int64": "Long",
    "uint32": "UInt32", "uint64": "UInt64", "bool": "Bool", "complex64": "ComplexFloat",
    "float8_e4m3fn": "Float8_e4m3fn", "float8_e5m2": "Float8_e5m2",
}  # fmt: skip
Event = dict[str, Any]


def events(replay: Replay) -> Iterator[Event]:
    """The events, times in us."""
    for note in replay.notes:
        yield {"ph": "i", "s": "g", "pid": 0, "tid": 0, "ts": 0, "name": note}
    for rank in replay.parts:
        yield _named(rank, 0, "process_name", f"rank {rank}")
        yield {"ph": "M", "pid": rank, "tid": 0, "name": "process_sort_index",
               "args": {"sort_index": rank}}  # fmt: skip
    rows: dict[tuple[int, str], int] = {}
    load: dict[int, list[tuple[Seconds, float]]] = defaultdict(list)
    starts, ends = replay.spans.starts.tolist(), replay.spans.ends.tolist()
    sequences: dict[Priced, int] = {p: i for i, p in enumerate(replay.operations)}
    for i, place in enumerate(replay.places):
        part = replay.part(i)
        if part is None or part.kind not in (*CATEGORIES, WAIT):
            continue
        rank = place[0]
        row = rows.setdefault((rank, part.stream), 1 + sum(1 for r, _ in rows if r == rank))
        event = {
            "ph": "X", "pid": rank, "tid": row, "ts": _us(starts[i]),
            "dur": _us(ends[i] - starts[i]), "name": part.name,
            "cat": CATEGORIES.get(part.kind, "user_annotation"),
        }  # fmt: skip
        priced = replay.priced.get(place)
        if priced is not None:
            event["args"] = _arguments(priced, rank, sequences[priced])
            rate = _rate(priced, ends[i] - starts[i])
            load[rank] += [(starts[i], rate), (ends[i], -rate)]
        yield event
    for (rank, stream), row in rows.items():
        yield _named(rank, row, "thread_name", stream)
    for rank, changes in load.items():
        yield from _counter(rank, changes)


def _arguments(priced: Priced, rank: int, sequence: int) -> Event:
    """What Kineto writes for an NCCL kernel, and what was predicted."""
    call, n = priced.call, len(priced.ranks)
    elements = (call.nbytes or 0) // DTYPES[call.dtype]
    sent = received = elements
    if call.operation in ("all_gather", "gather"):
        sent = elements // max(n, 1)
    elif call.operation in ("reduce_scatter", "scatter"):
        received = elements // max(n, 1)
    found: Event = {
        "Collective name": call.operation, "dtype": KINETO[call.dtype], "In msg nelems": sent,
        "Out msg nelems": received, "Group size": n, "Process Group Name": call.group,
        "Process Group Ranks": str(list(priced.ranks)), "Rank": rank, "Seq": sequence,
    }  # fmt: skip
    if call.operation in (SEND, RECEIVE) and n == 2:
        found |= {"Src Rank": priced.ranks[0], "Dst Rank": priced.ranks[1]}
    if priced.prediction is not None:
        found |= {
            "algorithm": priced.prediction.algorithm, "protocol": priced.prediction.protocol,
            "bottleneck": priced.prediction.bottleneck,
        }  # fmt: skip
    return found


def _rate(priced: Priced, duration: Seconds) -> float:
    """Bus bandwidth while an operation runs, bytes/s."""
    n, nbytes = len(priced.ranks), priced.call.nbytes or 0
    if n < 2 or not duration > 0:
        return 0.0
    operation = "send_recv" if priced.call.is_message else priced.call.operation
    return nbytes * bus_factor(operation, n) / duration


def _counter(rank: int, changes: list[tuple[Seconds, float]]) -> Iterator[Event]:
    """A rank's bus bandwidth at each change."""
    rate = 0.0
    for time, change in sorted(changes):
        rate = max(0.0, rate + change)
        yield {
            "ph": "C", "pid": rank, "ts": _us(time), "name": "bus bandwidth (GB/s)",
            "args": {"GB/s": round(rate / 1e9, 3)},
        }  # fmt: skip


def simulated(replay: Replay) -> Timeline | None:
    """The step's operations on the cluster's links, each from its moment in the step; None without
    a cluster, or where it would take long."""
    cluster = replay.where.cluster
    if cluster is None or replay.world > MOST_RANKS:
        return None
    starts: dict[Priced, Seconds] = {}
    for i, place in enumerate(replay.places):
        priced = replay.priced.get(place)
        if priced is not None and priced.prediction is not None:
            begun = float(replay.spans.starts[i])
            starts[priced] = max(starts.get(priced, begun), begun)
    asked: list[tuple[Collective, Seconds]] = [
        (p.prediction.collective, start) for p, start in starts.items() if p.prediction is not None
    ]
    if not 0 < len(asked) <= MOST_OPERATIONS:
        return None
    return simulate(asked, cluster, replay.where.library, replay.where.profile)


def _named(pid: int, tid: int, what: str, name: str) -> Event:
    return {"ph": "M", "pid": pid, "tid": tid, "name": what, "args": {"name": name}}


def _us(time: Seconds) -> float:
    return 0.0 if math.isnan(time) else round(time * 1e6, 3)
