"""Constants from measurements: robust least squares on ln(duration), with priors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import OptimizeResult, minimize
from scipy.sparse import diags

from commsim.calibration.batch import Array, Parameters, Placed, derivatives, durations

NOISE = 0.08
"""Scale of ln(predicted / measured) below which a residual counts squared, above which linearly:
what formulas with the right constants still miss."""
NEAR = 0.1
"""Length of the first step, in standard deviations of the priors: from there it grows, so that the
fit ends in the valley in which the knowledge that it starts from lies."""
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

    A trust region around Gauss and Newton's steps (More and Sorensen, SIAM J. Sci. Stat. Comput. 4,
    1983, doi:10.1137/0904038), entries counted in their sd: what is solved at each step is as large
    as the vector, however many points there are. `steps` at most, until one gains less than
    `tolerance` of the sum.
    """
    mean, sd, n = np.array(p.mean), np.array(p.sd), len(measured)
    sum_of = _Sum(p, points, np.log(measured), weight)
    value = math.inf

    def watch(intermediate_result: OptimizeResult) -> None:
        nonlocal value
        before, value = value, min(value, intermediate_result.fun)
        if 0 < before - value < tolerance * before:
            raise StopIteration

    found = minimize(
        sum_of.value,
        np.zeros(len(mean)) if start is None else (start - mean) / sd,
        jac=sum_of.slope,
        hess=sum_of.curvature,
        method="trust-exact",
        callback=watch,
        options={"maxiter": steps, "initial_trust_radius": NEAR},
    )
    theta = mean + sd * found.x
    spread = np.linalg.inv(sum_of.curvature(found.x))  # the priors make it regular
    return Solution(
        theta=theta, error=sd * np.sqrt(np.diag(spread)), durations=durations(theta, p, points, n)
    )


class _Sum:
    """Half the sum of squares, its slope and its curvature, over z = (vector - mean) / sd."""

    def __init__(
        self, p: Parameters, points: Sequence[Placed], wanted: Array, weight: Array
    ) -> None:
        self.p, self.points, self.wanted, self.weight = p, points, wanted, weight
        self.mean, self.sd = np.array(p.mean), np.array(p.sd)
        self.at = np.full(len(self.mean), np.nan)
        self.both: tuple[Array, Array] = (self.at, self.at)

    def off(self, logs: Array) -> Array:
        far = _FAR
        return np.asarray(np.nan_to_num(logs - self.wanted, nan=far, posinf=far, neginf=-far))

    def value(self, z: Array) -> float:
        with np.errstate(all="ignore"):
            found = durations(self.mean + self.sd * z, self.p, self.points, len(self.wanted))
            r = robust(self.off(np.log(found))) * self.weight
        return float(r @ r + z @ z) / 2

    def slope(self, z: Array) -> Array:
        return self._derived(z)[0]

    def curvature(self, z: Array) -> Array:
        return self._derived(z)[1]

    def _derived(self, z: Array) -> tuple[Array, Array]:
        if not np.array_equal(z, self.at):
            with np.errstate(all="ignore"):
                logs, slopes = derivatives(
                    self.mean + self.sd * z, self.p, self.points, len(self.wanted)
                )
            off = self.off(logs)
            scaled = diags(robust_slope(off) * self.weight) @ slopes @ diags(self.sd)
            slope = scaled.T @ (robust(off) * self.weight) + z
            curvature = (scaled.T @ scaled).toarray() + np.eye(len(z))
            self.at, self.both = z.copy(), (slope, curvature)
        return self.both
