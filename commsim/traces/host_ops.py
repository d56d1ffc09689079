"""A trace without a GPU: ops on threads, and Gloo's work on threads of its own.

PyTorch gives Gloo no metadata. What is asked stands in the op of the main thread (such as
c10d::allreduce_ with its shapes); when it took place, in the annotation that a Gloo thread leaves
("gloo:all_reduce", also for a reduce_scatter, which Gloo does as one). Each op is matched with the
next annotation that begins after it. The main thread waits where the op says so (async_op false),
in a wait_tensor, and where it goes on, after doing nothing, just as an operation ends.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from commsim.traces import call_names as names
from commsim.traces import metadata
from commsim.traces.assembly import without_overlaps
from commsim.traces.recording import (
    COMMUNICATION,
    COMPUTE,
    RECEIVE,
    SEND,
    WAIT,
    Call,
    Event,
    Group,
)  # fmt: skip
from commsim.units import Seconds

C10D = "c10d::"
LATE = 5e-4
"""s by which a worker's annotation may end after the thread that waited went on, or before: 0.03
to 0.2 ms in Gloo traces of a busy machine with two cores."""
WAITS = ("_c10d_functional::wait_tensor", "c10d_functional::wait_tensor")
WORKER = ("gloo:", "mpi:", "ucc:", "nccl:")
# Where the tensors lie among the inputs: (what goes in, what comes out), of PyTorch's c10d ops
# (torch/csrc/distributed/c10d/Ops.cpp, 2.13).
PLACES = {
    "_allgather_base_": (1, 0), "allgather_": (1, 0), "allgather_into_tensor_coalesced_": (1, 0),
    "allgather_coalesced_": (1, 0), "_reduce_scatter_base_": (1, 0), "reduce_scatter_": (1, 0),
    "reduce_scatter_tensor_coalesced_": (1, 0), "alltoall_base_": (1, 0), "alltoall_": (1, 0),
    "gather_": (1, 0), "scatter_": (1, 0),
}  # fmt: skip
PEER = {"send": 2, "recv_": 2}
ROOT = {"broadcast_": 2, "reduce_": 3, "gather_": 3, "scatter_": 3}
ASYNCHRONOUS = {
    "allreduce_": 4, "_allgather_base_": 3, "allgather_": 3, "_reduce_scatter_base_": 4,
    "reduce_scatter_": 4, "broadcast_": 4, "alltoall_base_": 5, "alltoall_": 3, "reduce_": 5,
    "gather_": 4, "scatter_": 4, "barrier": 3, "allreduce_coalesced_": 3,
}  # fmt: skip


@dataclass(slots=True)
class Op:
    """An op or an annotation of a thread."""

    name: str
    thread: str
    start: Seconds
    end: Seconds
    arguments: dict[str, Any] | None = None


@dataclass(slots=True)
class HostOps:
    """Everything that the threads of a process did."""

    ops: list[Op] = field(default_factory=list)
    workers: list[Op] = field(default_factory=list)
    notes: tuple[str, ...] = ()

    def add(
        self, name: str, annotation: bool, thread: str, start: Seconds, end: Seconds,
        arguments: dict[str, Any],
    ) -> None:  # fmt: skip
        """An event of a thread, with its arguments where it communicates."""
        if annotation:
            if name.startswith(WORKER) and names.operation(name):
                self.workers.append(Op(name, thread, start, end, arguments))
            return
        self.ops.append(Op(name, thread, start, end, arguments if C10D in name else None))

    def events(self, group: Group, backend: str) -> tuple[Event, ...]:
        """The thread that asks for communication (else the busiest): its outermost ops, its waits,
        and what it asked for."""
        asked = [op for op in self.ops if op.name.startswith(C10D) and names.operation(op.name)]
        main = _busiest(asked or self.ops)
        top = _outermost([op for op in self.ops if op.thread == main])
        asked = sorted((op for op in asked if op.thread == main), key=lambda op: op.start)
        carried = _matched(asked, sorted(self.workers, key=lambda op: op.start))
        missing = sum(1 for op in carried if op is None)
        if missing:
            self.notes = (
                f"of {missing} of {len(asked)} operations the trace does not say when they took"
                f" place ({backend} left no mark): their duration is not known",
            )
        return _events(top, asked, carried, group)


def _busiest(ops: Sequence[Op]) -> str:
    counts: dict[str, int] = {}
    for op in ops:
        counts[op.thread] = counts.get(op.thread, 0) + 1
    return max(counts, key=lambda thread: counts[thread], default="")


def _outermost(ops: Sequence[Op]) -> list[Op]:
    """The ops that lie in no other."""
    found: list[Op] = []
    for op in sorted(ops, key=lambda op: (op.start, -op.end)):
        if not found or op.start >= found[-1].end:
            found.append(op)
    return found


def _matched(asked: Sequence[Op], workers: Sequence[Op]) -> list[Op | None]:
    """For each op the annotation of what it asked for."""
    free: dict[str, list[Op]] = {}
    for op in workers:
        free.setdefault(_kind(op.name), []).append(op)
    found: list[Op | None] = []
    for op in asked:
        line = free.get(_kind(op.name), [])
        while line and line[0].start < op.start:
            line.pop(0)  # asked for before the recording began
        found.append(line.pop(0) if line else None)
    return found


def _kind(name: str) -> str:
    operation = names.operation(name)
    return operation if operation in (SEND, RECEIVE) else "collective"


def _events(
    top: Sequence[Op], asked: Sequence[Op], carried: Sequence[Op | None], group: Group
) -> tuple[Event, ...]:
    starts = [op.start for op in top]
    issued: dict[int, list[tuple[Op, Op | None]]] = {}
    for op, worker in zip(asked, carried, strict=True):
        issued.setdefault(bisect_right(starts, op.start) - 1, []).append((op, worker))
    events: list[Event] = []
    pending: list[tuple[int, Seconds, bool]] = []  # place of an event, its end, blocking
    lanes: dict[str, Seconds] = {}
    for i, op in enumerate(top):
        pending = _wait(events, pending, op, top[i - 1].end if i else op.start)
        waiting = op.name in WAITS and any(op.start < end <= op.end for _, end, _ in pending)
        issuer = len(events)
        if waiting:
            done = tuple(p for p, end, _ in pending if end <= op.end)
            pending = [p for p in pending if p[0] not in done]
            events.append(_event(op, WAIT, op.thread, after=done))
        else:
            events.append(_event(op, COMPUTE, op.thread))
        for asking, worker in issued.get(i, ()):
            call = call_of(asking, worker, group)
            start, end = (asking.start, math.nan) if worker is None else (worker.start, worker.end)
            stream = _lane(lanes, call, worker, start, end)
            event = Event(
                name=asking.name, kind=COMMUNICATION, stream=stream, start=start, end=end,
                call=call, issuer=issuer,
            )  # fmt: skip
            if not math.isnan(end):
                pending.append((len(events), end, call.blocking is True))
            events.append(event)
    if pending and top:  # what the thread waits for before it ends
        events.append(_waiting(pending, top[-1].thread, top[-1].end))
    return without_overlaps(events)


def _wait(
    events: list[Event], pending: list[tuple[int, Seconds, bool]], op: Op, free: Seconds
) -> list[tuple[int, Seconds, bool]]:
    """Adds the wait between the op before and this one; what is still pending.

    The thread has waited for what blocks, and for what ended just as it went on after it had done
    nothing for longer than that; and then for all that it had asked for before, as DDP does. A
    worker's annotation ends a little after the operation: no later than the thread went on.
    """
    near = min(LATE, (op.start - free) / 2)
    begun = [p for p in pending if events[p[0]].start <= op.start]
    ended = [p for p in begun if p[2] or abs(p[1] - op.start) <= near]
    if not ended:
        return pending
    last = max(place for place, _, _ in ended)
    done = [p for p in begun if p in ended or (p[0] <= last and p[1] <= op.start + near)]
    for place, end, _ in done:
        if end > op.start:
            events[place] = replace(events[place], end=op.start)
    events.append(_waiting([(p, min(e, op.start), b) for p, e, b in done], op.thread, free))
    return [p for p in pending if p not in done]


def _waiting(done: Sequence[tuple[int, Seconds, bool]], thread: str, free: Seconds) -> Event:
    end = max(free, *(end for _, end, _ in done))
    return Event(
        name="wait", kind=WAIT, stream=thread, start=free, end=end,
        after=tuple(place for place, _, _ in done),
    )  # fmt: skip


def _event(op: Op, kind: str, stream: str, after: tuple[int, ...] = ()) -> Event:
    return Event(name=op.name, kind=kind, stream=stream, start=op.start, end=op.end, after=after)


def _lane(
    lanes: dict[str, Seconds], call: Call, worker: Op | None, start: Seconds, end: Seconds
) -> str:
    """The stream of an operation; messages that are under way at once lie on several."""
    base = (
        call.operation
        if call.is_message or worker is None
        else f"{worker.name.split(':')[0]} {worker.thread}"
    )
    number, name = 1, base
    while lanes.get(name, -math.inf) > start:
        number += 1
        name = f"{base} ({number})"
    lanes[name] = start if math.isnan(end) else end
    return name


# ---- what an op asks for ----


def call_of(op: Op, worker: Op | None, group: Group) -> Call:
    """What a c10d op asks for, from the shapes and the arguments that the profiler noted. Of a list
    of tensors it does not note the type: that stands in the worker's annotation."""
    name = op.name.removeprefix(C10D)
    operation = names.operation(name)
    assert operation is not None
    arguments = op.arguments or {}
    shapes, inputs = _list(arguments.get("Input Dims")), _list(arguments.get("Concrete Inputs"))
    put, got = PLACES.get(name, (0, 0))
    dtype = _dtype(_at(arguments.get("Input type"), put))
    if dtype is None and worker is not None:
        dtype = _dtype(_at((worker.arguments or {}).get("Input type"), 0))
    sent, received = elements(_at(shapes, put)), elements(_at(shapes, got))
    nbytes = 0 if operation == "barrier" else None
    if dtype is not None and (sent or received):
        n = group.size or 2
        nbytes = names.size(operation, sent, received if put != got else 0, n, dtype)
    splits = metadata.ranks_like(_at(inputs, 4)) if name == "alltoall_base_" else ()
    blocking = str(_at(inputs, ASYNCHRONOUS.get(name, -1)))
    rank = metadata.number(_at(inputs, {**PEER, **ROOT}.get(name, -1)))
    if rank is not None and group.ranks:
        rank = group.ranks[rank] if 0 <= rank < len(group.ranks) else None
    return Call(
        operation=operation, nbytes=nbytes, dtype=dtype or "uint8", group=group.name,
        root=rank if name in ROOT else None, peer=rank if name in PEER else None,
        uneven=len(set(splits)) > 1, blocking={"True": False, "False": True}.get(blocking),
    )  # fmt: skip


def elements(shape: Any) -> int:
    """Elements of a tensor's shape, or of a list of tensors; 0 where it is no shape."""
    if not isinstance(shape, list) or not shape:
        return 0
    if all(isinstance(v, list) for v in shape):
        return sum(elements(each) if each else 1 for each in shape)
    if not all(isinstance(v, int) and v >= 0 for v in shape):
        return 0
    return math.prod(shape)


def _dtype(text: Any) -> str | None:
    """torch's name of the type that the profiler noted; None of a list, or of nothing."""
    if not isinstance(text, str) or text in ("", "TensorList", "Scalar", "ScalarList"):
        return None
    return names.dtype(text)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _at(values: Any, place: int) -> Any:
    found = _list(values)
    return found[place] if 0 <= place < len(found) else None
