"""How likely measured durations are, if a curve is the truth.

ln(measured / curve), in units of the spread that the model has on healthy machines nobody fitted
it to, is taken as a multivariate Student t: an offset that a whole curve shares, a part that
neighbouring sizes share, and a part of each point. The geometric mean of the spread's two sides is
the scale: on networks the wider side is the tail of a few machines, which the t distribution has,
and most machines are as close as the narrower side says. A point that stands out from both of its
neighbours, as one interrupted run does, is given the variance that it shows, so that one spike is
no verdict.

A model is wrong in its own shape, not by chance: thirty sizes do not tell ten times as much as
three. The likelihood is therefore raised to a power below 1, so that a curve counts as no more than
EFFECTIVE points (Bissiri, Holmes and Walker, "A general framework for updating belief
distributions", J. R. Stat. Soc. B 78, 2016, 10.1111/rssb.12158).
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]

QUANTILE = 1.2816
"""Standard deviations from the middle of a normal distribution to its 90 % quantile."""
FREEDOM = 3.0
"""Of the t distribution: few, for a machine in ten is far off and most are not."""
EFFECTIVE = 8.0
"""Points that a curve counts for at most. When it was chosen, of 560 published healthy logs, each
predicted without its own platform, 1 was called sick at 5, 5 at 8, 13 at 12, and some 130 where
every point counts, with equally many of the degraded ones (python -m validation.diagnosis)."""
OFFSET, SMOOTH, SINGLE = 0.2, 0.5, 0.3
"""Variances, together 1: of a whole curve, of neighbouring sizes, of a point."""
REACH = 3.0
"""Octaves over which neighbouring sizes are alike."""
LEAST = 0.05
"""Smallest scale of ln(measured / curve): no two machines are more alike."""
BLUR = 0.15
"""Deviation of ln(fault / healthy), relative: how well a fault's effect is known."""
SPIKE, SPIKES = 3.0, 0.05
"""Standard deviations of a point alone from which it is a spike; one point in twenty is one."""


def log_likelihood(
    measured: Array,
    curve: Array,
    spread: Array,
    octaves: Array,
    *,
    healthy: Array | None = None,
    slopes: Array | None = None,
    scatter: float = 0.0,
) -> float:
    """ln of the density of ln(measured), one curve in the order of its sizes, to its power.

    spread: ln of the 10 % and the 90 % quantile, a row for each point. octaves: log2 of the sizes.
    healthy: the curve without the fault, if `curve` is with one. slopes: a column for each constant
    that the curve needs and nobody knows there, d ln(curve) for one standard deviation of it; they
    are integrated over, to first order. scatter: standard deviation of ln of single points, beside
    the model's own.
    """
    residual = np.log(measured / curve)
    sides = np.maximum(np.abs(spread) / QUANTILE, LEAST)
    sides = np.minimum(sides, np.sqrt(np.prod(sides, axis=1, keepdims=True)))
    if healthy is not None:
        sides = np.hypot(sides, BLUR * np.log(curve / healthy)[:, None])
    side = np.where(residual < 0, sides[:, 0], sides[:, 1])
    z = residual / side
    own = SINGLE + (scatter / side) ** 2
    alone = _alone(z) / (SPIKE * np.sqrt(own))
    spikes = alone > 1
    single = own * np.where(spikes, alone, 1.0) ** 2
    apart = (octaves[:, None] - octaves[None, :]) / REACH
    covariance = OFFSET + SMOOTH * np.exp(-0.5 * apart**2) + np.diag(single)
    if slopes is not None:
        moved = slopes / side[:, None]
        covariance = covariance + moved @ moved.T
    factor = np.linalg.cholesky(covariance)
    quadratic = float(np.sum(np.linalg.solve(factor, z) ** 2))
    n = len(z)
    density = (
        math.lgamma((FREEDOM + n) / 2) - math.lgamma(FREEDOM / 2)
        - n / 2 * math.log(FREEDOM * math.pi)
        - np.sum(np.log(np.diag(factor)))
        - np.sum(np.log(np.mean(sides, axis=1)))  # two halves of unlike width: one area
        - (FREEDOM + n) / 2 * math.log1p(quadratic / FREEDOM)
        + np.sum(np.where(spikes, math.log(SPIKES), math.log(1 - SPIKES)))
    )  # fmt: skip
    return float(min(1.0, EFFECTIVE / n) * density)


def _alone(z: Array) -> Array:
    """How far each point stands out from the median of itself and its neighbours."""
    if len(z) < 3:
        return np.zeros(len(z))
    inner = np.median(np.stack([z[:-2], z[1:-1], z[2:]]), axis=0)
    middle: Array = np.concatenate([[z[1]], inner, [z[-2]]])
    return np.asarray(np.abs(z - middle))
