"""Who sends what after what: a collective as operations in arrays. No time, links or streams.

An op moves chunks from places of one vertex to places of another (or of the same: a local copy or
sum) and waits for earlier ops. Ranks are positions in their group, 0 to n - 1; switches that reduce
or multicast follow as vertices n, n + 1, ... Ops are numbered so that each waits only for lower
numbers. A million ops take about 70 MB.

Of rounds that are all alike only some may be built: a `Window` asks for them, `Repeat` says how
many are missing. Such a schedule can be played (engine/recurrence.py), not proved.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from math import lcm

import numpy as np
from numpy.typing import NDArray

from commsim.collectives.chunks import Chunks, Ints
from commsim.units import Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Consecutive chunks that an op moves: from which places, to which, how many."""

    source_place: int
    destination_place: int
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """How many rounds to build where many are alike: at least `rounds`, 0: all; so that what is
    missing is a multiple of `multiple`. All are built if they are fewer than `least` ops together,
    or less than half of them would be missing.
    """

    rounds: int = 0
    multiple: int = 1
    least: int = 0

    def built(self, rounds: int, ops: int = 1) -> int:
        """Of so many rounds, of so many ops each, how many are built."""
        built = self.rounds + (rounds - self.rounds) % self.multiple
        few = rounds * ops < self.least or 2 * built > rounds
        return rounds if few or not self.rounds else built

    def over(self, other: Window) -> Window:
        """As wide as both."""
        if not self.rounds or not other.rounds:
            return WHOLE
        return Window(
            rounds=max(self.rounds, other.rounds),
            multiple=lcm(self.multiple, other.multiple),
            least=min(self.least, other.least),
        )


WHOLE = Window()


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat:
    """Ops from `first` on are `rounds` rounds of `ops` ops each: the same transfers, that wait for
    those of the rounds before in the same way, but for the first rounds, which have fewer to wait
    for. `missing` more rounds of that kind belong behind them.
    """

    first: int
    ops: int
    rounds: int
    missing: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One op of a schedule, made readable. It copies, or (`reduces`) adds to what is there."""

    index: int
    reduces: bool
    streams: bool
    source: int
    destination: int
    nbytes: Bytes
    channel: int
    round: int
    pieces: tuple[Piece, ...]
    waits: tuple[int, ...]

    def __str__(self) -> str:
        verb = "reduce" if self.reduces else "copy"
        return (
            f"op {self.index} ({verb} {self.nbytes} B from {self.source} to {self.destination}, "
            f"channel {self.channel}, round {self.round})"
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Schedule:
    """Ops in columns. Op i moves the pieces `piece_start[i]` to `piece_start[i + 1]` and waits for
    `waits[wait_start[i] : wait_start[i + 1]]`; `schedule[i]` is the readable view.

    An op that `streams` passes on what arrives as it arrives: it begins with the first bytes of the
    ops into its source that it waits for, and ends no earlier than they have arrived.
    """

    chunks: Chunks
    scratch: int = 0  # places of each vertex beyond the data
    switches: int = 0  # vertices beyond the ranks
    reduces: NDArray[np.bool_]
    streams: NDArray[np.bool_]
    source: NDArray[np.int32]
    destination: NDArray[np.int32]
    nbytes: Ints
    channel: NDArray[np.int16]
    round: NDArray[np.int32]
    piece_start: Ints
    source_place: NDArray[np.int32]
    destination_place: NDArray[np.int32]
    length: NDArray[np.int32]
    wait_start: Ints
    waits: NDArray[np.int32]
    repeats: tuple[Repeat, ...] = ()

    def __post_init__(self) -> None:
        for field in fields(self):
            column = getattr(self, field.name)
            if isinstance(column, np.ndarray):
                column.flags.writeable = False

    def __len__(self) -> int:
        return len(self.source)

    def __iter__(self) -> Iterator[Op]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index: int) -> Op:
        if not 0 <= index < len(self):
            raise IndexError(f"op {index} of a schedule of {len(self)}")
        pieces = range(self.piece_start[index], self.piece_start[index + 1])
        waits = self.waits[self.wait_start[index] : self.wait_start[index + 1]]
        return Op(
            index=index,
            reduces=bool(self.reduces[index]),
            streams=bool(self.streams[index]),
            source=int(self.source[index]),
            destination=int(self.destination[index]),
            nbytes=int(self.nbytes[index]),
            channel=int(self.channel[index]),
            round=int(self.round[index]),
            pieces=tuple(
                Piece(
                    source_place=int(self.source_place[p]),
                    destination_place=int(self.destination_place[p]),
                    length=int(self.length[p]),
                )
                for p in pieces
            ),
            waits=tuple(int(w) for w in waits),
        )

    @property
    def vertices(self) -> int:
        """Ranks and switches."""
        return self.chunks.n + self.switches

    @property
    def places(self) -> int:
        """Places of each vertex: data, then scratch."""
        return self.chunks.places + self.scratch

    @property
    def streamed(self) -> Schedule:
        """The same ops, each of which streams."""
        return replace(self, streams=np.ones(len(self), dtype=np.bool_))

    def sent(self) -> Ints:
        """Bytes that each vertex sends to others."""
        return self._carried(self.source)

    def received(self) -> Ints:
        """Bytes that each vertex receives from others."""
        return self._carried(self.destination)

    def _carried(self, end: NDArray[np.int32]) -> Ints:
        total = np.zeros(self.vertices, dtype=np.int64)
        away = self.source != self.destination
        np.add.at(total, end[away], self.nbytes[away])
        return total
