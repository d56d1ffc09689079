"""Sums and copies inside a switch: the ranks send up, the switch adds, and copies down to all.

A piece passes up to four legs of half a latency each: `up` from every rank, summed on arrival;
`own`, the sum of each slice to the rank that owns it; `back`, a slice from its owner; `down`, the
copies. Pieces follow one another leg by leg.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from commsim.collectives.algorithm import Algorithm, Cost
from commsim.collectives.builder import NONE, Builder
from commsim.collectives.chunks import Chunks, Ints, cut
from commsim.collectives.collective import REDUCTIONS, Collective
from commsim.collectives.schedule import Schedule

SPREADING = frozenset({"all_gather", "all_reduce", "barrier", "broadcast"})
SPLIT = frozenset({"all_gather", "reduce_scatter"})


@dataclass(frozen=True, slots=True, kw_only=True)
class InSwitch(Algorithm):
    """One switch, vertex n; each channel sends `pieces` pieces.

    owners: in all_reduce the sum of slice h visits rank h on its way; otherwise the switch copies
    the sum down at once. Elsewhere every rank owns its block, or the root everything.
    """

    owners: bool
    pieces: int = 1
    operations: ClassVar[frozenset[str]] = SPREADING | REDUCTIONS

    def schedule(self, collective: Collective, n: int, channels: int = 1) -> Schedule:
        pieces = self.pieces
        reduces, spreads, owned = self._legs(collective)
        chunks = self._chunks(collective, n, channels)
        builder = Builder(chunks, switches=1)
        rank, channel = np.divmod(np.arange(n * channels), channels)
        owner = np.arange(n) if chunks.root is None else np.array([chunks.root])
        owner, lane = np.repeat(owner, channels), np.tile(np.arange(channels), len(owner))
        up, down = np.full((2, len(rank)), NONE)
        own, back = np.full((2, len(owner)), NONE)

        def all_there(ops: Ints, step: int) -> Ints:
            """Per channel an op without data that waits for all ranks': n waits, not n * n."""
            came = list(ops.reshape(-1, channels))
            return builder.append(
                n, n, 0, length=0, after=came, channel=np.arange(channels), round=step
            )

        for piece in range(pieces):
            all_lanes, own_lanes = channel * pieces + piece, lane * pieces + piece
            if collective.operation in SPLIT:
                every, length = np.arange(n) * chunks.parts + all_lanes[:, np.newaxis], 1
                mine = owner * chunks.parts + own_lanes
            else:
                length = chunks.parts // (channels * pieces)
                every = all_lanes * length
                mine = own_lanes * length + (owner if length > 1 else 0)
            if reduces:
                up = builder.append(
                    rank, n, every, length=length, reduces=True, after=(up,),
                    channel=channel, round=piece,
                )  # fmt: skip
                ready = all_there(up, piece + 1)
            if reduces and owned:
                own = builder.append(
                    n, owner, mine, after=(ready[lane], own), channel=lane, round=piece + 2
                )
            if spreads and owned:
                back = builder.append(
                    owner, n, mine, after=(own, back), channel=lane, round=piece + 3
                )
                ready = all_there(back, piece + 4)
            if spreads:
                down = builder.append(
                    n, rank, every, length=length, after=(ready[channel], down),
                    channel=channel, round=piece + 5,
                )  # fmt: skip
        return builder.build()

    def cost(self, collective: Collective, n: int, channels: int = 1) -> Cost:
        """Half a latency per leg; the bytes of one piece on all its legs, and of the others on the
        busiest port. Where an owner's port carries two legs at once, `up` and `back`, they delay
        one another by amounts that depend on the latency, which this neglects.
        """
        pieces = self.pieces
        reduces, spreads, owned = self._legs(collective)
        chunks = self._chunks(collective, n, channels)
        by_piece = (
            chunks.nbytes.reshape(n, channels, pieces).sum(axis=1)
            if collective.operation in SPLIT
            else chunks.nbytes.reshape(channels, pieces, -1).sum(axis=0).T
        )  # [slice, piece]
        whole, mine = float(by_piece.sum(axis=0).max()), float(by_piece.max())
        legs, sharing = reduces * (1 + owned) + spreads * (1 + owned), owned and reduces and spreads
        first = (reduces + spreads) * (whole + owned * mine)
        other = whole + mine if sharing else whole
        return Cost(
            rounds=legs / 2, nbytes=first + (pieces - 1) * other, exact=pieces == 1 or not sharing
        )

    def _legs(self, collective: Collective) -> tuple[bool, bool, bool]:
        """Whether ranks send up, the switch copies down, owners take and give back between."""
        self.check(collective)
        reduces, spreads = collective.operation in REDUCTIONS, collective.operation in SPREADING
        return reduces, spreads, self.owners or not (reduces and spreads)

    def _chunks(self, collective: Collective, n: int, channels: int) -> Chunks:
        sliced = self.owners and collective.operation in ("all_reduce", "barrier")
        return cut(collective, n, channels * self.pieces * (n if sliced else 1))
