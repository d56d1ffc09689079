"""What each flow gets when flows share links max-min fairly: no flow can gain without one that has
no more losing. The readable solver; compiled.py solves the same step by step as flows come and go.

Bertsekas and Gallager, "Data Networks", 2nd ed., 1992, section 6.5.2 (progressive filling).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from commsim.engine.network import Floats

Ints = NDArray[np.int64]


def max_min_rates(
    flow: Ints, link: Ints, weight: Floats, capacity: Floats, limit: Floats, share: Floats
) -> Floats:
    """Every flow's rate in bytes/s.

    Flow `flow[i]` puts `weight[i]` bytes on link `link[i]` for each byte of its own; `capacity` is
    per link, `limit` per flow (inf: none). A flow stands for `share` equal ones, and so rises that
    much faster. All unfrozen flows rise together until a link is full or a flow at its limit; those
    freeze, the others rise on. A flow without links or limit gets inf.
    """
    rates = np.zeros(len(limit))
    free = np.ones(len(limit), dtype=np.bool_)
    while free.any():
        rising = np.bincount(link, weights=(weight * (share * free)[flow]), minlength=len(capacity))
        used = np.bincount(
            link, weights=weight * np.where(free, 0.0, rates)[flow], minlength=len(capacity)
        )
        left = np.maximum(capacity - used, 0.0)
        level = np.where(rising > 0, left / np.where(rising > 0, rising, 1.0), np.inf)
        reached = min(level.min(initial=np.inf), (limit / share)[free].min())
        stopped = free & (limit / share <= reached)
        full = level <= reached * (1 + 1e-12)
        stopped[flow[full[link] & (weight > 0)]] = True
        stopped &= free
        if np.isinf(reached):
            stopped = free
        rates[stopped] = np.minimum(limit[stopped], reached * share[stopped])
        free &= ~stopped
    return rates
