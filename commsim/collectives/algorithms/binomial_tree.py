"""Binomial tree: log2 n rounds in which the ranks that have the data double, or those to be summed
halve.

The fewest rounds for an operation with a root, so it wins for small buffers; a large one goes over
the root's link log2 n times. gather and scatter move each block over the root's link once. barrier
and all_reduce are a reduce, then a broadcast. Source: Thakur, Rabenseifner and Gropp, "Optimization
of collective communication operations in MPICH", IJHPCA 19(1), 2005,
doi:10.1177/1094342005051521.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from commsim.collectives.algorithm import Algorithm, Cost
from commsim.collectives.builder import NONE, Builder
from commsim.collectives.chunks import Chunks, Ints, cut
from commsim.collectives.collective import Collective
from commsim.collectives.schedule import Schedule

INWARD = frozenset({"all_reduce", "barrier", "gather", "reduce"})
OUTWARD = frozenset({"all_reduce", "barrier", "broadcast", "scatter"})


@dataclass(frozen=True, slots=True, kw_only=True)
class BinomialTree(Algorithm):
    """Counted from the root, a rank's parent lacks its lowest one bit. A parent takes its children
    one after the other, nearest first, as MPI's blocking receive does, and serves the farthest
    first.
    """

    operations: ClassVar[frozenset[str]] = INWARD | OUTWARD

    def schedule(self, collective: Collective, n: int, channels: int = 1) -> Schedule:
        chunks = self._chunks(collective, n, channels)
        builder = Builder(chunks)
        last = np.full((n, channels), NONE)  # per rank, counted from the root, its last op
        bits = range((n - 1).bit_length())
        steps = [(bit, True) for bit in bits if collective.operation in INWARD]
        steps += [(bit, False) for bit in reversed(bits) if collective.operation in OUTWARD]
        for step, (bit, inward) in enumerate(steps):
            self._append(builder, last, bit, inward=inward, round=step)
        return builder.build()

    def cost(self, collective: Collective, n: int, channels: int = 1) -> Cost:
        """Inwards the root takes ceil(log2 n) buffers one by one, or n - 1 blocks in as many
        messages. Outwards as much leaves it, but a rank is at most floor(log2 n) hops away.
        """
        chunks = self._chunks(collective, n, channels)
        inward, outward = collective.operation in INWARD, collective.operation in OUTWARD
        up, down = (n - 1).bit_length(), n.bit_length() - 1
        total = int(chunks.nbytes.sum())
        if collective.operation in ("gather", "scatter"):
            nbytes = total - int(chunks.nbytes.reshape(n, channels)[chunks.root].sum())
        else:
            nbytes = (inward + outward) * up * total
        return Cost(rounds=inward * up + outward * down, nbytes=float(nbytes))

    def _append(self, builder: Builder, last: Ints, bit: int, *, inward: bool, round: int) -> None:
        """One round: between the ranks whose lowest one bit is this one and their parents."""
        chunks, (n, channels) = builder.chunks, last.shape
        root = chunks.root or 0
        child, channel = np.divmod(np.arange(n * channels), channels)
        lowest = child % (2 << bit) == 1 << bit
        child, channel = child[lowest], channel[lowest]
        parent = child - (1 << bit)
        place, length = channel[:, np.newaxis], 1
        if chunks.operation in ("gather", "scatter"):  # the blocks of all ranks below the child
            below = child[:, np.newaxis] + np.arange(1 << bit)
            place, length = (root + below) % n * channels + place, below < n
        ends = ((root + child) % n, (root + parent) % n)
        waits = (last[child, channel], last[parent, channel])
        last[parent, channel] = last[child, channel] = builder.append(
            *(ends if inward else ends[::-1]),
            place,
            length=length,
            reduces=chunks.reduces and inward,
            after=waits,
            channel=channel,
            round=round,
        )

    def _chunks(self, collective: Collective, n: int, channels: int) -> Chunks:
        self.check(collective)
        return cut(collective, n, channels)
