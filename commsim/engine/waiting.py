"""Where each rank's time in a collective went: moving data, or waiting, and for whose sake."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from commsim.engine.network import Floats
from commsim.engine.plan import INSTANT
from commsim.engine.played import Played
from commsim.errors import ConditionError
from commsim.units import Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTime:
    """One rank's time from `arrival`, when it took part, to `end`, when its last op was over.

    transferring: some transfer of its own was under way. late: it waited, and would not have if all
    ranks had been punctual. waiting: it waited as it would have then too. The three fill the time.
    A rank that never comes to its end has infinite ones.
    """

    rank: int
    arrival: Seconds
    end: Seconds
    transferring: Seconds
    late: Seconds
    waiting: Seconds


def split_time(played: Played, punctual: Played) -> tuple[RankTime, ...]:
    """Every rank's time in a collective, by comparison with the same one played with all ranks in
    time. Ranks that others stand for are left out.

    What lateness does to contention shows in `transferring`, not in `late`.
    """
    if played.ranks != punctual.ranks:
        raise ConditionError(
            f"split_time: expected one collective played twice, got ranks {played.ranks} and "
            f"{punctual.ranks}"
        )
    if (played.taking_part[: played.n] & ~punctual.taking_part[: played.n]).any():
        raise ConditionError(
            "split_time: in the punctual collective some ranks stand for others; play it with "
            "fold=False"
        )
    waited, anyhow = _waited(played), _waited(punctual)
    longer = waited > anyhow + _instant(played)
    there = np.flatnonzero(played.taking_part[: played.n])
    return tuple(
        RankTime(
            rank=played.ranks[p],
            arrival=float(played.joined[p]),
            end=float(played.finished[p]),
            transferring=float(played.transferring[p]),
            late=float(waited[p] - anyhow[p]) if longer[p] else 0.0,
            waiting=float(min(waited[p], anyhow[p])),
        )
        for p in there.tolist()
    )


def _waited(played: Played) -> Floats:
    """Per vertex, s in which nothing of its own was under way."""
    ends = np.isfinite(played.finished)
    passed = np.where(ends, played.finished, 0.0) - np.where(ends, played.joined, 0.0)
    waited = passed - played.transferring
    return np.where(ends, np.where(waited > _instant(played), waited, 0.0), np.inf)


def _instant(played: Played) -> Floats:
    """Per vertex, s that are no more than what rounding leaves of equal times."""
    return INSTANT * np.where(np.isfinite(played.finished), played.finished, 0.0)
