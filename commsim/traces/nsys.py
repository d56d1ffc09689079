"""SQLite exports of Nsight Systems (`nsys export --type sqlite`): kernels, launches, NCCL's ranges.

Kernels say the operation and the element type. Its bytes are there only where a range around the
launch holds them: a payload exported as text, or the sizes that PyTorch's emit_nvtx(record_shapes)
writes. Other operations are replayed as measured.

Source: Nsight Systems User Guide 2025.1, "SQLite Schema Reference" (tables and columns).
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

from commsim.errors import SpecError
from commsim.traces import call_names as names
from commsim.traces.assembly import Seen, Work, makes_a_stream_wait, numbered, synchronizes
from commsim.traces.host_ops import elements
from commsim.traces.recording import (
    COMMUNICATION,
    COMPUTE,
    COPY,
    Call,
    Recording,
    RecordingReader,
    Watch,
)  # fmt: skip
from commsim.traces.stream_waits import StreamWait

EXPECTED = "an nsys SQLite export with CUPTI_ACTIVITY_KIND_KERNEL (nsys profile --trace=cuda,nvtx)"
KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
COPIES = ("CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET")
BEGINS = b"SQLite format 3\x00"
RANK = re.compile(r"rank[-_.]?(\d{1,7})|(\d{1,7})(?=\.(?:sqlite|db))")
SIZES = re.compile(r"sizes\s*=\s*(\[.*\])")
BYTES = re.compile(r"message size|bytes", re.IGNORECASE)
EVERY = 50_000  # rows between two words about progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Nsys(RecordingReader):
    """One recording per process that ran kernels; the ranks are those of their GPUs' order."""

    title: ClassVar[str] = "Nsight Systems SQLite export"

    def recognises(self, path: Path, head: bytes) -> bool:
        return head.startswith(BEGINS)

    def recordings(
        self, path: str | os.PathLike[str], watch: Watch | None = None
    ) -> tuple[Recording, ...]:
        Path(path).open("rb").close()  # an OSError that names the file
        try:
            address = f"file:{quote(os.path.abspath(path))}?mode=ro&immutable=1"
            with closing(sqlite3.connect(address, uri=True)) as base:
                return _Reading(base, path, watch).recordings()
        except (sqlite3.Error, UnicodeDecodeError, OverflowError) as error:
            raise SpecError([f"{path}: {error}; expected {EXPECTED}"]) from None


@dataclass(slots=True)
class _Process:
    """What is seen of one process."""

    seen: Seen = field(default_factory=Seen)
    devices: dict[int, int] = field(default_factory=lambda: defaultdict(int))


