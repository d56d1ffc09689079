"""The steps in an MSCCL file, each checked by itself and sends matched with receives."""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from commsim.collectives.chunks import WHOLE, cut
from commsim.collectives.collective import ROOTED, Collective
from commsim.errors import SpecError
from commsim.topology.elements import Element, parse
from commsim.traces.msccl_buffers import INPUT, OPERATIONS, OUTPUT, SCRATCH, Buffers

SENDS = frozenset({"s", "rcs", "rrs", "rrcs"})
RECEIVES = frozenset({"r", "rcs", "rrs", "rrc", "rrcs"})
SUMS = frozenset({"rrs", "rrc", "rrcs", "re"})
READS = frozenset({"s", "rrs", "rrc", "rrcs", "re", "cpy"})  # from srcbuf, of their own GPU
WRITES = frozenset({"r", "rcs", "rrc", "rrcs", "re", "cpy"})  # to dstbuf, of their own GPU
KINDS = SENDS | RECEIVES | SUMS | READS | {"nop"}

CHUNKS, CHANNELS, MANY = 1 << 20, 1 << 15, 1 << 31  # more than any file has
At = tuple[int, int, int]  # GPU, thread block, step


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One instruction of a thread block; places are those of its own GPU, -1 where it uses none.

    after: the thread block and step of the same GPU that it waits for. signals: whether others may
    wait for it.
    """

    kind: str
    source: int
    destination: int
    count: int
    after: tuple[int, int] | None
    signals: bool
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A thread block, which goes through its steps one by one."""

    send: int
    receive: int
    channel: int
    steps: list[Step]


@dataclass(slots=True, kw_only=True)
class Algo:
    """What a file holds. `sender`: per receiving step the step that sends to it."""

    name: str
    collective: Collective
    buffers: Buffers
    channels: int
    scratch: int
    gpus: list[list[Block]]
    sender: dict[At, At] = field(default_factory=dict)

    def step(self, at: At) -> Step:
        """The step at a place in the file."""
        gpu, block, step = at
        return self.gpus[gpu][block].steps[step]


def read(path: str | os.PathLike[str], nbytes: int, dtype: str, in_place: bool | None) -> Algo:
    """The algorithm in a file for a size that the file leaves open; SpecError lists all problems.

    in_place: which way is meant where the file serves both; None: in place if it can.
    """
    reader = _Reader(Path(path).name)
    root = parse(path, "algo")
    algo = reader.algo(root, nbytes, dtype, in_place)
    if not reader.problems:
        reader.check_waits(algo)
        reader.match(algo)
    if reader.problems:
        raise SpecError(reader.problems)
    return algo


