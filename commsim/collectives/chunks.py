"""How a collective's buffers are cut into chunks, and who holds which before and after.

Every rank numbers the places of its memory from 0: first the data, then scratch. A place of the
data stands for one chunk; all_to_all and send_recv keep input and output apart, every other
operation works in place, as torch.distributed does. Sizes need not divide: a chunk holds the
rounded-up share of its block, the last ones what is left, down to nothing. In an uneven all_to_all
a block weighs what its pair of ranks exchanges.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from commsim.collectives.collective import REDUCTIONS, Collective
from commsim.errors import CollectiveError
from commsim.units import Bytes

Ints = NDArray[np.int64]

WHOLE = frozenset({"all_reduce", "reduce", "broadcast", "barrier", "send_recv"})
APART = frozenset({"all_to_all", "send_recv"})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Chunks:
    """The chunks of one collective on `n` ranks, each block cut into `parts` chunks.

    A block is what one rank contributes or receives in the operations that split the buffer by
    rank (all_gather, reduce_scatter, all_to_all, gather, scatter); elsewhere the whole buffer.
    `nbytes` holds the size of each chunk; place p of an input is chunk p, but in all_to_all place
    `j * parts + q` of rank i's input is chunk `(i * n + j) * parts + q`, and in send_recv place q
    of rank i is chunk `i * parts + q`.
    """

    operation: str
    n: int
    root: int | None  # as a position; None where every rank plays the same part
    parts: int
    nbytes: Ints

    @property
    def inputs(self) -> int:
        """Places of a rank's input."""
        return self.parts if self.operation in WHOLE else self.parts * self.n

    @property
    def output(self) -> int:
        """The first place of a rank's output."""
        return self.inputs if self.operation in APART else 0

    @property
    def places(self) -> int:
        """Places of a rank's data; scratch begins here."""
        return self.output + self.inputs

    @property
    def reduces(self) -> bool:
        """Whether a result holds every rank's contribution, rather than one rank's data."""
        return self.operation in REDUCTIONS

    def at(self, position: Ints, place: Ints) -> Ints:
        """The chunk for which a place of a rank's data stands."""
        if self.operation not in APART:
            return place
        out = place >= self.output
        inside = np.where(out, place - self.output, place)
        block, part = inside // self.parts, inside % self.parts
        if self.operation == "send_recv":
            owner = np.where(out, (position - 1) % self.n, position)
        else:
            giver, taker = np.where(out, block, position), np.where(out, position, block)
            owner = giver * self.n + taker
        return np.asarray(owner * self.parts + part, dtype=np.int64)

    def before(self) -> NDArray[np.bool_]:
        """Which places of the data hold their chunk at first: [position, place]."""
        held = np.zeros((self.n, self.places), dtype=np.bool_)
        if self.operation in ("all_gather", "gather"):
            for position in range(self.n):
                held[position, self._block(position)] = True
        elif self.operation in ("broadcast", "scatter") or self._one_way:
            held[self.root, : self.inputs] = True
        else:
            held[:, : self.inputs] = True
        return held

    def after(self) -> NDArray[np.bool_]:
        """Which places of the data must hold their final chunk in the end: [position, place]."""
        due = np.zeros((self.n, self.places), dtype=np.bool_)
        if self.operation in ("reduce_scatter", "scatter"):
            for position in range(self.n):
                due[position, self._block(position)] = True
        elif self.operation in ("reduce", "gather"):
            due[self.root] = True
        elif self._one_way:
            assert self.root is not None
            due[1 - self.root, self.output :] = True
        else:
            due[:, self.output :] = True
        return due

    def pairs(self) -> Ints:
        """Bytes from each rank to each other in an all_to_all: [giver, taker]."""
        pairs: Ints = self.nbytes.reshape(self.n, self.n, self.parts).sum(axis=2)
        np.fill_diagonal(pairs, 0)
        return pairs

    def busiest(self) -> Bytes:
        """The most that a rank sends to others, or receives from them, in an all_to_all."""
        pairs = self.pairs()
        return int(max(pairs.sum(axis=0).max(), pairs.sum(axis=1).max()))

    def _block(self, position: int) -> slice:
        return slice(position * self.parts, (position + 1) * self.parts)

    @property
    def _one_way(self) -> bool:
        return self.operation == "send_recv" and self.root is not None


def cut(collective: Collective, n: int, parts: int = 1) -> Chunks:
    """The chunks of a collective on a group of `n` ranks, each block cut into `parts`."""
    if n < 2 or parts < 1 or (collective.ranks is not None and len(collective.ranks) != n):
        listed = "any" if collective.ranks is None else len(collective.ranks)
        raise CollectiveError(
            f"{collective.operation}: expected a group of at least 2 ranks ({listed} listed) and "
            f"at least 1 part, got {n} ranks and {parts} parts"
        )
    collective.check_splits(n)
    operation = collective.operation
    total = 0 if operation == "barrier" else collective.nbytes
    given = np.array([total] if collective.splits is None else collective.splits, dtype=np.int64)
    unit = 1 if (given % collective.itemsize).any() else collective.itemsize
    blocks = given if collective.splits or operation in WHOLE else split(total, n, unit)
    sizes = split(blocks, parts, unit).ravel()
    if operation in APART and collective.splits is None:
        sizes = np.tile(sizes, n)
    return Chunks(operation=operation, n=n, root=_root(collective, n), parts=parts, nbytes=sizes)


def split(nbytes: Bytes | Ints, pieces: int, unit: Bytes = 1) -> Ints:
    """Bytes of each piece, along a last axis: the rounded-up share in whole units, the last pieces
    what is left.
    """
    whole = np.asarray(nbytes, dtype=np.int64)[..., np.newaxis]
    share = -(-(whole // unit) // pieces) * unit
    bounds: Ints = np.minimum(np.arange(pieces + 1) * share, whole)
    return np.diff(bounds)


def _root(collective: Collective, n: int) -> int | None:
    """The root's position; position 0 where a rooted operation names none."""
    operation, root = collective.operation, collective.root
    if operation not in ("broadcast", "reduce", "gather", "scatter", "send_recv"):
        return None
    if root is None:
        return None if operation == "send_recv" else 0
    position = root if collective.ranks is None else collective.ranks.index(root)
    if not 0 <= position < n:
        raise CollectiveError(f"{operation}: root: expected a rank below {n}, got {root}")
    if operation == "send_recv" and n != 2:
        raise CollectiveError(f"send_recv: root: a one-way message needs 2 ranks, got {n}")
    return position
