"""Recordings of several ranks as one step: which of their operations are the same.

Operations of one group with the same number are one; messages are matched in order of their pair of
ranks. What a rank spends in an operation is waiting for the last one to come, then transfer:

    waiting = last start - own start,  transfer = first end - last start
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median

from commsim.errors import SpecError
from commsim.traces.line import Line, line
from commsim.traces.recording import SEND, Call, Event, Group, Recording
from commsim.units import Bytes, Seconds

Key = tuple[object, ...]
BEST = ("kineto", "nsys", "flight_recorder", "execution_trace", "chakra")  # by their times
FAR = 1e-3  # s between clocks from which they are set by the operations' ends


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One operation as its ranks recorded it.

    starts, ends: s of the joined clock, by rank; nan where not recorded. events: by rank, its place
    in the rank's recording. asked: by rank, its call. timed: whether all ranks' moments are of a
    clock.
    """

    key: Key
    asked: dict[int, Call]
    events: dict[int, int]
    starts: dict[int, Seconds]
    ends: dict[int, Seconds]
    timed: bool = True

    @property
    def call(self) -> Call:
        """What was asked; of a message what the sender asked."""
        return next((c for c in self.asked.values() if c.operation == SEND),
                    next(iter(self.asked.values())))  # fmt: skip

    @cached_property
    def last_start(self) -> Seconds:
        """s at which the last recorded rank came."""
        return max(self.starts.values())

    def waits(self, rank: int) -> bool:
        """Whether the rank was still there when the last one came: a send that is buffered, or the
        root of a broadcast, may be done before."""
        return not (self.timed and self.ends[rank] < self.last_start)

    def waiting(self, rank: int) -> Seconds:
        """s that the rank waited for others."""
        last = self.last_start if self.waits(rank) else self.starts[rank]
        return last - self.starts[rank]

    @property
    def transfer(self) -> Seconds | None:
        """s from the last start to the first end; None where one rank's recording, or the clock,
        does not tell them apart."""
        if len(self.starts) < 2 or not self.timed:
            return None
        first = min(self.ends.values(), key=lambda end: (math.isnan(end), end))
        return first - self.last_start if first > self.last_start else None

    @property
    def measured(self) -> Seconds:
        """s from start to end, the median of the ranks; nan where not recorded."""
        found = [self.ends[r] - self.starts[r] for r in self.starts]
        return median([d for d in found if not math.isnan(d)] or [math.nan])

    @property
    def mismatch(self) -> str | None:
        """In which way the ranks' calls differ, if they do."""
        if self.call.is_message or len(self.asked) < 2:
            return None
        by_call: dict[tuple[object, ...], list[int]] = defaultdict(list)
        for rank, call in self.asked.items():
            nbytes = call.nbytes if not call.uneven else None
            by_call[call.operation, nbytes, call.dtype].append(rank)
        if len(by_call) == 1:
            return None
        said = "; ".join(
            f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, sorted(ranks)))} called"
            f" {operation} ({'?' if nbytes is None else nbytes} bytes of {dtype})"
            for (operation, nbytes, dtype), ranks in by_call.items()
        )
        return f"operation {self.call.sequence} of group {self.call.group or '?'}: {said}"


@dataclass(frozen=True, kw_only=True)
class Step:
    """What the recorded ranks did together. offsets: by rank, s to add to its times."""

    lines: dict[int, Line]
    operations: tuple[Operation, ...]
    offsets: dict[int, Seconds]
    world: int
    groups: dict[str, Group]
    notes: tuple[str, ...]

    @property
    def recordings(self) -> tuple[Recording, ...]:
        """By rank."""
        return tuple(line.recording for line in self.lines.values())

    @cached_property
    def begin(self) -> Seconds:
        """s of the joined clock at which the first task starts."""
        return min(line.begin + self.offsets[rank] for rank, line in self.lines.items())

    def lead(self, rank: int) -> Seconds:
        """s by which a rank's recording begins after the first one's."""
        return self.lines[rank].begin + self.offsets[rank] - self.begin

    @property
    def duration(self) -> Seconds:
        """s from the first start to the last end, as recorded."""
        ends = [
            (e.start if math.isnan(e.end) else e.end) + self.offsets[rank]
            for rank, line in self.lines.items() for e in line.recording.events
        ]  # fmt: skip
        return max(ends, default=self.begin) - self.begin

    @cached_property
    def mismatches(self) -> tuple[str, ...]:
        """Where the ranks asked for different things, in the order in which they came to it; and
        which never came, as far as a recorder of all calls tells."""
        return (*(m for op in self.operations if (m := op.mismatch) is not None), *self._absent())

    def _absent(self) -> Iterator[str]:
        """Ranks that had not called what the others of their group had, once per rank and group."""
        last: dict[tuple[int, str], int] = {}
        for op in self.operations:
            for rank, call in op.asked.items():
                if not call.is_message:
                    key = rank, call.group
                    last[key] = max(last.get(key, -1), call.sequence)
        told = set()
        members = {name: set(self.group(name).ranks) for name in {k[1] for k in last}}
        for op in self.operations:
            name = op.call.group
            ranks = members.get(name, set())
            for recording in self.recordings:
                rank = recording.rank
                if op.call.is_message or recording.format != "flight_recorder":
                    continue
                called = last.get((rank, name), -1)
                if rank in ranks and called < op.call.sequence and (rank, name) not in told:
                    told.add((rank, name))
                    others = ", ".join(map(str, sorted(op.asked)))
                    yield (
                        f"operation {op.call.sequence} of group {name}: rank {rank} never called"
                        f" it (its last was {called}); ranks {others} called {op.call.operation}"
                    )

    def group(self, name: str) -> Group:
        """The group of that name; where no file tells its ranks, all ranks."""
        found = self.groups.get(name) or Group(name=name)
        if found.ranks:
            return found
        size = found.size or self.world
        return replace(found, ranks=tuple(range(size)))


