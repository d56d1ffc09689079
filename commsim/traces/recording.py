"""What a recording is: the work that one rank did, read from a profiler's or a recorder's file.

A format that holds recordings is one file in this folder with a `RecordingReader`.
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from commsim.errors import SpecError
from commsim.units import Bytes, Seconds

COMPUTE, COMMUNICATION, COPY = "compute", "communication", "copy"
ISSUE, WAIT = "issue", "wait"  # a moment at which a host thread starts work; one until it waits
SEND, RECEIVE = "send", "recv"
MOST_RANKS = 1 << 20  # of a step: what lies above is taken for damage
HEAD = 4096  # bytes of a file by which its format is recognised

Watch = Callable[[int, int], None]
"""Called with bytes read and bytes in all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A process group. ranks: of the world, in the group's order; empty where the file does not
    say, or says what cannot be. size: ranks in it; 0 where that is not known either."""

    name: str
    ranks: tuple[int, ...] = ()
    size: int = 0
    description: str = ""

    def __post_init__(self) -> None:
        if self.ranks and (len(self.ranks) > MOST_RANKS or max(self.ranks) >= MOST_RANKS):
            object.__setattr__(self, "ranks", ())
        if self.ranks:
            object.__setattr__(self, "size", len(self.ranks))
        elif not 0 <= self.size <= MOST_RANKS:
            object.__setattr__(self, "size", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What an operation was asked to do.

    operation: a Collective's, or "send" or "recv". nbytes: as Collective counts them; None where
    the file does not say. sequence: its number in the group, -1 where it has none. root, peer:
    ranks of the world. blocking: whether its host waited for it; None where the file does not say.
    """

    operation: str
    nbytes: Bytes | None
    dtype: str = "uint8"
    group: str = ""
    sequence: int = -1
    root: int | None = None
    peer: int | None = None
    reduce_op: str = "sum"
    uneven: bool = False
    blocking: bool | None = None

    @property
    def is_message(self) -> bool:
        """Is it one half of a send and its receive?"""
        return self.operation in (SEND, RECEIVE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that took place on a stream from start to end, s from the recording's origin.

    end: nan where it was not recorded. issuer: the place, among the recording's events, of the
    moment or op by which a host thread issued it. after: places of events of other streams that it
    is known to have waited for.
    """

    name: str
    kind: str
    stream: str
    start: Seconds
    end: Seconds
    call: Call | None = None
    issuer: int | None = None
    after: tuple[int, ...] = ()

    @property
    def duration(self) -> Seconds:
        """s; nan where the end was not recorded."""
        return self.end - self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """One rank's work. Events lie in the order in which they were issued; those of one stream do
    not overlap.

    world: ranks in all, 0 where the file does not say. origin_ns: ns of the machine's clock at the
    events' 0 (as float seconds they would lose the microseconds). host: the machine's name, "" if
    not given. steps: (start, end) of each training step that the profiler marked. hints: names that
    tell the framework. timed: whether the events' moments are a clock's; else only durations and
    order count. notes: what was assumed and what the file cannot tell, a sentence each.
    """

    rank: int
    world: int
    format: str
    source: str
    events: tuple[Event, ...]
    groups: Mapping[str, Group] = field(default_factory=dict)
    backend: str = ""
    origin_ns: int = 0
    host: str = ""
    steps: tuple[tuple[Seconds, Seconds], ...] = ()
    hints: frozenset[str] = frozenset()
    timed: bool = True
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not (0 <= self.rank < MOST_RANKS and 0 <= self.world <= MOST_RANKS):
            raise SpecError(
                [f"{self.source}: rank {self.rank} of {self.world}: expected less than"
                 f" {MOST_RANKS:,} ranks"]
            )  # fmt: skip

    @property
    def communication(self) -> tuple[Event, ...]:
        """The events that communicate, in the order of their issue."""
        return tuple(e for e in self.events if e.kind == COMMUNICATION)

    @property
    def duration(self) -> Seconds:
        """s from the first event's start to the last end that is known."""
        starts = [e.start for e in self.events]
        ends = [e.end for e in self.events if not math.isnan(e.end)]
        return max(starts + ends, default=0.0) - min(starts, default=0.0)


class RecordingReader(ABC):
    """A format that holds what one or more ranks did."""

    __slots__ = ()
    title: ClassVar[str]
    """What the format is called, for people."""

    @abstractmethod
    def recognises(self, path: Path, head: bytes) -> bool:
        """Whether a file that begins so (unpacked, `HEAD` bytes) may be of this format."""

    @abstractmethod
    def recordings(
        self, path: str | os.PathLike[str], watch: Watch | None = None
    ) -> tuple[Recording, ...]:
        """What is in a file, a Recording per rank; SpecError says what is wrong with it and where.

        watch: called now and then with how far reading has come.
        """
