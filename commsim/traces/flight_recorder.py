"""Dumps of PyTorch's Flight Recorder, pickled or as JSON: the last operations of each rank.

They hold no computing: the time between two calls of a rank stands for it, with whatever the rank
waited in it. Ends are there where the watchdog saw them; durations only with
TORCH_NCCL_ENABLE_TIMING=1.

Source: PyTorch 2.13, torch/csrc/distributed/c10d/FlightRecorder.hpp (version 2.10).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from commsim.errors import SpecError
from commsim.traces import call_names as names
from commsim.traces import json_stream, plain_pickle
from commsim.traces.assembly import Seen, Work, numbered
from commsim.traces.metadata import number, ranks_of
from commsim.traces.recording import (
    COMMUNICATION,
    RECEIVE,
    SEND,
    Call,
    Event,
    Group,
    Recording,
    RecordingReader,
    Watch,
)  # fmt: skip
from commsim.units import Seconds

EXPECTED = "a Flight Recorder dump (a dict with entries)"
LARGEST = 1 << 30  # bytes of a pickle: dumps of 2000 entries take a few MB
PEERS = re.compile(r"(\d+)\s*(->|<-)\s*(\d+)")
RANK = re.compile(r"(\d+)(?:\.\w+)*$")
MARKS = (b'"pg_status"', b'"profiling_name"', b'"collective_seq_id"', b'"comm_lib_version"')


@dataclass(frozen=True, slots=True, kw_only=True)
class FlightRecorder(RecordingReader):
    """One rank per file; the rank is the number at the end of the file's name."""

    title: ClassVar[str] = "Flight Recorder dump"

    def recognises(self, path: Path, head: bytes) -> bool:
        if head[:1] == plain_pickle.BEGINS:
            return True
        return head.lstrip()[:1] == b"{" and any(mark in head for mark in MARKS)

    def recordings(
        self, path: str | os.PathLike[str], watch: Watch | None = None
    ) -> tuple[Recording, ...]:
        dump, entries = _load(path, watch)
        reading = _Reading(path, dump)
        for place, entry in enumerate(entries):
            reading.take(place, entry)
        return (reading.recording(),)


def _load(path: str | os.PathLike[str], watch: Watch | None) -> tuple[Mapping[Any, Any], list[Any]]:
    """A dump without its entries, and they."""
    with Path(path).open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        data = file.read(min(size, LARGEST) if file.peek(1)[:1] == plain_pickle.BEGINS else 0)
    if not data:
        top: dict[str, Any] = {}
        entries = []
        for key, value in json_stream.values(path, "entries", EXPECTED, watch):
            if key == "[]":
                entries.append(value)
            else:
                top[key] = value
        return top, entries
    try:
        dump = plain_pickle.loads(data)
    except plain_pickle.NotPlainError as error:
        raise SpecError([f"{path}: {error}; expected {EXPECTED}"]) from None
    found = dump.get("entries") if isinstance(dump, dict) else None
    if not isinstance(found, list):
        raise SpecError([f"{path}: a pickled {type(dump).__name__}; expected {EXPECTED}"])
    if watch is not None:
        watch(size, size)
    return dump, found