class _Reading:
    def __init__(
        self, base: sqlite3.Connection, path: str | os.PathLike[str], watch: Watch | None
    ) -> None:
        self.base, self.path, self.watch = base, path, watch
        self.tables = {
            str(row[0]) for row in base.execute("SELECT name FROM sqlite_master WHERE type='table'")
        }
        if KERNELS not in self.tables:
            shown = ", ".join(sorted(self.tables)[:5]) or "no tables"
            raise SpecError([f"{path}: {shown}; expected {EXPECTED}"])
        self.names = dict(self._rows("StringIds", "id", "value"))
        self.processes: dict[int, _Process] = defaultdict(_Process)
        self.first: int | None = None

    def recordings(self) -> tuple[Recording, ...]:
        """One per process that ran kernels."""
        launches = self._launches()
        ranges = self._ranges()
        self._kernels(launches, ranges)
        for table in COPIES:
            for row in self._rows(table, "start", "end", "streamId", "correlationId", "globalPid",
                                  "deviceId"):  # fmt: skip
                self._work(table.rsplit("_", 1)[1].lower(), COPY, None, *row)
        order = sorted(
            self.processes, key=lambda pid: (min(self.processes[pid].devices, default=0), pid)
        )
        if not order:
            raise SpecError([f"{self.path}: no kernel in it; expected {EXPECTED}"])
        match = RANK.search(Path(self.path).name)
        named = int(match[1] or match[2]) if match and len(order) == 1 else None
        return tuple(
            self._recording(self.processes[pid], i if named is None else named, len(order))
            for i, pid in enumerate(order)
        )

    def _rows(self, table: str, *columns: str) -> Iterator[tuple[Any, ...]]:
        """The rows of a table, nothing where there is none; a column that is not there is NULL."""
        if table not in self.tables:
            return
        here = {str(row[1]) for row in self.base.execute(f'PRAGMA table_info("{table}")')}
        chosen = ", ".join(f'"{c}"' if c in here else "NULL" for c in columns)
        total = self.base.execute(f'SELECT COUNT(*) FROM "{table}"').fetchone()[0]
        for i, row in enumerate(self.base.execute(f'SELECT {chosen} FROM "{table}"')):
            if self.watch is not None and i % EVERY == 0:
                self.watch(i, total)
            yield row

    def _launches(self) -> dict[tuple[int, int], tuple[int, int]]:
        """By process and correlation, the thread and the time of a launch; waits are noted."""
        found = {}
        for start, end, tid, correlation, name in self._rows(
            RUNTIME, "start", "end", "globalTid", "correlationId", "nameId"
        ):
            if not (_whole(start, end, tid) and end >= start):
                continue
            pid = _process(tid)
            if _whole(correlation):
                found[pid, correlation] = (tid, start)
            called = str(self.names.get(name, ""))
            if makes_a_stream_wait(called):
                self.processes[pid].seen.stream_waits.append(
                    StreamWait(thread=f"thread {tid & 0xFFFFFF}", time=self._seconds(start))
                )
            if synchronizes(called):
                self.processes[pid].seen.waits.append(
                    (f"thread {tid & 0xFFFFFF}", self._seconds(start), self._seconds(end))
                )
        return found

    def _ranges(self) -> dict[int, list[tuple[int, int, str, Any]]]:
        """By thread the ranges around operations: start, end, text, payload; by start."""
        found: dict[int, list[tuple[int, int, str, Any]]] = defaultdict(list)
        for start, end, tid, text, number, payload in self._rows(
            "NVTX_EVENTS", "start", "end", "globalTid", "text", "textId", "jsonText"
        ):
            said = text if isinstance(text, str) else self.names.get(number)
            if isinstance(said, str) and _whole(start, end, tid) and _operation(said):
                found[tid].append((start, end, said, payload))
        for line in found.values():
            line.sort(key=lambda r: (r[0], -r[1]))
        return found

    def _kernels(
        self,
        launches: dict[tuple[int, int], tuple[int, int]],
        ranges: dict[int, list[tuple[int, int, str, Any]]],
    ) -> None:
        columns = ("demangledName", "shortName", "start", "end", "streamId", "correlationId",
                   "globalPid", "deviceId")  # fmt: skip
        for long, short, start, end, stream, correlation, pid, device in self._rows(
            KERNELS, *columns
        ):
            name = str(self.names.get(long) or self.names.get(short) or "kernel")
            if not _whole(start, end, pid):
                continue
            call, kind = None, COMPUTE
            launch = launches.get((pid, correlation)) if _whole(correlation) else None
            if names.is_communication(name):
                kind = COMMUNICATION
                around = [] if launch is None else _around(ranges.get(launch[0], []), launch[1])
                call = _call(name, around)
            if launch is not None:
                at = f"thread {launch[0] & 0xFFFFFF}", self._seconds(launch[1])
                self.processes[pid].seen.launches[correlation] = at
            self._work(name, kind, call, start, end, stream, correlation, pid, device)

    def _work(
        self, name: str, kind: str, call: Call | None, start: Any, end: Any, stream: Any,
        correlation: Any, pid: Any, device: Any,
    ) -> None:  # fmt: skip
        if not (_whole(start, end, pid) and end >= start):
            return
        process = self.processes[pid]
        device = device if _whole(device) else 0
        if kind != COPY:
            process.devices[device] += 1
        process.seen.work.append(
            Work(
                name=name, kind=kind, stream=f"device {device} stream {stream}",
                start=self._seconds(start), end=self._seconds(end), call=call,
                correlation=correlation if _whole(correlation) else None,
            )
        )  # fmt: skip

    def _seconds(self, time: int) -> float:
        if self.first is None:
            self.first = time
        return (time - self.first) * 1e-9

    def _recording(self, process: _Process, rank: int, of: int) -> Recording:
        notes = ["an nsys export does not say which rank a process is: "
                 + ("ranks follow the order of their GPUs" if of > 1 else f"taken for rank {rank}"),
                 "groups of NCCL are not named in it: all operations are put on one"]  # fmt: skip
        events = numbered(process.seen.events())
        if process.seen.by_order:
            notes.append(
                f"{process.seen.by_order} waits of streams are taken for the operations in their"
                " order"
            )
        silent = sum(1 for e in events if e.kind == COMMUNICATION
                     and (e.call is None or e.call.nbytes is None))  # fmt: skip
        if silent:
            notes.append(
                f"{silent} operations do not say how many bytes they carry: they can be replayed"
                " only as measured"
            )
        return Recording(
            rank=rank, world=of, format="nsys", source=str(self.path), events=events,
            backend="nccl", origin_ns=self.first or 0, notes=tuple(notes),
        )  # fmt: skip


