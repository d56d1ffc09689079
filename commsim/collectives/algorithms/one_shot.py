"""One shot: every rank sends its whole buffer to all others at once, and each adds up what it got.

One round, for n - 1 times the buffer: the fastest all_reduce for the few kilobytes of a decoding
step inside one NVLink domain, and the worst for anything large. broadcast and reduce are the root's
part of it. Sources: Chan, Heimlich, Purkayastha and van de Geijn, "Collective communication:
theory, practice, and experience", CCPE 19(13), 2007, doi:10.1002/cpe.1206 (the minimum of rounds);
the "one-shot" kernels of TensorRT-LLM's and vLLM's custom all_reduce.
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
class OneShot(Algorithm):
    """Rank p gives first to p + 1, then to p + 2, and so on; what arrives waits in scratch."""

    operations: ClassVar[frozenset[str]] = frozenset(
        {"all_reduce", "barrier", "broadcast", "reduce"}
    )

    def schedule(self, collective: Collective, n: int, channels: int = 1) -> Schedule:
        chunks = self._chunks(collective, n, channels)
        if chunks.root is not None:
            builder = Builder(chunks)
            distance, channel = np.divmod(np.arange((n - 1) * channels), channels)
            root, others = chunks.root, (chunks.root + distance + 1) % n
            summing = collective.operation == "reduce"
            giver, taker = (others, root) if summing else (root, others)
            builder.append(giver, taker, channel, reduces=summing, channel=channel)
            return builder.build()
        builder = Builder(chunks, scratch=(n - 1) * channels)
        shape = (n - 1, n, channels)
        step, giver, channel = (a.ravel() for a in np.indices(shape))
        scratch = chunks.places + step * channels + channel
        taker = (giver + step + 1) % n
        sent = builder.append(giver, taker, channel, scratch, channel=channel).reshape(shape)
        # A rank's buffer may change only when all its sends have left.
        waits = [sent[k] for k in range(n - 1)]
        waits += [np.roll(sent[k], k + 1, axis=0) for k in range(n - 1)]
        position, channel = np.divmod(np.arange(n * channels), channels)
        builder.append(
            position,
            position,
            chunks.places + channel[:, np.newaxis] + np.arange(n - 1) * channels,
            channel[:, np.newaxis],
            reduces=True,
            after=[ops.ravel() for ops in waits],
            channel=channel,
            round=1,
        )
        return builder.build()

    def cost(self, collective: Collective, n: int, channels: int = 1) -> Cost:
        """One round of n - 1 buffers; the sums are local and take no round."""
        total = self._chunks(collective, n, channels).nbytes.sum()
        return Cost(rounds=1, nbytes=float((n - 1) * total))

    def _chunks(self, collective: Collective, n: int, channels: int) -> Chunks:
        self.check(collective)
        return cut(collective, n, channels)
