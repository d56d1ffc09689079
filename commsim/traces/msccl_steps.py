"""A schedule as thread blocks of MSCCL: one for each connection, in it the ops in their order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from commsim.collectives.chunks import APART
from commsim.collectives.schedule import Op, Schedule
from commsim.errors import ScheduleError
from commsim.traces.events import LOCAL, RECEIVE, SEND, Event, events
from commsim.traces.msccl_buffers import INPUT, OUTPUT, SCRATCH, Buffers, runs

Lane = tuple[str, int, int]  # send, receive or local; the peer, -1 where there is none; the channel
Chunk = tuple[str, int]  # buffer, offset
HERE: Lane = (LOCAL, -1, 0)
BEGIN, END = -1, -2  # as numbers of ops: the copies from the input and to the output


@dataclass(slots=True, kw_only=True)
class Instruction:
    """One step; the ends of one that moves nothing are as MSCCL writes them."""

    kind: str
    source: Chunk = (INPUT, -1)
    destination: Chunk = (OUTPUT, -1)
    count: int = 0
    after: tuple[Lane, int] | None = None
    signals: bool = False


class Gpu:
    """The thread blocks of one GPU as they fill with instructions."""

    def __init__(self) -> None:
        self.blocks: dict[Lane, list[Instruction]] = {}
        self._last: dict[int, tuple[Lane, int]] = {}  # per op, its last instruction here
        self._known: dict[tuple[Lane, Lane], int] = {}  # how far one block has waited for another

    def put(self, op: int, lane: Lane, steps: list[Instruction], waits: Iterable[int]) -> None:
        """An op's instructions. Each can wait for one other only: `nop`s before wait for more."""
        block = self.blocks.setdefault(lane, [])
        needed: dict[Lane, int] = {}
        for other, number in (self._last[w] for w in waits):
            if other != lane and number > self._known.get((lane, other), -1):
                needed[other] = max(number, needed.get(other, -1))
        for other, number in needed.items():
            self.blocks[other][number].signals = True
            self._known[lane, other] = number
        steps = steps or [Instruction(kind="nop")]
        if needed:
            *more, steps[0].after = needed.items()
            block += [Instruction(kind="nop", after=each) for each in more]
        block += steps
        self._last[op] = (lane, len(block) - 1)


def gpus(schedule: Schedule, buffers: Buffers) -> Iterator[tuple[Gpu, int]]:
    """Each GPU's thread blocks and the chunks of its scratch."""
    layout = _Layout(schedule, buffers)
    for rank, here in enumerate(events(schedule)):
        gpu = Gpu()
        begin, end = layout.begin(rank), layout.end(rank)
        if begin:
            gpu.put(BEGIN, HERE, begin, ())
        after = (BEGIN,) if begin else ()
        for event in here:
            gpu.put(event.op.index, _lane(event), layout.steps(event), (*event.waits, *after))
        if end:
            gpu.put(END, HERE, end, [*(event.op.index for event in here), *after])
        yield gpu, layout.scratch


def _lane(event: Event) -> Lane:
    op = event.op
    peer = {SEND: op.destination, RECEIVE: op.source, LOCAL: -1}[event.kind]
    return event.kind, peer, op.channel


class _Layout:
    """Where the places of a schedule lie in the buffers.

    In place its data lie in whichever of input and output is whole. Out of place they lie in the
    output if that is whole, else in scratch, and are copied there first and from there last.
    """

    def __init__(self, schedule: Schedule, buffers: Buffers) -> None:
        self.buffers, self.chunks = buffers, buffers.chunks
        whole = [b for b in (INPUT, OUTPUT) if buffers.size(b) == self.chunks.inputs]
        self.apart = self.chunks.operation in APART
        self.copies = not self.apart and not buffers.in_place
        self.data = whole[0]
        if self.copies:
            self.data = OUTPUT if OUTPUT in whole else SCRATCH
        self.below = self.chunks.places if self.data == SCRATCH else 0
        self.scratch = self.below + schedule.scratch

    def at(self, place: int) -> Chunk:
        """Buffer and offset of a place."""
        if place >= self.chunks.places:
            return SCRATCH, place - self.chunks.places + self.below
        if self.apart and place >= self.chunks.output:
            return OUTPUT, place - self.chunks.output
        return self.data, place

    def begin(self, rank: int) -> list[Instruction]:
        """Copies from the input to where the data lie."""
        if not self.copies:
            return []
        shift = self.buffers.shift(rank, INPUT)
        return [
            Instruction(
                kind="cpy",
                source=(INPUT, first - shift),
                destination=(self.data, first),
                count=length,
            )
            for first, length in runs(self.chunks.before()[rank])
        ]

    def end(self, rank: int) -> list[Instruction]:
        """Copies from where the data lie to the output."""
        if not self.copies or self.data == OUTPUT:
            return []
        shift = self.buffers.shift(rank, OUTPUT)
        return [
            Instruction(
                kind="cpy",
                source=(self.data, first),
                destination=(OUTPUT, first - shift),
                count=length,
            )
            for first, length in runs(self.chunks.after()[rank])
        ]

    def steps(self, event: Event) -> list[Instruction]:
        """An op's instructions on one of its GPUs, one for each run of chunks."""
        op = event.op
        if event.kind != LOCAL and not op.pieces:
            raise ScheduleError(f"MSCCL: {op} moves nothing between GPUs; expected chunks")
        kind = {
            (SEND, False): "s",
            (SEND, True): "s",
            (RECEIVE, False): "r",
            (RECEIVE, True): "rrc",
            (LOCAL, False): "cpy",
            (LOCAL, True): "re",
        }[event.kind, op.reduces]
        found = []
        for source, destination, count in self.runs(op):
            start = destination if kind == "rrc" else source  # rrc adds to what lies at srcbuf
            found.append(Instruction(kind=kind, source=start, destination=destination, count=count))
        return found

    def runs(self, op: Op) -> Iterator[tuple[Chunk, Chunk, int]]:
        """An op's pieces, cut where a buffer ends."""
        for piece in op.pieces:
            start = 0
            for k in range(1, piece.length + 1):
                ends = [
                    (self.at(first + start), self.at(first + k))
                    for first in (piece.source_place, piece.destination_place)
                ]
                if k == piece.length or any(a[0] != b[0] for a, b in ends):
                    yield ends[0][0], ends[1][0], k - start
                    start = k
