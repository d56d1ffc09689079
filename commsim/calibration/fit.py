"""Constants from measurements: robust least squares on ln(duration), with priors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares
from scipy.sparse import csr_matrix, diags, vstack

from commsim.calibration.batch import Array, Parameters, Placed, derivatives, durations

NOISE = 0.08
"""Scale of ln(predicted / measured) below which a residual counts squared, above which linearly:
what formulas with the right constants still miss."""
_FAR = 10.0  # ln of a ratio that stands for a time that is none


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Solution:
    """theta: the vector. error: standard error of each entry. durations: s of every point."""

    theta: Array
    error: Array
    durations: Array


def robust(r: Array, noise: float = NOISE) -> Array:
    """Residuals whose squares grow as squares below `noise` and linearly above: sqrt(2 (sqrt(1 +
    (r/noise)^2) - 1)), scipy's soft_l1."""
    z = (r / noise) ** 2
    return np.asarray(np.sign(r) * np.sqrt(2 * (np.sqrt(1 + z) - 1)))


def robust_slope(r: Array, noise: float = NOISE) -> Array:
    """The derivative of `robust`."""
    z = (r / noise) ** 2
    small = np.abs(r) < 1e-4 * noise
    at = np.where(small, 1.0, r)
    slope = at / (noise**2 * np.sqrt(1 + z) * np.where(small, 1.0, robust(at, noise)))
    return np.where(small, 1 / noise, slope)


def solve(
    p: Parameters,
    points: Sequence[Placed],
    measured: Array,
    weight: Array,
    start: Array | None = None,
    steps: int = 60,
    tolerance: float = 1e-5,
) -> Solution:
    """The vector that minimises, over all entries, the sum of robust(ln(duration / measured))^2 by
    `weight`^2 plus ((entry - mean) / sd)^2. A point of weight 0 has no say.

    `steps` at most, until one gains less than `tolerance` of the sum.
    """
    mean, sd, n = np.array(p.mean), np.array(p.sd), len(measured)
    wanted = np.log(measured)

    def off(logs: Array) -> Array:
        return np.asarray(np.nan_to_num(logs - wanted, nan=_FAR, posinf=_FAR, neginf=-_FAR))

    def residuals(theta: Array) -> Array:
        with np.errstate(all="ignore"):
            r = off(np.log(durations(theta, p, points, n)))
        return np.concatenate([robust(r) * weight, (theta - mean) / sd])

    def jacobian(theta: Array) -> csr_matrix:
        with np.errstate(all="ignore"):
            logs, slopes = derivatives(theta, p, points, n)
        scale = robust_slope(off(logs)) * weight
        return vstack([diags(scale) @ slopes, diags(1 / sd)], format="csr")

    found = least_squares(
        residuals,
        mean if start is None else start,
        jac=jacobian,
        max_nfev=steps,
        x_scale=sd,
        ftol=tolerance,
        xtol=1e-5,
        tr_solver="lsmr",
        tr_options={"atol": 1e-8, "btol": 1e-8},
    )
    normal = (found.jac.T @ found.jac).toarray()
    return Solution(
        theta=found.x,
        error=np.sqrt(np.diag(np.linalg.inv(normal))),  # the priors make it regular
        durations=durations(found.x, p, points, n),
    )
