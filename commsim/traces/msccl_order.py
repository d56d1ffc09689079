"""The schedule of an MSCCL file: its waits are those that the file guarantees, and no others.

A step begins when the one before it in its thread block is over and the step of `depid` and `deps`
too; a receive also when its send has come. A send is over as soon as its data have left: they wait
for the receiver in the connection's buffer, which is taken to be as deep as needed. So a receive is
at first two ops, from the sender into a slot of scratch and from there to its place. They become
one wherever nobody can tell the difference, as all others use that place before the send or after
the receive.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

from commsim.collectives.builder import NONE, Builder
from commsim.collectives.chunks import Chunks, Ints
from commsim.collectives.order import levels, unordered
from commsim.collectives.program import Program
from commsim.collectives.schedule import Schedule
from commsim.errors import SpecError
from commsim.traces.msccl_file import SENDS, SUMS, Algo, At, Step

Key = tuple[str, int, int, int]  # part of a step, GPU, thread block, step
Cell = tuple[int, int]  # rank, place
PREPARE, MOVE, SEND = "prepare", "move", "send"
READ, WRITE, SUM = "read", "write", "sum"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """An op to be, from and to so many places from a cell on; none: it only waits."""

    reduces: bool
    source: Cell
    destination: Cell
    count: int
    channel: int
    waits: tuple[Key, ...]


def schedule(algo: Algo, file: str) -> Schedule:
    """The schedule of a file's steps; SpecError if they wait for each other in a circle."""
    parts = _parts(algo)
    try:
        order = list(TopologicalSorter({k: p.waits for k, p in parts.items()}).static_order())
    except CycleError as error:
        lines = sorted({algo.step(key[1:]).line for key in error.args[1]})
        raise SpecError(
            [
                f"{file}: lines {', '.join(map(str, lines))}: found steps that wait for each other "
                "in a circle, expected an order in which they can run; break it"
            ]
        ) from None
    return _emit(algo, parts, order, _direct(algo, parts, order))


def _over(algo: Algo, at: At) -> Key:
    """The part of a step that is over last."""
    return (SEND if algo.step(at).kind in SENDS else MOVE, *at)


def _top(algo: Algo) -> int:
    """The first place of the slots."""
    return algo.buffers.scratch + algo.scratch


def _parts(algo: Algo) -> dict[Key, _Part]:
    """Every step's parts: what comes lies in a slot first."""
    incoming: dict[At, Cell] = {}
    used = Counter[int]()
    for take in algo.sender:
        incoming[take] = (take[0], _top(algo) + used[take[0]])
        used[take[0]] += algo.step(take).count
    outgoing = {give: incoming[take] for take, give in algo.sender.items()}
    parts: dict[Key, _Part] = {}
    for gpu, blocks in enumerate(algo.gpus):
        for index, block in enumerate(blocks):
            for number, step in enumerate(block.steps):
                at = (gpu, index, number)
                waits = [_over(algo, (gpu, index, number - 1))] if number else []
                if step.after:
                    waits.append(_over(algo, (gpu, *step.after)))
                moves = _moves(step, gpu, incoming.get(at), outgoing.get(at))
                for name, source, destination, reduces in moves:
                    if name == MOVE and at in algo.sender:
                        waits.append((SEND, *algo.sender[at]))
                    parts[name, *at] = _Part(
                        reduces=reduces,
                        source=source,
                        destination=destination,
                        count=step.count,
                        channel=block.channel,
                        waits=tuple(waits),
                    )
                    waits = [(name, *at)]
    return parts


def _moves(
    step: Step, gpu: int, incoming: Cell | None, outgoing: Cell | None
) -> list[tuple[str, Cell, Cell, bool]]:
    """The parts of a step in their order: name, from where, to where, whether it adds."""
    here, there = (gpu, step.source), (gpu, step.destination)
    if incoming is None:
        moves = [] if step.kind == "s" else [(MOVE, here, there, step.kind == "re")]
        leaving = here
    elif step.kind == "rrs":
        moves, leaving = [(MOVE, here, incoming, True)], incoming
    else:
        moves, leaving = [(MOVE, incoming, there, step.kind in SUMS)], there
        if step.kind in SUMS and here != there:
            moves.insert(0, (PREPARE, here, there, False))
    if outgoing is not None:
        moves.append((SEND, leaving, outgoing, False))
    return moves


