"""How the buffers of an MSCCL file (i: input, o: output, s: scratch) lie on a schedule's places."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from commsim.collectives.chunks import APART, Chunks

OPERATIONS = {
    "allgather": "all_gather",
    "allreduce": "all_reduce",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "gather": "gather",
    "reduce": "reduce",
    "reduce_scatter": "reduce_scatter",
    "scatter": "scatter",
}
NAMES = {operation: name for name, operation in OPERATIONS.items()}
INPUT, OUTPUT, SCRATCH = "i", "o", "s"
SHORT = {  # where a buffer is one block, not a block per rank
    INPUT: ("all_gather", "gather"),
    OUTPUT: ("reduce_scatter", "scatter"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffers:
    """The buffers of a collective's ranks.

    In place, input and output share their memory: i of an all_gather is the rank's own block of o,
    o of a reduce_scatter the rank's own block of i, else i is o.
    """

    chunks: Chunks
    in_place: bool

    def size(self, buffer: str) -> int:
        """Chunks of an input or output."""
        short = self.chunks.operation in SHORT[buffer]
        return self.chunks.parts if short else self.chunks.inputs

    def shift(self, rank: int, buffer: str) -> int:
        """Where in the whole buffer an input or output begins."""
        return rank * self.chunks.parts if self.chunks.operation in SHORT[buffer] else 0

    @property
    def results(self) -> int:
        """The place where the whole output begins: beyond the data, if an operation whose data lie
        in place is told not to work in place.
        """
        if self.in_place:
            return 0
        return self.chunks.output if self.chunks.operation in APART else self.chunks.places

    @property
    def scratch(self) -> int:
        """The first place of s."""
        return max(self.chunks.places, self.results + self.chunks.inputs)

    def place(self, rank: int, buffer: str, offset: int) -> int:
        """The place for which an offset into a buffer stands."""
        if buffer == SCRATCH:
            return self.scratch + offset
        whole = self.shift(rank, buffer) + offset
        return whole + (self.results if buffer == OUTPUT else 0)

    def due(self, rank: int) -> Iterator[tuple[int, int, int]]:
        """Places of the data that must hold a rank's result, as runs: first, the place where the
        algorithm leaves it, length. None where both are the same.
        """
        chunks = self.chunks
        if self.results != chunks.output:
            for first, length in runs(chunks.after()[rank]):
                yield first, first - chunks.output + self.results, length


def runs(held: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> Iterator[tuple[int, int]]:
    """First place and length of each run of held places."""
    edges = np.diff(np.concatenate([[False], held, [False]]).astype(np.int8))
    starts, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    yield from zip(starts.tolist(), (ends - starts).tolist(), strict=True)
