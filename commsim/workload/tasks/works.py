"""One piece of a stage's work as tasks: a micro-batch's forward or backward through a chunk.

ZeRO-3 adds each unit's all_gather before it and the reduction of its gradients after it (the rules
of overlaps/fsdp.py); the last backward of a step adds the buckets' reductions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from commsim.units import Seconds
from commsim.workload.communication import Message
from commsim.workload.tasks.beats import Beats, Unit

STREAMS = ("compute", "tp", "cp", "ep", "dp", "replicas")
KINDS = ("forward", "backward", "weight", "optimizer", "framework", "tp", "cp", "ep", "dp", "pp")
COMPUTING = 5  # so many of the kinds are compute
Sending = tuple[str, Message, float]  # a stream, a message, how often
BEHIND = 2  # units whose gathered parameters FSDP lets exist at once (limit_all_gathers)


@dataclass(slots=True)
class Draft:
    """Tasks of one rank as they are issued. after: pairs (task, one that it waits for)."""

    stream: list[int] = field(default_factory=list)
    kind: list[int] = field(default_factory=list)
    name: list[str] = field(default_factory=list)
    duration: list[Seconds] = field(default_factory=list)
    nics: list[float] = field(default_factory=list)
    scale_up: list[float] = field(default_factory=list)
    after: list[tuple[int, int]] = field(default_factory=list)

    def compute(self, kind: str, name: str, duration: Seconds, after: Iterable[int] = ()) -> int:
        """A piece of compute; its place."""
        return self._add(0, kind, name, duration, 0.0, 0.0, after)

    def message(
        self, stream: str, message: Message, times: float = 1.0, after: Iterable[int] = (),
        name: str = "",
    ) -> int:  # fmt: skip
        """`times` a message; its place."""
        kind = "dp" if stream == "replicas" else stream
        return self._add(
            STREAMS.index(stream), kind, f"{message.operation} {name}".strip(),
            message.duration * times, message.nics, message.scale_up, after,
        )  # fmt: skip

    def transfer(self, stream: int, name: str, message: Message) -> int:
        """A message to another stage, on a stream of that number; its place."""
        return self._add(stream, "pp", name, message.duration, message.nics, message.scale_up, ())

    def _add(
        self, stream: int, kind: str, name: str, duration: Seconds, nics: float, scale_up: float,
        after: Iterable[int],
    ) -> int:  # fmt: skip
        here = len(self.stream)
        self.stream.append(stream)
        self.kind.append(KINDS.index(kind))
        self.name.append(name)
        self.duration.append(duration)
        self.nics.append(nics)
        self.scale_up.append(scale_up)
        self.after += [(here, other) for other in after]
        return here


@dataclass(frozen=True, slots=True)
class Exchanged:
    """What data parallelism does for one unit: its gathers and its reductions."""

    gathers: tuple[Sending, ...] = ()
    reduces: tuple[Sending, ...] = ()


@dataclass(frozen=True, slots=True)
class Bucket:
    """Gradients and parameters that travel together, once a step: reduced when the backward of the
    unit `ready` is done, gathered before the forward of the unit `needed`."""

    ready: int
    needed: int
    reduces: tuple[Sending, ...]
    gathers: tuple[Sending, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """A work's tasks. begins: per unit, the task that waits for its parameters; first and last: the
    tasks that wait for the input and end with the output."""

    draft: Draft
    begins: tuple[int, ...]
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Rules:
    """How ZeRO-3 runs beside the passes of every micro-batch: the units' messages (None: nothing
    is exchanged then), whether gathers and reductions overlap compute."""

    exchanged: tuple[Exchanged, ...] | None = None
    overlap_gather: bool = True
    overlap_reduce: bool = True


def forward(units: Sequence[Unit], rules: Rules) -> Piece:
    """A chunk's forward of one micro-batch."""
    draft = Draft()
    front = [draft.compute("forward", "input", 0.0)]
    begins, ends = [], list[int]()
    for i, unit in enumerate(units):
        there: list[int] = []
        if rules.exchanged is not None:
            waits = ends[-BEHIND:-1] if rules.overlap_gather else front
            there = exchange(draft, rules.exchanged[i].gathers, unit.name, waits)
        begins.append(draft.compute("forward", unit.name, 0.0, front + there))
        front, last = _beats(draft, "forward", unit.name, unit.forward, begins[-1])
        ends.append(last)
    last = draft.compute("forward", "output", 0.0, front)
    return Piece(draft, tuple(begins), 0, last)


