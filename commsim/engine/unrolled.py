"""What was not played because it repeats (engine/recurrence.py), put back: ops, times, rounds.

Ops are numbered as if all had been played: those before a jump, all the repetitions left out, those
from the jump on, and so to the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from commsim.collectives.chunks import Ints
from commsim.collectives.schedule import Schedule
from commsim.engine.network import Floats, Laid
from commsim.engine.plan import Jump, Times


class Located(NamedTuple):
    """Of ops the played one each: its times are `early` s later, its round is `further` lower."""

    op: Ints
    early: Floats
    further: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Unrolled:
    """The numbers of `played` ops with what the jumps left out. jumps: in the order of the ops."""

    played: int
    jumps: Sequence[Jump]

    def __len__(self) -> int:
        return self.played + sum(jump.left_out for jump in self.jumps)

    def number(self, op: int) -> int:
        """Of an op that was played."""
        return op + sum(jump.left_out for jump in self.jumps if jump.first <= op)

    def locate(self, ops: Ints) -> Located:
        """The played ones."""
        found = np.asarray(ops, dtype=np.int64).copy()
        early, further = np.zeros(len(found)), np.zeros(len(found), dtype=np.int64)
        passed = []
        for jump in self.jumps:  # those before it have moved up what lies behind them
            turn, rest = np.divmod(found - jump.first, jump.ops)
            inside, turn = (turn >= 0) & (turn < jump.times), turn.clip(0, jump.times)
            early[inside] = (jump.times - turn[inside]) * jump.period
            found = np.where(
                inside, jump.first + rest, found - (turn == jump.times) * jump.left_out
            )
            passed.append(turn * jump.rounds)
        for jump, rounds in zip(self.jumps, passed, strict=True):
            further += np.where(found < jump.last, rounds, 0)
        return Located(found, early, further)


def shortened(times: Times, counts: Sequence[int]) -> Times:
    """As if each jump had left out so many repetitions; what is behind comes so much sooner."""
    sooner = np.zeros(len(times.ready))
    for jump, count in zip(times.jumps, counts, strict=True):
        sooner[jump.first :] += (jump.times - count) * jump.period
    return Times(
        ready=times.ready - sooner, begun=times.begun - sooner, sent=times.sent - sooner,
        arrived=times.arrived - sooner,
        jumps=tuple(replace(j, times=k) for j, k in zip(times.jumps, counts, strict=True)),
    )  # fmt: skip


def unrolled(laid: Laid, times: Times) -> tuple[Laid, Times]:
    """Every transfer and its times. The schedule says what waits for what, but no longer which
    chunks are moved.
    """
    every = Unrolled(played=len(laid.schedule), jumps=times.jumps)
    op, early, further = every.locate(np.arange(len(every)))
    schedule = laid.schedule
    counts = np.diff(schedule.wait_start)[op]
    start = np.concatenate([[0], np.cumsum(counts)])
    owner = np.repeat(np.arange(len(op)), counts)
    at = np.arange(start[-1]) - np.repeat(start[:-1] - schedule.wait_start[op], counts)
    nothing = np.zeros(0, dtype=np.int32)
    whole = Schedule(
        chunks=schedule.chunks, scratch=schedule.scratch, switches=schedule.switches,
        reduces=schedule.reduces[op], streams=schedule.streams[op], source=schedule.source[op],
        destination=schedule.destination[op], nbytes=schedule.nbytes[op],
        channel=schedule.channel[op], round=(schedule.round[op] + further).astype(np.int32),
        piece_start=np.zeros(len(op) + 1, dtype=np.int64), source_place=nothing,
        destination_place=nothing.copy(), length=nothing.copy(), wait_start=start,
        waits=(schedule.waits[at] + (owner - op[owner])).astype(np.int32),
    )  # fmt: skip
    return replace(laid, schedule=whole, way=laid.way[op]), Times(
        ready=times.ready[op] - early, begun=times.begun[op] - early,
        sent=times.sent[op] - early, arrived=times.arrived[op] - early,
    )  # fmt: skip
