"""From when ranks began and ended to how long it took, and what is said of many runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from commsim.units import Seconds

Times = npt.NDArray[np.float64]


def isolated(starts: Times, ends: Times) -> tuple[Times, Times]:
    """Seconds that each run took, and by how much its ranks began apart; rows are ranks.

    A run lasts from when the last rank has come until the last has done its part: what the others
    waited for it is its lateness, not the operation's.
    """
    last = starts.max(axis=0)
    return ends.max(axis=0) - last, last - starts.min(axis=0)


def waiting(starts: Times) -> list[Seconds]:
    """How long each rank waited for the last one, s: the median over the runs."""
    return [float(w) for w in np.median(starts.max(axis=0) - starts, axis=1)]


def looped(durations: Times) -> tuple[Times, Times]:
    """Seconds of each run in a loop, as nccl-tests counts them: the mean of the ranks; and by how
    much the ranks differ."""
    return durations.mean(axis=0), durations.max(axis=0) - durations.min(axis=0)


def summary(samples: Sequence[Seconds] | Times) -> dict[str, Any]:
    """What is said of the samples, s: the median is the duration, as outliers do not move it."""
    found = np.asarray(samples, np.float64)
    low, middle, high = np.quantile(found, (0.25, 0.5, 0.75))
    return {
        "duration_s": float(middle),
        "quartiles_s": [float(low), float(high)],
        "mean_s": float(found.mean()),
        "min_s": float(found.min()),
        "max_s": float(found.max()),
        "samples_s": [float(s) for s in found],
    }


def overlapped(
    mine: Sequence[tuple[Seconds, Seconds]], others: Sequence[tuple[Seconds, Seconds]]
) -> list[Seconds]:
    """Durations of those of mine that lie within the time in which the others ran."""
    if not others:
        return []
    begin, end = others[0][0], others[-1][1]
    return [b - a for a, b in mine if a >= begin and b <= end]