def backward(
    units: Sequence[Unit], rules: Rules, split: bool, buckets: Sequence[Bucket] = ()
) -> Piece:
    """A chunk's backward of one micro-batch; split: for the input's gradient alone. buckets: are
    reduced when their gradients are there."""
    draft = Draft()
    front = [draft.compute("backward", "gradient", 0.0)]
    begins: dict[int, int] = {}
    there: dict[int, list[int]] = {}
    for i in reversed(range(len(units))):
        unit = units[i]
        if rules.exchanged is not None:
            # The last unit's parameters are still there from forward.
            wanted = (i - 1,) if i == len(units) - 1 else (i, i - 1)
            for k in wanted if rules.overlap_gather else (i,):
                if k >= 0 and k not in there and (k < len(units) - 1):
                    waits = [] if rules.overlap_gather else front
                    there[k] = exchange(draft, rules.exchanged[k].gathers, units[k].name, waits)
        begins[i] = draft.compute("backward", unit.name, 0.0, front + there.get(i, []))
        beats = unit.dgrad if split else unit.backward
        front, last = _beats(draft, "backward", unit.name, beats, begins[i])
        if rules.exchanged is not None and not split:
            reduced = exchange(draft, rules.exchanged[i].reduces, unit.name, [last])
            if not rules.overlap_reduce:
                front = front + reduced
        _reduce(draft, buckets, i, last)
    last = draft.compute("backward", "input gradient", 0.0, front)
    return Piece(draft, tuple(begins[i] for i in range(len(units))), 0, last)


def weights(units: Sequence[Unit], rules: Rules, buckets: Sequence[Bucket] = ()) -> Piece:
    """The weights' gradients of one micro-batch, where the schedule leaves them for later."""
    draft = Draft()
    begins: dict[int, int] = {}
    for i in reversed(range(len(units))):
        begins[i] = last = draft.compute("weight", units[i].name, units[i].weight)
        if rules.exchanged is not None:
            exchange(draft, rules.exchanged[i].reduces, units[i].name, [last])
        _reduce(draft, buckets, i, last)
    return Piece(draft, tuple(begins[i] for i in range(len(units))), 0, last)


def together(one: Piece, other: Piece) -> tuple[Piece, Piece]:
    """Two works that run together, their tasks in turns: while one waits for a message, the other
    computes. Both pieces have the same draft."""
    a, b = len(one.draft.stream), len(other.draft.stream)
    turn = np.argsort(
        np.concatenate([(np.arange(a) + 0.5) / a, (np.arange(b) + 0.5) / b]), kind="stable"
    )
    place = np.empty_like(turn)
    place[turn] = np.arange(a + b)
    both = Draft()
    for column in ("stream", "kind", "name", "duration", "nics", "scale_up"):
        values = getattr(one.draft, column) + getattr(other.draft, column)
        setattr(both, column, [values[i] for i in turn])
    pairs = one.draft.after + [(x + a, y + a) for x, y in other.draft.after]
    both.after = [(int(place[x]), int(place[y])) for x, y in pairs]

    def moved(piece: Piece, shift: int) -> Piece:
        return Piece(
            both, tuple(int(place[x + shift]) for x in piece.begins),
            int(place[piece.first + shift]), int(place[piece.last + shift]),
        )  # fmt: skip

    return moved(one, 0), moved(other, a)


def _beats(draft: Draft, kind: str, name: str, beats: Beats, begin: int) -> tuple[list[int], int]:
    """Adds the beats after the task `begin`; what the next waits for, and the last compute."""
    front, last = [begin], begin
    for beat in beats:
        ends = []
        if beat.message is not None and beat.message.duration:
            ends.append(draft.message(beat.kind, beat.message, beat.times, front))
        if beat.work:
            last = draft.compute(kind, name, beat.work, front)
            ends.append(last)
        front = ends or front
    return front, last


def exchange(
    draft: Draft, messages: Iterable[Sending], name: str, after: Iterable[int]
) -> list[int]:
    """The messages one after the other on their streams; the last ones' places."""
    last = list(after)
    for stream, message, times in messages:
        if message.duration:
            last = [draft.message(stream, message, times, last, name)]
    return last if messages else []


def _reduce(draft: Draft, buckets: Sequence[Bucket], unit: int, last: int) -> None:
    for bucket in buckets:
        if bucket.ready == unit:
            exchange(draft, bucket.reduces, "of gradients", [last])
