"""NVLS tree: the switch of every node sums and copies, double binary trees join the nodes.

Every rank heads a share: it takes its node's sum of it from the switch, adds it up the trees of its
rail and down again, half over each, and hands the result back to the switch for all. A rank moves
S + S/group over NVLink and at most 2 S/group over the network, in 2 log2 of the number of nodes
hops: it wins over rings on many nodes. Sources: Klenk, Jiang, Thorson and Dennison, "An in-network
architecture for accelerating shared-memory multiprocessor collectives", ISCA 2020,
doi:10.1109/ISCA45697.2020.00085; Sanders, Speck and Träff, "Two-tree algorithms for full bandwidth
broadcast, reduction and scan", Parallel Computing 35(12), 2009, doi:10.1016/j.parco.2009.09.001.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from commsim.collectives.algorithm import Algorithm, Cost
from commsim.collectives.chunks import Ints, cut
from commsim.collectives.collective import Collective
from commsim.collectives.double_tree import double_tree
from commsim.collectives.in_switch import InSwitch
from commsim.collectives.schedule import Schedule
from commsim.collectives.trees import depths, tree_schedule
from commsim.collectives.two_level import TwoLevel, divisor


@dataclass(frozen=True, slots=True, kw_only=True)
class NvlsTree(Algorithm):
    """Nodes of `group` ranks and a switch, or as many of them as divide all ranks evenly. The
    buffer goes in `pieces`, so that switches and trees work at once.
    """

    group: int = 8
    pieces: int = 4
    operations: ClassVar[frozenset[str]] = frozenset({"all_reduce", "barrier"})

    def schedule(self, collective: Collective, n: int, channels: int = 1) -> Schedule:
        self.check(collective)
        if (size := divisor(n, self.group)) > 1:
            levels = TwoLevel(
                size=size,
                inside=InSwitch(owners=True),
                across=replace(self, group=1, pieces=1),
                pieces=self.pieces,
            )
            return levels.schedule(collective, n, channels)
        chunks = cut(collective, n, channels * 2 * self.pieces)
        trees = tree_schedule(chunks, np.tile(_parents(n), (channels, 1)))
        return replace(trees, channel=trees.channel // 2)

    def cost(self, collective: Collective, n: int, channels: int = 1) -> Cost:
        """2 rounds through the switches and 2 for each level of the trees; the bytes of one piece
        on all of these, and of the others through the busiest port, S (1 + 3/group) in all.
        Neglects how legs and trees delay one another on a port.
        """
        self.check(collective)
        size = divisor(n, self.group)
        total = 0 if collective.operation == "barrier" else collective.nbytes
        share, switched = total / size, total * (1 + 1 / size) * (size > 1)
        levels, most = 0, 0.0
        if size < n:
            parents = _parents(n // size)
            levels = int(depths(parents).max())
            sent = (parents >= 0).sum(axis=0) + np.bincount(
                parents[parents >= 0], minlength=n // size
            )
            most = sent.max() / 2  # each tree carries half
        first = 2 * switched + 2 * levels * share
        others = switched + most * share
        return Cost(
            rounds=2 * (size > 1) + 2 * levels,
            nbytes=(first + (self.pieces - 1) * others) / self.pieces,
            exact=False,
        )


def _parents(n: int) -> Ints:
    """Every rank's parent in both trees, -1 at the roots: [tree, rank]."""
    places = [double_tree(n, i) for i in range(n)]
    return np.array([[place[tree].up for place in places] for tree in (0, 1)], dtype=np.int64)