def _whole(*values: Any) -> bool:
    return all(isinstance(v, int) and abs(v) < 1 << 63 for v in values)


def _process(thread: int) -> int:
    """The globalPid of a globalTid: its lowest 24 bits are the thread's own."""
    return thread & ~0xFFFFFF


def _operation(text: str) -> str | None:
    """The operation of "ncclAllReduce", "nccl:all_reduce" or "c10d::allreduce_, seq = 3"."""
    said = text.split(",")[0].strip()
    if said.startswith("nccl") and ":" not in said:
        said = said.removeprefix("nccl")
    elif not said.startswith(("nccl:", "c10d::")):
        return None
    return names.operation(said)


def _around(ranges: list[tuple[int, int, str, Any]], time: int) -> list[tuple[int, int, str, Any]]:
    """The ranges that a moment lies in, the innermost first. They nest, as each is a call's."""
    place = bisect_right(ranges, time, key=lambda r: r[0])
    return [r for r in reversed(ranges[max(0, place - 8) : place]) if r[1] >= time]


def _call(kernel: str, around: list[tuple[int, int, str, Any]]) -> Call | None:
    operation, dtype, reduce_op = names.of_kernel(kernel)
    nbytes = None
    for _, _, text, payload in around:
        operation = operation or _operation(text)
        if nbytes is None:
            nbytes = _payload(payload)
        match = SIZES.search(text)
        if nbytes is None and match is not None and dtype is not None and operation is not None:
            nbytes = _of_shapes(match[1], operation, dtype)
    if operation is None:
        return None
    return Call(operation=operation, nbytes=nbytes, dtype=dtype or "uint8", reduce_op=reduce_op)


def _payload(text: Any) -> int | None:
    """The bytes that a payload tells."""
    if not isinstance(text, str):
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    for key, value in found.items() if isinstance(found, dict) else ():
        if BYTES.search(key) and isinstance(value, int) and 0 <= value < 1 << 56:
            return value
    return None


def _of_shapes(text: str, operation: str, dtype: str) -> int | None:
    """The bytes of a c10d op's first tensors; only where in and out are of one size."""
    if operation not in ("all_reduce", "broadcast", "reduce", "send", "recv"):
        return None
    try:
        shapes = json.loads(text)
    except (ValueError, RecursionError):
        return None
    count = elements(shapes[0]) if isinstance(shapes, list) and shapes else 0
    return names.size(operation, count, 0, 1, dtype) if count else None