class _Reading:
    """Entries as they are understood."""

    def __init__(self, path: str | os.PathLike[str], dump: Mapping[Any, Any]) -> None:
        self.path = path
        self.groups = dict(_groups(dump))
        self.seen = Seen()
        self.backend = ""
        self.first: int | None = None
        self.unknown = self.unended = self.queued = 0
        match = RANK.search(Path(path).name)
        self.rank = int(match[1]) if match and int(match[1]) < 1 << 24 else 0
        self.notes = () if match else (
            "the file's name ends with no number: it is taken for rank 0",
        )  # fmt: skip

    def take(self, place: int, entry: Any) -> None:
        """One entry."""
        if not isinstance(entry, dict):
            raise self._error(place, f"expected a dict, found {type(entry).__name__}")
        name, created = entry.get("profiling_name"), number(entry.get("time_created_ns"))
        if not isinstance(name, str) or created is None or not abs(created) < 1 << 63:
            raise self._error(
                place, "expected a profiling_name and time_created_ns, a Flight Recorder's of"
                " version 2.0 or later"
            )  # fmt: skip
        backend, _, called = name.rpartition(":")
        operation = names.operation(called)
        if operation is None:
            self.unknown += 1
            return
        self.backend = self.backend or backend
        if self.first is None:
            self.first = created
        group = self._group(entry.get("process_group"))
        call = self._call(entry, called, operation, group)
        issued = (created - self.first) * 1e-9
        start, end = self._times(entry, issued)
        self.seen.launches[place] = ("thread", issued)
        self.seen.work.append(
            Work(
                name=called, kind=COMMUNICATION, stream=f"group {group.name}", start=start, end=end,
                correlation=place, call=call,
            )
        )  # fmt: skip

    def _times(self, entry: Mapping[Any, Any], issued: Seconds) -> tuple[Seconds, Seconds]:
        assert self.first is not None
        started = number(entry.get("time_discovered_started_ns"))
        completed = number(entry.get("time_discovered_completed_ns"))
        duration = entry.get("duration_ms")
        start = issued if started is None else max(issued, (started - self.first) * 1e-9)
        if completed is None:
            self.unended += 1
            return start, float("nan")
        end = max(start, (completed - self.first) * 1e-9)
        if isinstance(duration, (int, float)) and 0 <= duration < 1e12:
            start = max(start, end - duration * 1e-3)
        elif started is None:
            self.queued += 1
        return start, end

    def _call(self, entry: Mapping[Any, Any], called: str, operation: str, group: Group) -> Call:
        sent, first = _tensors(entry.get("input_sizes"), entry.get("input_dtypes"))
        received, second = _tensors(entry.get("output_sizes"), entry.get("output_dtypes"))
        dtype = first or second or "uint8"
        peer = None
        match = PEERS.search(called)
        if match and operation in (SEND, RECEIVE):
            place = int(match[3])
            peer = group.ranks[place] if place < len(group.ranks) else place
        sequence = number(entry.get("collective_seq_id"))
        nbytes = None
        if sent or received or operation == "barrier":
            nbytes = names.size(operation, sent, received, group.size, dtype)
        return Call(
            operation=operation, nbytes=nbytes, dtype=dtype, group=group.name, peer=peer,
            sequence=-1 if sequence is None or entry.get("is_p2p") else sequence,
        )  # fmt: skip

    def _group(self, named: Any) -> Group:
        """The group of an entry: (name, description). Gloo's dumps leave its name out of the list
        of groups."""
        pair = named if isinstance(named, (list, tuple)) else (named,)
        name = str(pair[0]) if pair and isinstance(pair[0], (str, int)) else ""
        found = self.groups.get(name)
        if found is None:
            alone = next(iter(self.groups.values())) if len(self.groups) == 1 else None
            description = pair[1] if len(pair) > 1 and isinstance(pair[1], str) else ""
            ranks = alone.ranks if alone is not None and alone.name == "" else ()
            self.groups.pop("", None)
            found = self.groups[name] = Group(name=name, ranks=ranks, description=description)
        return found

    def recording(self) -> Recording:
        """What the entries add up to."""
        notes = list(self.notes)
        if not self.seen.work:
            raise SpecError(
                [f"{self.path}: no entry is an operation that is known; expected {EXPECTED} with"
                 " includeCollectives"]
            )  # fmt: skip
        of = len(self.seen.work)
        if self.unknown:
            notes.append(f"{self.unknown} entries of coalesced or unknown operations are left out")
        if self.unended:
            notes.append(
                f"{self.unended} of {of} operations have no end in the dump (they hang, or the"
                " backend does not note it): their duration is not known"
            )
        if self.queued:
            notes.append(
                f"{self.queued} of {of} operations have no start in the dump: they are taken to"
                " begin when they were called (TORCH_NCCL_ENABLE_TIMING=1 notes it)"
            )
        notes.append(
            "a Flight Recorder holds no computing: the time between a rank's calls stands for it"
        )
        world = max((max(g.ranks, default=-1) + 1 for g in self.groups.values()), default=0)
        return Recording(
            rank=self.rank, world=world, format="flight_recorder", source=str(self.path),
            events=_numbered(self.seen), groups=self.groups, backend=self.backend,
            origin_ns=self.first or 0, notes=tuple(notes),
        )  # fmt: skip

    def _error(self, place: int, what: str) -> SpecError:
        return SpecError([f"{self.path}: entries[{place}]: {what}"])


def _numbered(seen: Seen) -> tuple[Event, ...]:
    return numbered(seen.events())


def _groups(dump: Mapping[Any, Any]) -> Iterator[tuple[str, Group]]:
    found = dump.get("pg_config")
    for key, value in found.items() if isinstance(found, dict) else ():
        if isinstance(value, dict) and isinstance(key, (str, int)):
            described = value.get("desc")
            yield str(key), Group(
                name=str(key), ranks=ranks_of(value.get("ranks")),
                description=described if isinstance(described, str) else "",
            )  # fmt: skip


def _tensors(sizes: Any, dtypes: Any) -> tuple[int, str | None]:
    """Elements of all tensors, and their type."""
    total = 0
    for shape in sizes if isinstance(sizes, (list, tuple)) else ():
        if isinstance(shape, (list, tuple)) and len(shape) < 64:
            count = 1
            for length in shape:
                count *= length if isinstance(length, int) and 0 <= length < 1 << 48 else 0
            total += count
    named = dtypes[0] if isinstance(dtypes, (list, tuple)) and dtypes else dtypes
    dtype = names.dtype(named) if isinstance(named, str) and named else None
    return min(total, 1 << 56), dtype
