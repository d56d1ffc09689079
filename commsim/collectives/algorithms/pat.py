"""PAT, parallel aggregated trees: every block has a binomial tree of its own, and each message
carries blocks of several trees.

all_gather starts far away with one block and ends at the neighbours, where most bytes move; so it
has Bruck's log2 n rounds, but little traffic over long distances. If a message may hold only some
blocks, as many trees are walked side by side, the neighbours' branches first, and few blocks wait
at a rank. reduce_scatter is the same backwards. NCCL's choice between nodes with one GPU each: it
wins over a ring for small buffers. Source: Jeaugey, "PAT: a new algorithm for all-gather and
reduce-scatter operations at scale", 2025, doi:10.48550/arXiv.2506.20252.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from commsim.collectives.algorithm import Algorithm, Cost
from commsim.collectives.builder import NONE, Builder
from commsim.collectives.chunks import Chunks, Ints, cut
from commsim.collectives.collective import Collective
from commsim.collectives.schedule import Schedule
from commsim.errors import CollectiveError


@dataclass(frozen=True, slots=True, kw_only=True)
class Pat(Algorithm):
    """A block comes to the rank at offset o from its own by the one bits of o, highest first. A
    message holds up to `aggregation` blocks, a power of two (None: half of them all).
    """

    aggregation: int | None = None
    operations: ClassVar[frozenset[str]] = frozenset({"all_gather", "reduce_scatter"})

    def __post_init__(self) -> None:
        most = self.aggregation
        if most is not None and (most < 1 or most & (most - 1)):
            raise CollectiveError(f"Pat: aggregation: expected a power of two, got {most}")

    def schedule(self, collective: Collective, n: int, channels: int = 1) -> Schedule:
        chunks = self._chunks(collective, n, channels)
        builder = Builder(chunks)
        rank, channel = np.divmod(np.arange(n * channels), channels)
        trees, size = self._trees(n)
        # Branches: their number and their parent's in a tree of `size` ranks, how far they are from
        # it, and at which offsets from their own ranks the blocks then are.
        far = [size << bit for bit in reversed(range(trees.bit_length() - 1))]
        branches = [(0, 0, away, np.arange(away, n, 2 * away)) for away in far]
        for branch in range(1, min(size, n)):
            away = branch & -branch
            branches.append((branch, branch - away, away, np.arange(branch, n, size)))

        outward = collective.operation == "all_gather"
        sent = np.full(n * channels, NONE)
        came: dict[int, list[Ints]] = defaultdict(list)  # per branch
        for step, (branch, parent, away, offset) in enumerate(
            branches if outward else branches[::-1]
        ):
            first, second = (parent, branch) if outward else (branch, parent)
            to = away if outward else -away
            block = rank[:, np.newaxis] - (offset - away if outward else offset)
            sent = builder.append(
                rank,
                (rank + to) % n,
                block % n * channels + channel[:, np.newaxis],
                reduces=not outward,
                after=(sent, *came[first]),
                channel=channel,
                round=step,
            )
            came[second].append(sent[(rank - to) % n * channels + channel])
        return builder.build()

    def cost(self, collective: Collective, n: int, channels: int = 1) -> Cost:
        """n - 1 blocks. Each first branch of a branch waits for the message just before; so do the
        messages by which the trees begin or end.
        """
        block = self._chunks(collective, n, channels).nbytes.reshape(n, channels).sum(axis=1).max()
        trees, size = self._trees(n)
        rounds = trees.bit_length() - 1 + min(size, n) // 2
        return Cost(rounds=rounds, nbytes=float((n - 1) * block))

    def _trees(self, n: int) -> tuple[int, int]:
        """How many trees are walked side by side, and how many ranks each has at most."""
        half = 1 << (n - 1).bit_length() - 1
        trees = half if self.aggregation is None else min(half, self.aggregation)
        return trees, 2 * half // trees

    def _chunks(self, collective: Collective, n: int, channels: int) -> Chunks:
        self.check(collective)
        return cut(collective, n, channels)
