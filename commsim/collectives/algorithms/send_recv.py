"""Send and receive: one message per rank to the next one, or a single one from the root.

All messages travel at once and none waits, so the answer is Hockney's straight line: a latency and
the bytes. It is what a pipeline stage, or a ring of attention blocks, does between two
computations. Source: Hockney, "The communication challenge for MPP: Intel Paragon and Meiko CS-2",
Parallel Computing 20(3), 1994, doi:10.1016/S0167-8191(06)80021-9.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from commsim.collectives.algorithm import Algorithm, Cost
from commsim.collectives.builder import Builder
from commsim.collectives.chunks import Chunks, cut
from commsim.collectives.collective import Collective
from commsim.collectives.schedule import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class SendRecv(Algorithm):
    """A shift by one position, or with a root its message to the other rank."""

    operations: ClassVar[frozenset[str]] = frozenset({"send_recv"})

    def schedule(self, collective: Collective, n: int, channels: int = 1) -> Schedule:
        chunks = self._chunks(collective, n, channels)
        builder = Builder(chunks)
        giver = np.arange(n) if chunks.root is None else np.array([chunks.root])
        giver, channel = np.repeat(giver, channels), np.tile(np.arange(channels), len(giver))
        builder.append(giver, (giver + 1) % n, channel, chunks.output + channel, channel=channel)
        return builder.build()

    def cost(self, collective: Collective, n: int, channels: int = 1) -> Cost:
        """One round of the message."""
        nbytes = self._chunks(collective, n, channels).nbytes[:channels].sum()
        return Cost(rounds=1, nbytes=float(nbytes))

    def _chunks(self, collective: Collective, n: int, channels: int) -> Chunks:
        self.check(collective)
        return cut(collective, n, channels)