def join(recordings: Iterable[Recording]) -> Step:
    """The step that these recordings are of; SpecError where two are of one rank."""
    found, notes = _one_per_rank(sorted(recordings, key=lambda r: r.rank))
    if not found or not any(r.events for r in found):
        raise SpecError(["no recording holds an event; expected at least one"])
    notes += [note for r in found for note in r.notes]
    world = max([*(r.world for r in found), found[-1].rank + 1])
    groups = _groups(found)
    calls = {r.rank: _keys(r, groups) for r in found}
    offsets, said = _offsets(found, calls)
    operations = _operations(found, calls, offsets)
    if len(found) < world:
        notes.append(
            f"{len(found)} of {world} ranks are recorded: the time that these wait for the others"
            " is counted as transfer"
        )
    return Step(
        lines={r.rank: line(r) for r in found}, operations=operations, offsets=offsets, world=world,
        groups=groups, notes=tuple(dict.fromkeys([*notes, *said])),
    )  # fmt: skip


def _one_per_rank(recordings: Sequence[Recording]) -> tuple[list[Recording], list[str]]:
    """Of several formats of one rank the one with the best times, with the groups of all."""
    found: dict[int, Recording] = {}
    notes = []
    for recording in recordings:
        other = found.get(recording.rank)
        if other is None:
            found[recording.rank] = recording
            continue
        if other.format == recording.format:
            raise SpecError(
                [f"{other.source}, {recording.source}: both of rank {recording.rank}; expected one"
                 " file per rank"]
            )  # fmt: skip
        best, less = sorted((other, recording), key=lambda r: BEST.index(r.format))
        found[recording.rank] = replace(best, groups={**less.groups, **best.groups})
        notes.append(f"rank {best.rank}: {best.source} is used, and the groups of {less.source}")
    return list(found.values()), notes


def _groups(recordings: Sequence[Recording]) -> dict[str, Group]:
    """Every group by name, from the file that tells most of it."""
    found: dict[str, Group] = {}
    for recording in recordings:
        for name, group in recording.groups.items():
            if name not in found or (group.ranks and not found[name].ranks):
                found[name] = group
    return found


def _keys(recording: Recording, groups: dict[str, Group]) -> dict[Key, int]:
    """By key the places of a recording's operations."""
    found: dict[Key, int] = {}
    times: Counter[Key] = Counter()
    for place, event in enumerate(recording.events):
        call = event.call
        if call is None:
            continue
        own = recording.groups.get(call.group)
        ranks = (own.ranks if own else ()) or (
            groups[call.group].ranks if call.group in groups else ()
        )
        key: Key
        if not call.is_message:
            key = call.group, ranks, call.sequence
        elif call.peer is None:
            key = call.group, "alone", recording.rank, call.operation, call.sequence
        else:
            ends = (recording.rank, call.peer)
            key = call.group, "message", ends if call.operation == SEND else ends[::-1]
        times[key] += 1  # several operations in one number, and messages of one pair
        found[*key, times[key]] = place
    return found


def _offsets(
    recordings: Sequence[Recording], calls: dict[int, dict[Key, int]]
) -> tuple[dict[int, Seconds], tuple[str, ...]]:
    """s to add to each rank's times: machines' clocks differ, so those of other machines are set
    such that the ends of the operations they share agree."""
    first = recordings[0]
    found = {r.rank: (r.origin_ns - first.origin_ns) * 1e-9 for r in recordings}
    notes = []
    for r in recordings[1:]:
        shared = [
            first.events[calls[first.rank][key]].end
            - (r.events[place].end + found[r.rank])
            for key, place in calls[r.rank].items()
            if key in calls[first.rank] and not _message(r.events[place])
        ]  # fmt: skip
        gaps = [gap for gap in shared if not math.isnan(gap)]
        if r.host != first.host and gaps and abs(median(gaps)) > FAR:
            found[r.rank] += median(gaps)
            notes.append(
                f"the clock of rank {r.rank} ({r.host}) is set by {median(gaps):+.6f} s, so that"
                f" shared operations end when they do on rank {first.rank}"
            )
    return found, tuple(notes)


def _message(event: Event) -> bool:
    return event.call is not None and event.call.is_message


def _operations(
    recordings: Sequence[Recording], calls: dict[int, dict[Key, int]], offsets: dict[int, Seconds]
) -> tuple[Operation, ...]:
    found: dict[Key, Operation] = {}
    for r in recordings:
        for key, place in calls[r.rank].items():
            event = r.events[place]
            assert event.call is not None
            one = found.setdefault(key, Operation(key=key, asked={}, events={}, starts={}, ends={}))
            if not r.timed and one.timed:
                one = found[key] = replace(one, timed=False)
            one.asked[r.rank], one.events[r.rank] = event.call, place
            one.starts[r.rank] = event.start + offsets[r.rank]
            one.ends[r.rank] = event.end + offsets[r.rank]
    return tuple(sorted(found.values(), key=lambda op: min(op.starts.values())))


def size_of(operation: Operation) -> Bytes | None:
    """Bytes of it; of an uneven one the most that a rank has; None where no file says."""
    sizes = [c.nbytes for c in operation.asked.values() if c.nbytes is not None]
    return max(sizes, default=None)
