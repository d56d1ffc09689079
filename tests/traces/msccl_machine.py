"""A machine that carries MSCCL files out on numbers, thread blocks taking turns at random.

It shares no code with the reader: buffers are dictionaries, connections are queues.
"""

from __future__ import annotations

import random
from collections import defaultdict, deque
from dataclasses import dataclass, field
from xml.etree import ElementTree

Cell = tuple[int, str, int]


class WrongError(Exception):
    """Something was read that is not there, or everybody waits."""


@dataclass
class Machine:
    file: ElementTree.Element
    in_place: bool
    seed: int
    memory: dict[Cell, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.n = int(self.file.attrib["ngpus"])
        self.coll = self.file.attrib["coll"]
        self.chunks = int(self.file.attrib["nchunksperloop"])
        self.block = self.chunks // self.n

    def at(self, gpu: int, buffer: str, offset: int) -> Cell:
        """The cell of an offset, where input and output are the same memory."""
        if self.in_place and self.coll == "allreduce" and buffer == "o":
            return gpu, "i", offset
        if self.in_place and self.coll == "allgather" and buffer == "i":
            return gpu, "o", gpu * self.block + offset
        if self.in_place and self.coll == "reduce_scatter" and buffer == "o":
            return gpu, "i", gpu * self.block + offset
        return gpu, buffer, offset

    def computes(self) -> bool:
        """Whether one run, in an order drawn by the seed, ends with the right numbers."""
        rng = random.Random(self.seed)
        inputs = self.block if self.coll == "allgather" else self.chunks
        given = [[rng.getrandbits(60) for _ in range(inputs)] for _ in range(self.n)]
        for gpu, values in enumerate(given):
            self.memory.update({self.at(gpu, "i", k): v for k, v in enumerate(values)})
        try:
            self.run(rng)
        except WrongError:
            return False
        for gpu in range(self.n):
            for k, value in enumerate(self.due(gpu, given)):
                if self.memory.get(self.at(gpu, "o", k)) != value:
                    return False
        return True

    def due(self, gpu: int, given: list[list[int]]) -> list[int]:
        block = slice(gpu * self.block, (gpu + 1) * self.block)
        sums = [sum(column) for column in zip(*given, strict=True)]
        return {
            "allreduce": sums,
            "reduce_scatter": sums[block],
            "allgather": [value for values in given for value in values],
            "alltoall": [value for values in given for value in values[block]],
        }[self.coll]

    def run(self, rng: random.Random) -> None:
        blocks = {
            (int(gpu.attrib["id"]), int(tb.attrib["id"])): (tb, list(tb))
            for gpu in self.file
            for tb in gpu
        }
        queues: dict[tuple[int, int, str], deque[list[int]]] = defaultdict(deque)
        done = dict.fromkeys(blocks, 0)

        def ready(gpu: int, block: int) -> bool:
            tb, steps = blocks[gpu, block]
            if done[gpu, block] == len(steps):
                return False
            step = steps[done[gpu, block]].attrib
            if int(step["depid"]) >= 0 and done[gpu, int(step["depid"])] <= int(step["deps"]):
                return False
            receives = step["type"] in ("r", "rcs", "rrs", "rrc", "rrcs")
            return not receives or bool(queues[int(tb.attrib["recv"]), gpu, tb.attrib["chan"]])

        while any(done[key] < len(steps) for key, (_, steps) in blocks.items()):
            able = [key for key in blocks if ready(*key)]
            if not able:
                raise WrongError
            gpu, block = rng.choice(able)
            tb, steps = blocks[gpu, block]
            comes = queues[int(tb.attrib["recv"]), gpu, tb.attrib["chan"]]
            goes = queues[gpu, int(tb.attrib["send"]), tb.attrib["chan"]]
            self.step(gpu, steps[done[gpu, block]].attrib, comes, goes)
            done[gpu, block] += 1

    def step(
        self, gpu: int, step: dict[str, str], comes: deque[list[int]], goes: deque[list[int]]
    ) -> None:
        kind, count = step["type"], range(int(step["cnt"]))
        source = [self.at(gpu, step["srcbuf"], int(step["srcoff"]) + k) for k in count]
        end = [self.at(gpu, step["dstbuf"], int(step["dstoff"]) + k) for k in count]
        if kind == "nop":
            return
        if kind == "s":
            goes.append(self.load(source))
        elif kind == "cpy":
            self.memory.update(zip(end, self.load(source), strict=True))
        elif kind == "re":
            sums = [a + b for a, b in zip(self.load(source), self.load(end), strict=True)]
            self.memory.update(zip(end, sums, strict=True))
        else:
            values = comes.popleft()
            if kind.startswith("rr"):
                values = [a + b for a, b in zip(values, self.load(source), strict=True)]
            if kind != "rrs":
                self.memory.update(zip(end, values, strict=True))
            if kind.endswith("s"):
                goes.append(values)

    def load(self, cells: list[Cell]) -> list[int]:
        if any(cell not in self.memory for cell in cells):
            raise WrongError
        return [self.memory[cell] for cell in cells]