def _direct(algo: Algo, parts: dict[Key, _Part], order: list[Key]) -> set[Key]:
    """The receives that can do without a slot: whoever else uses the places where they put what
    comes is certain to do so before the send or after the receive (sums may mix with sums).
    """
    number = {key: i for i, key in enumerate(order)}
    uses: dict[Cell, list[tuple[int, str]]] = defaultdict(list)
    for key in order:
        part = parts[key]
        for (rank, place), kind in (
            (part.source, READ),
            (part.destination, SUM if part.reduces else WRITE),
        ):
            for k in range(part.count if place < _top(algo) else 0):
                uses[rank, place + k].append((number[key], kind))
    asked: list[tuple[Key, int, int]] = []
    direct = set()
    for take, give in algo.sender.items():
        key = (MOVE, *take)
        part, came, here = parts[key], number[SEND, *give], number[key]
        rank, place = part.destination
        if place >= _top(algo):
            continue
        direct.add(key)
        for k in range(part.count):
            for other, kind in uses[rank, place + k]:
                if other != here and not (kind == SUM and part.reduces):
                    asked.append((key, other, came) if other < came else (key, here, other))
    first = np.array([a[1] for a in asked], dtype=np.int64)
    second = np.array([a[2] for a in asked], dtype=np.int64)
    ordered = _ordered(
        algo.buffers.chunks, [[number[w] for w in parts[key].waits] for key in order], first, second
    )
    return direct - {asked[i][0] for i in np.flatnonzero(~ordered)}


def _ordered(
    chunks: Chunks, waits: list[list[int]], first: Ints, second: Ints
) -> NDArray[np.bool_]:
    """For pairs of parts: whether the second surely begins after the first is over."""
    builder = Builder(chunks)
    after = [np.array(column) for column in zip_longest(*waits, fillvalue=NONE)]
    builder.append(np.zeros(len(waits)), 0, 0, length=0, after=after)
    alone = builder.build()
    found: NDArray[np.bool_] = (first < second) & ~unordered(alone, levels(alone), first, second)
    return found


class _Ops:
    """The ops made so far, and with which of them each part of the file is over."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.over: dict[Key, set[int]] = {}
        self._waits: list[set[int]] = []
        self._ways: list[tuple[int, int, int]] = []

    def needed(self, keys: Iterable[Key]) -> set[int]:
        """What to wait for to be after these parts, less what comes the same way earlier."""
        ops = set[int]().union(*(self.over[key] for key in keys))
        passed = {a for b in ops for a in self._waits[b] & ops if self._ways[a] == self._ways[b]}
        return ops - passed

    def add(self, part: _Part, source: Cell, destination: Cell, waits: set[int]) -> set[int]:
        make = self.program.reduce if part.reduces else self.program.copy
        op = make(*source, *destination, length=part.count, channel=part.channel, after=waits)
        self._waits.append(waits)
        self._ways.append((source[0], destination[0], part.channel))
        return {op}


def _emit(algo: Algo, parts: dict[Key, _Part], order: list[Key], direct: set[Key]) -> Schedule:
    """The ops of all parts; results that lie elsewhere come to the places of the data last."""
    chunks, top = algo.buffers.chunks, _top(algo)
    slots: dict[Cell, Cell] = {}  # those that are left, close together
    used = Counter[int]()
    taker: dict[Key, _Part] = {}
    for take, give in algo.sender.items():
        move, slot = (MOVE, *take), parts[SEND, *give].destination
        if move in direct:
            taker[SEND, *give] = parts[move]
        else:
            slots[slot] = (take[0], top + used[take[0]])
            used[take[0]] += parts[move].count
    scratch = top - chunks.places + max(used.values(), default=0)
    ops = _Ops(Program(chunks, channels=algo.channels, scratch=scratch, automatic=False))
    for key in order:
        part = parts[key]
        waits = ops.needed(part.waits)
        if part.count and key not in direct:
            last = taker.get(key, part)
            source, destination = part.source, last.destination
            waits = ops.add(
                last, slots.get(source, source), slots.get(destination, destination), waits
            )
        ops.over[key] = waits
    for rank, blocks in enumerate(algo.gpus):
        ends = [_over(algo, (rank, i, len(b.steps) - 1)) for i, b in enumerate(blocks) if b.steps]
        waits = ops.needed(ends)
        for due, place, length in algo.buffers.due(rank):
            ops.program.copy(rank, place, rank, due, length=length, after=waits)
    return ops.program.build()
