"""Double binary tree: half of the data over one tree, half over another, whose leaves are inner
in the first.

log2 n hops up and down, and no rank idle: every rank passes on about as much as in a ring. It wins
for middle sizes and many ranks. Source: Sanders, Speck and Träff, "Two-tree algorithms for full
bandwidth broadcast, reduction and scan", Parallel Computing 35(12), 2009,
doi:10.1016/j.parco.2009.09.001; the trees are NCCL's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from commsim.collectives.algorithm import Algorithm, Cost
from commsim.collectives.builder import NONE
from commsim.collectives.chunks import Chunks, Ints, cut
from commsim.collectives.collective import Collective
from commsim.collectives.double_tree import double_tree
from commsim.collectives.schedule import Schedule
from commsim.collectives.trees import tree_cost, tree_schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class DoubleBinaryTree(Algorithm):
    """Even channels take the first tree, odd ones the second, so it needs two for its full speed.

    Each channel sends `pieces` pieces; a connection holds `slots` of them (None: any number). In
    broadcast and reduce the root stands above two trees of all other ranks.
    """

    pieces: int = 4
    slots: int | None = None
    operations: ClassVar[frozenset[str]] = frozenset(
        {"all_reduce", "barrier", "broadcast", "reduce"}
    )
    ideal: ClassVar[str] = "pairs"

    def schedule(self, collective: Collective, n: int, channels: int = 1) -> Schedule:
        chunks = self._chunks(collective, n, channels)
        return tree_schedule(chunks, _parents(chunks, channels), self.slots)

    def cost(self, collective: Collective, n: int, channels: int = 1) -> Cost:
        """A piece on each of 2 log2 n hops (broadcast and reduce: half of them) and the other
        pieces behind it; neglects the wait for slots, and what the trees do to one another where
        they share a link.
        """
        chunks = self._chunks(collective, n, channels)
        cost = tree_cost(chunks, _parents(chunks, channels))
        return replace(cost, exact=cost.exact and self.slots is None)

    def _chunks(self, collective: Collective, n: int, channels: int) -> Chunks:
        self.check(collective)
        return cut(collective, n, channels * self.pieces)


def _parents(chunks: Chunks, channels: int) -> Ints:
    """Every rank's parent per channel."""
    n, root = chunks.n, chunks.root
    inside = n if root is None else n - 1
    first = 0 if root is None else root + 1
    places = [double_tree(inside, i) for i in range(inside)]
    up = np.array([[place[tree].up for place in places] for tree in (0, 1)], dtype=np.int64)
    parents = np.full((2, n), NONE)
    top = NONE if root is None else root
    parents[:, (first + np.arange(inside)) % n] = np.where(up < 0, top, (first + up) % n)
    return parents[np.arange(channels) % 2]
