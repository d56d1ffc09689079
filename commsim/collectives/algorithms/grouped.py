"""Grouped: a group of sends and receives with `window` peers at a time, nearest first.

What NCCL does with a group of ncclSend and ncclRecv, and so with all_to_all, gather and scatter: a
channel serves up to 8 peers at once, and a rank goes on to its next peer as soon as it is through
with one, without any barrier between rounds. It takes the peers of its own machine first, then
those of the next machine, and so on, so that every machine sends to one other at a time. Few
messages in flight keep buffers and threads few; the price is a latency per window. Source: NVIDIA,
NCCL user guide, "Point-to-point communication", and its source code, src/init.cc (p2pSchedule); the
window is that of its device code (8 sends and receives share a block's threads). NCCL takes
machines in the order 0, 1, 3, 6 ...; here it is 0, 1, 2, 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from commsim.collectives.algorithm import Algorithm, Cost
from commsim.collectives.builder import NONE, Builder
from commsim.collectives.chunks import Chunks, Ints, cut
from commsim.collectives.collective import Collective
from commsim.collectives.schedule import Schedule
from commsim.errors import CollectiveError


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouped(Algorithm):
    """A rank's k-th send is to the k-th rank after it; it waits until the rank's send and receive
    `window` before are done. Every channel carries its part of every block.

    group: ranks of a machine. In all_to_all a rank goes round its own machine, then round the next:
    the k-th rank after it is (k mod group)-th after it in the (k / group)-th machine. 0, or where
    machines would differ in size: all ranks are one.

    period: of all_to_all, only what the first `period` ranks send is built, and stands for what the
    others send, `period` ranks further on. Such a schedule can be played, not proved.
    """

    window: int = 8
    group: int = 0
    period: int = 0
    operations: ClassVar[frozenset[str]] = frozenset({"all_to_all", "gather", "scatter"})

    def __post_init__(self) -> None:
        if self.window < 1:
            raise CollectiveError(f"Grouped: window: expected at least 1 peer, got {self.window}")

    def schedule(self, collective: Collective, n: int, channels: int = 1) -> Schedule:
        chunks = self._chunks(collective, n, channels)
        builder = Builder(chunks)
        if chunks.root is None:
            if self.period:
                return self._of_period(builder, n, channels)
            shape = (n, n, channels)  # at distance 0 a rank's block for itself is copied
            step, giver, channel = (a.ravel() for a in np.indices(shape))
            taker = self._peer(giver, step, n)
            ends: tuple[ArrayLike, ArrayLike] = giver, taker
            places = taker * channels + channel, chunks.output + giver * channels + channel
            before = step - self.window
            sent = (before * n + giver) * channels + channel
            came = (before * n + self._peer(giver, before, n, -1)) * channels + channel
            after = [np.where(before >= 0, ops, NONE) for ops in (sent, came)]
        else:
            step, channel = np.divmod(np.arange((n - 1) * channels), channels)
            step += 1
            out = collective.operation == "scatter"
            other = (chunks.root + (step if out else -step)) % n
            ends = (chunks.root, other) if out else (other, chunks.root)
            places = other * channels + channel, other * channels + channel
            before = np.arange((n - 1) * channels) - self.window * channels
            after = [np.where(before >= 0, before, NONE)]
        builder.append(*ends, *places, after=after, channel=channel, round=step // self.window)
        return builder.build()

    def cost(self, collective: Collective, n: int, channels: int = 1) -> Cost:
        """n - 1 blocks, and a round for every `window` of them; scatter's root need not wait for
        arrivals, so it has one. Of an uneven all_to_all, the rank with the most to send or receive.
        """
        chunks = self._chunks(collective, n, channels)
        rounds = 1 if collective.operation == "scatter" else -(-(n - 1) // self.window)
        if chunks.root is None:
            return Cost(rounds=rounds, nbytes=float(chunks.busiest()))
        block = chunks.nbytes.reshape(n, channels).sum(axis=1)
        return Cost(rounds=rounds, nbytes=float(block.sum() - block[chunks.root]))

    def _of_period(self, builder: Builder, n: int, channels: int) -> Schedule:
        """What the first `period` ranks send, and for each an op without data at the receiver: what
        arrives at one rank is the image of what another sends, and a rank may not take the image of
        its own sending, which it knows earlier, for the arrival.
        """
        if self.period < 2 or n % self.period:
            raise CollectiveError(
                f"Grouped: period: expected a divisor of {n} ranks and at least 2, got "
                f"{self.period}"
            )
        givers, output = self.period, builder.chunks.output
        shape = (n, 2, givers, channels)
        step, there, giver, channel = (a.ravel() for a in np.indices(shape))
        lanes = givers * channels
        taker = self._peer(giver, step, n)
        before = step - self.window

        def op(step: Ints, there: Ints | int, giver: Ints) -> Ints:
            number: Ints = (2 * step + there) * lanes + giver * channels + channel
            return number

        came = op(before, 1, self._peer(giver, before, n, -1) % givers)
        waits = [op(before, 0, giver), came]
        after = [np.where((before >= 0) & (there == 0), w, NONE) for w in waits]
        after[0] = np.where(there == 1, op(step, 0, giver), after[0])
        builder.append(
            np.where(there == 1, taker, giver),
            taker,
            taker * channels + channel,
            output + giver * channels + channel,
            length=1 - there,
            after=after,
            channel=channel,
            round=step // self.window,
        )
        return builder.build()

    def _peer(self, rank: Ints, step: Ints, n: int, way: int = 1) -> Ints:
        """To whom a rank sends in a step; way -1: from whom it receives."""
        size = self.group if self.group and n % self.group == 0 else n
        machine, place = np.divmod(rank, size)
        over, along = np.divmod(step, size)
        peer: Ints = (machine + way * over) % (n // size) * size + (place + way * along) % size
        return peer

    def _chunks(self, collective: Collective, n: int, channels: int) -> Chunks:
        self.check(collective)
        return cut(collective, n, channels)
