"""CollNet: every rank of a node heads a share of the buffer, and the network's switches add it up.

What NCCL calls CollNet direct: a reduce-scatter among the ranks of a node, each share once to a
switch of its rail that sums over the nodes and copies the sum back, and an all-gather in the node.
The network carries S/group per rank each way, half of what a ring needs, in one hop however many
nodes there are. Source: Graham et al., "Scalable hierarchical aggregation protocol (SHArP): a
hardware architecture for efficient data reduction", COMHPC 2016, doi:10.1109/COMHPC.2016.006.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from commsim.collectives.algorithm import Algorithm, Cost
from commsim.collectives.collective import Collective
from commsim.collectives.in_switch import InSwitch
from commsim.collectives.schedule import Schedule
from commsim.collectives.two_level import OPERATIONS, TwoLevel, divisor, named


@dataclass(frozen=True, slots=True, kw_only=True)
class CollNet(Algorithm):
    """Nodes of `group` ranks, or as many of them as divide all ranks evenly; one switch vertex per
    rail. The buffer goes in `pieces`, so that node and network work at once.
    """

    group: int = 8
    pieces: int = 4
    operations: ClassVar[frozenset[str]] = OPERATIONS

    def schedule(self, collective: Collective, n: int, channels: int = 1) -> Schedule:
        self.check(collective)
        if (size := divisor(n, self.group)) == 1:
            return self._alone.schedule(collective, n, channels)
        return self._levels(size).schedule(collective, n, channels)

    def cost(self, collective: Collective, n: int, channels: int = 1) -> Cost:
        """Both exchanges in the node and both legs through the switch, where all pieces but one
        spend the shorter leg beside others on the longer: with nodes of g ranks 3 rounds and
        S (2 (g-1)/g + (1 + 1/pieces)/g) for all_reduce. Neglects what pieces gain by overlap with
        the latency.
        """
        self.check(collective)
        if (size := divisor(n, self.group)) == 1:
            return self._alone.cost(collective, n, channels)
        apart = self._levels(size).cost(collective, n)
        if n == size or collective.operation == "barrier":
            return apart
        shorter = collective.nbytes / (size if collective.operation == "all_reduce" else n)
        return replace(apart, nbytes=apart.nbytes - (1 - 1 / self.pieces) * shorter)

    @property
    def _alone(self) -> Algorithm:
        """What is left where no node has two ranks."""
        return InSwitch(owners=False, pieces=self.pieces)

    def _levels(self, size: int) -> TwoLevel:
        return TwoLevel(
            size=size, inside=named("direct"), across=InSwitch(owners=False), pieces=self.pieces
        )