class _Reader:
    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[str] = []

    def problem(self, line: int, text: str) -> None:
        self.problems.append(f"{self.file}: line {line}: {text}")

    def number(
        self, element: Element, name: str, least: int, most: int, default: int | None = None
    ) -> int:
        text = element.attributes.get(name)
        if text is None and default is not None:
            return default
        try:
            value = int(text or "")
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            expected = f"{least} to {most}" if most < MANY else f"{least} or more"
            self.problem(
                element.line,
                f"<{element.tag}> {name}: found {text!r}, expected {expected}; correct it",
            )
            return least
        return value

    def numbered(self, element: Element, tag: str, name: str) -> list[Element]:
        """The children by their numbers `name`; all must be <tag>, each number there once."""
        found = []
        for child in element.children:
            if child.tag == tag:
                found.append((self.number(child, name, 0, MANY), child))
            else:
                self.problem(
                    child.line, f"<{element.tag}>: found <{child.tag}>, expected <{tag}>; remove it"
                )
        found.sort(key=lambda pair: pair[0])
        for expected, (number, child) in enumerate(found):
            if number != expected:
                self.problem(
                    child.line,
                    f"<{tag}> {name}: found {number}, expected {expected}; number them from 0",
                )
                break
        return [child for _, child in found]

    def algo(self, root: Element, nbytes: int, dtype: str, in_place: bool | None) -> Algo:
        gpus = self.numbered(root, "gpu", "id")
        told, n = root.attributes.get("ngpus"), max(2, len(gpus))
        if len(gpus) < 2:
            self.problem(root.line, f"<algo>: found {len(gpus)} <gpu>, expected at least 2")
        if told != str(len(gpus)):
            self.problem(
                root.line,
                f"<algo> ngpus: found {told!r}, expected {len(gpus)}, as many as <gpu>; correct it",
            )
        word = root.attributes.get("coll", "")
        known = {name.replace("_", ""): operation for name, operation in OPERATIONS.items()}
        operation = known.get(word.lower().replace("_", ""))
        if operation is None:
            self.problem(
                root.line,
                f"<algo> coll: found {word!r}, expected one of {', '.join(OPERATIONS)}; correct it",
            )
            operation = "all_reduce"
        total = self.number(root, "nchunksperloop", 1, CHUNKS)
        if operation not in WHOLE and total % n:
            self.problem(
                root.line,
                f"<algo> nchunksperloop: found {total}, expected a multiple of {n}, the number of "
                "GPUs; correct it",
            )
        parts = total if operation in WHOLE else max(1, total // n)
        chief = self.number(root, "root", 0, n - 1, default=0) if operation in ROOTED else None
        collective = Collective(operation, nbytes, dtype, root=chief)
        algo = Algo(
            name=root.attributes.get("name", "") or "commsim",
            collective=collective,
            buffers=Buffers(
                chunks=cut(collective, n, parts), in_place=self.in_place(root, in_place)
            ),
            channels=self.number(root, "nchannels", 1, CHANNELS),
            scratch=0,
            gpus=[],
        )
        for rank, gpu in enumerate(gpus):
            algo.gpus.append(self.gpu(gpu, rank, n, algo))
        return algo

    def in_place(self, root: Element, wanted: bool | None) -> bool:
        inside = self.number(root, "inplace", 0, 1, default=0)
        outside = self.number(root, "outofplace", 0, 1, default=1 - inside)
        served = [way for way, serves in ((True, inside), (False, outside)) if serves]
        if wanted not in served and (wanted is not None or not served):
            way = {True: "in place", False: "out of place", None: "in place or out of place"}[
                wanted
            ]
            self.problem(
                root.line,
                f"<algo> inplace, outofplace: found {inside}, {outside}, expected one that works "
                f"{way}; ask for another",
            )
        return bool(inside) if wanted is None else wanted

    def gpu(self, element: Element, rank: int, n: int, algo: Algo) -> list[Block]:
        scratch = self.number(element, "s_chunks", 0, CHUNKS, default=0)
        algo.scratch = max(algo.scratch, scratch)
        sizes = {b: algo.buffers.size(b) for b in (INPUT, OUTPUT)} | {SCRATCH: scratch}
        blocks = []
        for each in self.numbered(element, "tb", "id"):
            peers = [self.number(each, name, -1, n - 1) for name in ("send", "recv")]
            if rank in peers:
                self.problem(each.line, f"<tb>: GPU {rank} is its own peer, expected another GPU")
            steps = [
                self.step(step, rank, peers, sizes, algo.buffers)
                for step in self.numbered(each, "step", "s")
            ]
            channel = self.number(each, "chan", 0, algo.channels - 1)
            blocks.append(Block(send=peers[0], receive=peers[1], channel=channel, steps=steps))
        return blocks

    def step(
        self,
        element: Element,
        rank: int,
        peers: list[int],
        sizes: dict[str, int],
        buffers: Buffers,
    ) -> Step:
        kind = element.attributes.get("type", "")
        if kind not in KINDS:
            self.problem(
                element.line,
                f"<step> type: found {kind!r}, expected one of {', '.join(sorted(KINDS))}; "
                "correct it",
            )
        for need, peer, name in ((SENDS, peers[0], "send"), (RECEIVES, peers[1], "recv")):
            if kind in need and peer < 0:
                self.problem(
                    element.line,
                    f"<step> type {kind!r} in a <tb> with {name}=-1, expected a GPU to {name} to "
                    "or from; correct it",
                )
        count = 0 if kind == "nop" else self.number(element, "cnt", 1, MANY)
        places = [
            self.place(element, end, count, rank, sizes, buffers) if kind in using else -1
            for end, using in (("src", READS), ("dst", WRITES))
        ]
        distance = abs(places[0] - places[1])
        in_one = kind in ("rrc", "rrcs") and distance == 0
        if kind in READS & WRITES and distance < count and not in_one:
            self.problem(
                element.line, f"<step> type {kind!r}: source and destination overlap; correct it"
            )
        block = self.number(element, "depid", -1, MANY, default=-1)
        step = self.number(element, "deps", -1, MANY, default=-1)
        return Step(
            kind=kind,
            source=places[0],
            destination=places[1],
            count=count,
            after=None if block < 0 else (block, step),
            signals=self.number(element, "hasdep", 0, 1, default=0) == 1,
            line=element.line,
        )

    def place(
        self,
        element: Element,
        end: str,
        count: int,
        rank: int,
        sizes: dict[str, int],
        buffers: Buffers,
    ) -> int:
        buffer = element.attributes.get(f"{end}buf", "")
        if buffer not in sizes:
            self.problem(
                element.line,
                f"<step> {end}buf: found {buffer!r}, expected i (input), o (output) or s "
                "(scratch); correct it",
            )
            return -1
        room = sizes[buffer] - count
        if room < 0:
            self.problem(
                element.line,
                f"<step> cnt: found {count}, expected at most the {sizes[buffer]} chunks of "
                f"{buffer}; correct it",
            )
            return -1
        return buffers.place(rank, buffer, self.number(element, f"{end}off", 0, room))

    def check_waits(self, algo: Algo) -> None:
        """Every step waits for one that is there and that signals."""
        for blocks in algo.gpus:
            for step in (step for block in blocks for step in block.steps if step.after):
                assert step.after is not None
                block, number = step.after
                if block >= len(blocks):
                    self.problem(
                        step.line,
                        f"<step> depid: found {block}, expected one of the {len(blocks)} thread "
                        "blocks of this GPU; correct it",
                    )
                elif not 0 <= number < len(blocks[block].steps):
                    self.problem(
                        step.line,
                        f"<step> deps: found {number}, expected one of the "
                        f"{len(blocks[block].steps)} steps of thread block {block}; correct it",
                    )
                elif not blocks[block].steps[number].signals:
                    self.problem(
                        blocks[block].steps[number].line,
                        f"<step> hasdep: found 0, expected 1, as line {step.line} waits for it; "
                        "correct it",
                    )

    def match(self, algo: Algo) -> None:
        """The k-th send of a connection (GPU, GPU, channel) goes to its k-th receive."""
        sends: dict[At, list[At]] = defaultdict(list)
        receives: dict[At, list[At]] = defaultdict(list)
        for gpu, blocks in enumerate(algo.gpus):
            for index, block in enumerate(blocks):
                for number, step in enumerate(block.steps):
                    at = (gpu, index, number)
                    if step.kind in SENDS:
                        sends[gpu, block.send, block.channel].append(at)
                    if step.kind in RECEIVES:
                        receives[block.receive, gpu, block.channel].append(at)
        for giver, taker, channel in sorted(sends.keys() | receives.keys()):
            gives, takes = sends[giver, taker, channel], receives[giver, taker, channel]
            name = f"from GPU {giver} to GPU {taker} on channel {channel}"
            line = algo.step((gives or takes)[0]).line
            for ends, verb in ((gives, "send"), (takes, "receive")):
                if len({at[:2] for at in ends}) > 1:
                    self.problem(line, f"several <tb> {verb} {name}, expected one; join them")
            if len(gives) != len(takes):
                self.problem(
                    line,
                    f"{len(gives)} sends {name} but {len(takes)} receives, expected as many; "
                    "add what lacks",
                )
            for give, take in zip(gives, takes, strict=False):
                one, other = algo.step(give), algo.step(take)
                if one.count != other.count:
                    self.problem(
                        one.line,
                        f"<step> cnt: found {one.count}, but line {other.line} receives "
                        f"{other.count}; expected as many",
                    )
                algo.sender[take] = give
