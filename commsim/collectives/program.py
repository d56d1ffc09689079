"""A user's own algorithm, written as a Python function that says in order what is copied where.

The function runs once and each call in it becomes an op. What an op waits for is not written: it
follows from the places that the ops touch, as in MSCCLang (Cowan, Maleki, Musuvathi, Saarikivi and
Xiong, "MSCCLang: Microsoft collective communication language", ASPLOS 2023,
doi:10.1145/3575693.3575724). Whether the ops compute the collective is for `verify` to say.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from commsim.collectives.chunks import Chunks, cut
from commsim.collectives.collective import Collective
from commsim.collectives.schedule import Schedule
from commsim.errors import ScheduleError

READ, WRITE, SUM = "read", "write", "sum"


@dataclass(slots=True)
class _Uses:
    """Who uses a place: ops that may do so in any order (reads; sums; one write), and those that
    all of them wait for.
    """

    kind: str = WRITE
    now: set[int] = field(default_factory=set)
    before: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    reduces: bool
    source: int
    source_place: int
    destination: int
    destination_place: int
    length: int
    nbytes: int
    channel: int
    round: int
    waits: tuple[int, ...]


class Program:
    """What a user's function writes its ops into.

    Ranks are 0 to `n - 1`, switches follow. The places of a rank's data are numbered as `chunks`
    says, `chunks.output` is the first of the output, `scratch` the first of the scratch. With
    `automatic=False` ops wait for nothing but what their `after` names.
    """

    def __init__(
        self,
        chunks: Chunks,
        *,
        channels: int = 1,
        scratch: int = 0,
        switches: int = 0,
        automatic: bool = True,
    ) -> None:
        for name, value, least in (
            ("channels", channels, 1),
            ("scratch", scratch, 0),
            ("switches", switches, 0),
        ):
            if value < least:
                raise ScheduleError(f"{name}: expected at least {least}, got {value}")
        self.chunks = chunks
        self.n = chunks.n
        self.channels = channels
        self.scratch = chunks.places
        self._extra = (scratch, switches)
        self._automatic = automatic
        self._rows: list[_Row] = []
        self._uses: dict[tuple[int, int], _Uses] = {}
        self._told: dict[int, int] = {}  # an op, and that which says that it has arrived
        position, place = np.nonzero(chunks.before())
        nbytes = chunks.nbytes[chunks.at(position, place)].tolist()
        cells = zip(position.tolist(), place.tolist(), strict=True)
        self._nbytes = dict(zip(cells, nbytes, strict=True))  # of what a place holds

    def copy(
        self,
        source: int,
        source_place: int,
        destination: int,
        destination_place: int | None = None,
        *,
        length: int = 1,
        channel: int = 0,
        after: Iterable[int] = (),
    ) -> int:
        """The number of a new op: what a place (or `length` places from there on) of one rank holds
        goes to another place, the same unless given, of another rank or of its own.

        It waits for whatever it must by the places it touches, and for the ops of `after`. Where a
        rank writes again, on another channel, what it has written before, the other rank first says
        that the first has come: an op more, of no bytes.
        Raises ScheduleError for a rank, place, channel or op that is not there.
        """
        ends = (source, source_place, destination, destination_place)
        return self._append("copy", ends, length, channel, after)

    def reduce(
        self,
        source: int,
        source_place: int,
        destination: int,
        destination_place: int | None = None,
        *,
        length: int = 1,
        channel: int = 0,
        after: Iterable[int] = (),
    ) -> int:
        """As `copy`, but adds to what is there. Sums into one place may come in any order."""
        ends = (source, source_place, destination, destination_place)
        return self._append("reduce", ends, length, channel, after)

    def _append(
        self,
        verb: str,
        ends: tuple[int, int, int, int | None],
        length: int,
        channel: int,
        after: Iterable[int],
    ) -> int:
        scratch, switches = self._extra
        op = len(self._rows)
        name = f"op {op}: {verb}{ends}"
        span = _whole(name, "length", length, 1, self.scratch + scratch)
        last = self.scratch + scratch - span
        source = _whole(name, "source", ends[0], 0, self.n + switches - 1)
        start = _whole(name, "source place", ends[1], 0, last)
        destination = _whole(name, "destination", ends[2], 0, self.n + switches - 1)
        end = start if ends[3] is None else _whole(name, "destination place", ends[3], 0, last)
        if source == destination and abs(start - end) < span:
            raise ScheduleError(
                f"{name}: its source and destination overlap; expected places of their own"
            )
        waits = {_whole(name, "after", a, 0, op - 1) for a in after}
        channel = _whole(name, "channel", channel, 0, self.channels - 1)
        givers = [(source, start + k) for k in range(span)]
        takers = [(destination, end + k) for k in range(span)]
        if self._automatic:
            kind = SUM if verb == "reduce" else WRITE
            uses = [*((cell, READ) for cell in givers), *((cell, kind) for cell in takers)]
            for used in uses:
                waits |= self._before(*used)
            waits = {self._known(w, source, destination, channel) for w in waits}
            op = len(self._rows)
            for used in uses:
                self._use(op, *used)
        for giver, taker in zip(givers, takers, strict=True):
            self._nbytes[taker] = self._nbytes.get(giver, 0)
        self._rows.append(
            _Row(
                reduces=verb == "reduce",
                source=source,
                source_place=start,
                destination=destination,
                destination_place=end,
                length=span,
                nbytes=sum(self._nbytes[taker] for taker in takers),
                channel=channel,
                round=1 + max((self._rows[w].round for w in waits), default=-1),
                waits=tuple(sorted(waits)),
            )
        )
        return op

    def _before(self, cell: tuple[int, int], kind: str) -> set[int]:
        """The ops that another use of a place must wait for."""
        uses = self._uses.get(cell, _Uses())
        return uses.now if kind == WRITE or kind != uses.kind else uses.before

    def _use(self, op: int, cell: tuple[int, int], kind: str) -> None:
        """The op uses a place."""
        uses = self._uses.setdefault(cell, _Uses())
        if kind == WRITE or kind != uses.kind:
            uses.kind, uses.before, uses.now = kind, uses.now, set()
        uses.now.add(op)

    def _known(self, op: int, source: int, destination: int, channel: int) -> int:
        """What to wait for where an op must have arrived: the op itself, or that its destination
        says so. Who has sent it knows only that it has left, and ops on another channel overtake.
        """
        row = self._rows[op]
        ends = (row.source, row.destination)
        if ends != (source, destination) or source == destination or row.channel == channel:
            return op
        if op not in self._told:
            self._told[op] = len(self._rows)
            self._rows.append(
                replace(
                    row, reduces=False, source=destination, destination=source, length=0,
                    nbytes=0, round=row.round + 1, waits=(op,),
                )
            )  # fmt: skip
        return self._told[op]

    def build(self) -> Schedule:
        """The schedule of all ops so far."""
        rows = self._rows
        moving = [r for r in rows if r.length]
        scratch, switches = self._extra

        def column(name: str, of: list[_Row], kind: type) -> NDArray[Any]:
            return np.array([getattr(r, name) for r in of], dtype=kind)

        return Schedule(
            chunks=self.chunks,
            scratch=scratch,
            switches=switches,
            reduces=column("reduces", rows, np.bool_),
            streams=np.zeros(len(rows), dtype=np.bool_),
            source=column("source", rows, np.int32),
            destination=column("destination", rows, np.int32),
            nbytes=column("nbytes", rows, np.int64),
            channel=column("channel", rows, np.int16),
            round=column("round", rows, np.int32),
            piece_start=np.cumsum([0, *(r.length > 0 for r in rows)], dtype=np.int64),
            source_place=column("source_place", moving, np.int32),
            destination_place=column("destination_place", moving, np.int32),
            length=column("length", moving, np.int32),
            wait_start=np.cumsum([0, *(len(r.waits) for r in rows)], dtype=np.int64),
            waits=np.fromiter(chain.from_iterable(r.waits for r in rows), dtype=np.int32),
        )


def from_function(
    collective: Collective,
    n: int,
    function: Callable[[Program], object],
    *,
    channels: int = 1,
    parts: int = 1,
    scratch: int = 0,
    switches: int = 0,
) -> Schedule:
    """The schedule of a collective on `n` ranks that a user's function writes.

    Each block is cut into `parts` chunks; a block is what one rank gives or gets where the
    operation splits the buffer by rank (all_gather, reduce_scatter, all_to_all, gather, scatter),
    elsewhere the whole buffer. Ops may name channels below `channels`; each rank and switch has
    `scratch` places beyond its data. Raises ScheduleError, naming the op, for a rank, place or
    channel that is not there.

    A ring all_reduce, whose block b is summed around the ring to its own rank b and then passed on:

    >>> from commsim.collectives.collective import Collective
    >>> from commsim.collectives.verify import verify
    >>> def ring(program):
    ...     n = program.n
    ...     for block in range(n):
    ...         for step in range(1, n):
    ...             program.reduce((block + step) % n, block, (block + step + 1) % n)
    ...         for step in range(n - 1):
    ...             program.copy((block + step) % n, block, (block + step + 1) % n)
    >>> collective = Collective("all_reduce", nbytes=1 << 20)
    >>> schedule = from_function(collective, 4, ring, parts=4)
    >>> verify(schedule, collective)  # no ScheduleError: it computes an all_reduce
    >>> len(schedule), schedule.sent().tolist()  # each rank sends 2 (n-1)/n of the buffer
    (24, [1572864, 1572864, 1572864, 1572864])
    """
    program = Program(
        cut(collective, n, parts), channels=channels, scratch=scratch, switches=switches
    )
    function(program)
    return program.build()


def _whole(name: str, what: str, value: object, least: int, most: int) -> int:
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = least - 1
    if not least <= number <= most:
        expected = f"{least} to {most}" if least <= most else "none, as there is none"
        raise ScheduleError(f"{name}: {what}: expected {expected}, got {value!r}")
    return number
