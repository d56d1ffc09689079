"""PyTorch profiler (Kineto) traces: Chrome trace JSON, as it is or packed with gzip.

What a GPU did comes from its kernels, with NCCL's metadata where PyTorch wrote them; where a trace
has no GPU (Gloo), from the ops of the threads. Nothing of torch is needed to read one.

Sources: PyTorch 2.13 (torch/csrc/profiler/util.h: metadata; torch/profiler: top level); Kineto's
output_json.cpp (categories of events).
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from commsim.errors import SpecError
from commsim.traces import json_stream, metadata
from commsim.traces.assembly import numbered
from commsim.traces.host_ops import HostOps
from commsim.traces.kineto_gpu import DEVICE, RUNTIME, SYNC, Gpus
from commsim.traces.recording import (
    COMMUNICATION,
    Event,
    Group,
    Recording,
    RecordingReader,
    Watch,
)
from commsim.units import Seconds

EXPECTED = "a PyTorch profiler trace (a JSON object with traceEvents)"
HOST = frozenset({"cpu_op", "user_annotation", "Operator"})
KNOWN = RUNTIME | HOST | DEVICE.keys() | {SYNC}
HINTS = re.compile(r"DistributedDataParallel|FSDP|FullyShardedDataParallel|DeepSpeed|Pipeline")
STEP = "ProfilerStep#"
RANK = re.compile(r"^rank (\d+)")
RANK_IN_NAME = re.compile(r"rank[-_.]?(\d+)|[-_.](\d+)(?=\.(?:pt\.trace|json|gz))")
MOST_PROBLEMS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Kineto(RecordingReader):
    """One rank per file, or several processes named "rank N" in one file."""

    title: ClassVar[str] = "PyTorch profiler (Kineto)"

    def recognises(self, path: Path, head: bytes) -> bool:
        start = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
        marks = (b'"traceEvents"', b'"schemaVersion"', b'"deviceProperties"', b'"ph"')
        return start in (b"{", b"[") and any(mark in head for mark in marks)

    def recordings(
        self, path: str | os.PathLike[str], watch: Watch | None = None
    ) -> tuple[Recording, ...]:
        reading = _Reading(path=path)
        for key, value in json_stream.values(path, "traceEvents", EXPECTED, watch):
            if key == "[]":
                reading.take(value)
            else:
                reading.top[key] = value
        return reading.recordings()


@dataclass(slots=True, kw_only=True)
class _Reading:
    """What was met so far, and what it adds up to."""

    path: str | os.PathLike[str]
    top: dict[str, Any] = field(default_factory=dict)
    count: int = 0
    first: float | None = None
    gpus: Gpus = field(default_factory=Gpus)
    host: dict[object, HostOps] = field(default_factory=dict)
    processes: dict[object, str] = field(default_factory=dict)
    steps: list[tuple[Seconds, Seconds]] = field(default_factory=list)
    hints: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)

    def take(self, event: Any) -> None:
        """One element of traceEvents."""
        self.count += 1
        if not isinstance(event, dict):
            self._problem(f"expected an object, found {str(event)[:40]!r}")
            return
        phase, category = event.get("ph"), event.get("cat")
        if phase == "M":
            self._name(event)
        elif phase == "X" and isinstance(category, str) and category in KNOWN:
            self._slice(event, category)

    def _slice(self, event: dict[str, Any], category: str) -> None:
        try:
            start, duration = float(event["ts"]), float(event.get("dur", 0))
            name, arguments = str(event["name"]), event.get("args") or {}
            process, thread = event.get("pid"), event.get("tid")
            hash((process, thread))
            if not (duration >= 0 and abs(start) < 1e18 and duration < 1e18):
                raise ValueError
            if not isinstance(arguments, dict):
                raise TypeError
        except (KeyError, TypeError, ValueError):
            self._problem(
                f"expected a name, ts and dur in us, args; found {str(event)[:60]!r}"
            )  # fmt: skip
            return
        if self.first is None:
            self.first = start
        begin, end = (_seconds(time, self.first) for time in (start, start + duration))
        if category in DEVICE:
            self.gpus.ran(category, name, (process, thread), begin, end, arguments)
        elif category in RUNTIME:
            self.gpus.called(name, f"thread {thread}", begin, end, arguments)
        elif category == SYNC:
            self.gpus.synchronized(name, arguments)
        else:
            self._host(name, category, process, thread, begin, end, arguments)

    def _host(
        self, name: str, category: str, process: object, thread: object, begin: Seconds,
        end: Seconds, arguments: dict[str, Any],
    ) -> None:  # fmt: skip
        if name == "record_param_comms" and metadata.NAME in arguments:
            self.gpus.calls.ask(f"thread {thread}", begin, arguments)
        elif name.startswith(STEP):
            self.steps.append((begin, end))
        elif (hint := HINTS.search(name)) is not None:
            self.hints.add(hint[0])
        self.host.setdefault(process, HostOps()).add(
            sys.intern(name),
            category == "user_annotation",
            f"thread {thread}",
            begin,
            end,
            arguments,
        )

    def _name(self, event: dict[str, Any]) -> None:
        arguments = event.get("args")
        said = str(arguments.get("name", "")) if isinstance(arguments, dict) else ""
        try:
            if event.get("name") == "process_name":
                self.processes[event.get("pid")] = said
        except TypeError:
            self._problem(f"expected numbers or names as pid and tid; found {str(event)[:60]!r}")

    def _problem(self, what: str) -> None:
        self.problems.append(f"{self.path}: traceEvents[{self.count - 1}]: {what}")
        if len(self.problems) >= MOST_PROBLEMS:
            raise SpecError(self.problems)

    # ---- at the end ----

    def recordings(self) -> tuple[Recording, ...]:
        """One per rank."""
        if self.problems:
            raise SpecError(self.problems)
        if not self.gpus.work and not self.host:
            raise SpecError(
                [f"{self.path}: {self.count} trace events, none of them a kernel or an op; expected"
                 f" {EXPECTED}, recorded with activities CPU or CUDA"]
            )  # fmt: skip
        known = self._distributed()
        self.gpus.name_calls()
        device = self.gpus.work
        ranks = {
            process: int(match[1])
            for process, said in self.processes.items()
            if process in device and (match := RANK.match(said))
        }
        if ranks and (len(ranks) > 1 or "rank" not in known):
            return tuple(
                self._recording(self.gpus.events([process]), rank, known)
                for process, rank in sorted(ranks.items(), key=lambda item: item[1])
            )
        notes: tuple[str, ...] = ()
        if device:
            events = self.gpus.events(list(device))
        else:
            events, notes = self._host_events(known)
        rank, said = self._rank(known)
        return (self._recording(events, rank, known, (*notes, *said)),)

    def _host_events(self, known: dict[str, Any]) -> tuple[tuple[Event, ...], tuple[str, ...]]:
        ops = max(self.host.values(), key=lambda ops: len(ops.ops))
        groups = list(self.gpus.calls.groups.values())
        group = groups[0] if groups else Group(name="0", size=known.get("world_size", 0))
        events = ops.events(group, known.get("backend") or "gloo")
        notes = []
        if len(groups) > 1:
            notes.append(
                f"a trace without a GPU does not say on which of its {len(groups)} groups an"
                f" operation is: all are put on the first, {group.name!r}"
            )
        return numbered(events), (*notes, *ops.notes)

    def _distributed(self) -> dict[str, Any]:
        """distributedInfo, what is missing left out; its groups are kept."""
        info = self.top.get("distributedInfo")
        if not isinstance(info, dict):
            return {}
        found: dict[str, Any] = {"backend": str(info.get("backend", ""))}
        for name in ("rank", "world_size"):
            value = metadata.number(info.get(name))
            if value is not None and 0 <= value < 1 << 24:
                found[name] = value
        configuration = info.get("pg_config")
        for each in configuration if isinstance(configuration, list) else []:
            if isinstance(each, dict) and "pg_name" in each:
                ranks = metadata.ranks_of(each.get("ranks"))
                group = Group(
                    name=str(each["pg_name"]), ranks=ranks,
                    size=max(0, metadata.number(each.get("pg_size")) or 0),
                    description=str(each.get("pg_desc", "")),
                )  # fmt: skip
                old = self.gpus.calls.groups.get(group.name)
                if old is None or not old.ranks:
                    self.gpus.calls.groups[group.name] = group
        return found

    def _rank(self, known: dict[str, Any]) -> tuple[int, tuple[str, ...]]:
        if "rank" in known:
            return known["rank"], ()
        match = RANK_IN_NAME.search(Path(self.path).name)
        rank = int(match[1] or match[2]) if match else 0
        where = "its name says" if match else "it is taken for"
        return rank, (f"the file does not say which rank it is of; {where} rank {rank}",)

    def _recording(
        self, events: tuple[Event, ...], rank: int, known: dict[str, Any],
        notes: tuple[str, ...] = (),
    ) -> Recording:  # fmt: skip
        base = metadata.number(self.top.get("baseTimeNanoseconds")) or 0
        origin_ns = base + round((self.first or 0.0) * 1e3)
        silent = sum(
            1 for e in events
            if e.kind == COMMUNICATION and (e.call is None or e.call.nbytes is None)
        )  # fmt: skip
        if silent:
            notes = (
                *notes,
                f"{silent} communication kernels do not say what they carry (batched messages, or a"
                " PyTorch before 2.1): they can be replayed only as measured",
            )
        if self.gpus.by_order:
            notes = (
                *notes,
                f"{self.gpus.by_order} waits of streams are taken for the operations in their"
                " order; _ExperimentalConfig(enable_cuda_sync_events=True) records which they are",
            )
        return Recording(
            rank=rank, world=known.get("world_size", 0), format="kineto", source=str(self.path),
            events=events, groups=dict(self.gpus.calls.groups), backend=known.get("backend", ""),
            origin_ns=origin_ns, host=str(self.top.get("host_name", "")),
            steps=tuple(sorted(self.steps)), hints=frozenset(self.hints), notes=notes,
        )  # fmt: skip


def _seconds(time: float, first: float) -> Seconds:
    """s since the first event, of times in us that may be large numbers."""
    return round((time - first) * 1e3) * 1e-9
