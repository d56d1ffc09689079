"""NVLS: the NVLink switch adds what the ranks send up, and copies each rank's result to all.

Rank h owns slice h: it loads the slice summed over all ranks, and stores it to all, each as one
transfer through the switch. A rank so sends and receives S + S/n in all_reduce, where a ring needs
2 S (n-1)/n, in as few hops as a single exchange: it wins from medium sizes on. Sources: Klenk,
Jiang, Thorson and Dennison, "An in-network architecture for accelerating shared-memory
multiprocessor collectives", ISCA 2020, doi:10.1109/ISCA45697.2020.00085.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from commsim.collectives.algorithm import Algorithm, Cost
from commsim.collectives.collective import Collective
from commsim.collectives.in_switch import InSwitch
from commsim.collectives.schedule import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Nvls(Algorithm):
    """One switch, vertex n; each channel sends `pieces` pieces, so that its legs overlap."""

    pieces: int = 4
    operations: ClassVar[frozenset[str]] = InSwitch.operations

    def schedule(self, collective: Collective, n: int, channels: int = 1) -> Schedule:
        self.check(collective)
        return InSwitch(owners=True, pieces=self.pieces).schedule(collective, n, channels)

    def cost(self, collective: Collective, n: int, channels: int = 1) -> Cost:
        """2 rounds and (1 + 1/pieces) (S + S/n) for all_reduce, 1 round and S + S/n/pieces for its
        halves; all_reduce in several pieces only about so.
        """
        self.check(collective)
        return InSwitch(owners=True, pieces=self.pieces).cost(collective, n, channels)
