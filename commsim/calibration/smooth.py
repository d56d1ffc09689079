"""What formulas with a machine's own constants still miss, as a smooth function of the size.

    r = f(ln size) + noise,   f = shared + own

For each hardware, operation, algorithm and protocol, r = ln(measured / formula) is taken for a
Gaussian process (Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, chapter 2)
with a Matern 3/2 kernel over ln(size): it follows the measurements where there are some and fades
within a factor of e^LENGTH of them. `shared` is what all groups of ranks have in common and what a
group that was not measured gets; `own` is a group's. f is kept at SIZES and linear between them.
Noise has heavy tails (Student's t), so that a lone spike bends nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from commsim.calibration.batch import Array, Rows
from commsim.cost.calibrated import Case, Correction

SIZES = tuple(8 * 4**step for step in range(17))
"""Bytes at which a correction is kept: 8 B to 32 GiB."""
LENGTH = 3.0
"""Over which ln(size) it fades: a factor of 20."""
HEIGHT = 0.15
"""Its standard deviation where nothing was measured, ln."""
SHARED = 0.5
"""Share of its variance that all groups of ranks have in common."""
NOISE = 0.03
"""Scatter of one measured point, ln."""
TAILS = 4.0
"""Degrees of freedom of the noise: the fewer, the less an outlier says."""
_FIRST = 0.1  # scatter assumed while outliers are not known yet
_ROUNDS = 5
_LN_SIZES = np.log(SIZES)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Smooth:
    """ln factors at SIZES with standard errors, by case; ranks and nodes 0: shared by all."""

    logs: dict[Case, Array]
    errors: dict[Case, Array]

    def at(self, cases: Sequence[Case], nbytes: Array) -> Array:
        """ln factors of points; 0 where nothing is known."""
        known = [self.logs.get(c, self.logs.get(_shared(c))) for c in cases]
        x = np.log(np.maximum(nbytes, 1.0))
        return np.array(
            [
                0.0 if logs is None else np.interp(at, _LN_SIZES, logs)
                for logs, at in zip(known, x, strict=True)
            ]
        )

    def corrections(self) -> tuple[Correction, ...]:
        """The same as a profile keeps them."""
        return tuple(
            Correction(
                hardware=case.hardware, operation=case.operation, algorithm=case.algorithm,
                protocol=case.protocol, ranks=case.ranks, nodes=case.nodes, sizes=SIZES,
                logs=tuple(map(float, logs)), errors=tuple(map(float, self.errors[case])),
            )
            for case, logs in self.logs.items()
        )  # fmt: skip


def _shared(case: Case) -> Case:
    return Case(
        hardware=case.hardware, operation=case.operation, algorithm=case.algorithm,
        protocol=case.protocol, ranks=0, nodes=0,
    )  # fmt: skip


def smooth(cases: Sequence[Case], nbytes: Array, off: Array, use: NDArray[np.bool_]) -> Smooth:
    """f of every kind of case, from the points in `use`. off: ln(measured / formula) of each."""
    kinds: dict[Case, dict[Case, list[int]]] = defaultdict(lambda: defaultdict(list))
    for i in map(int, np.flatnonzero(use & (nbytes > 0))):
        kinds[_shared(cases[i])][cases[i]].append(i)
    logs: dict[Case, Array] = {}
    errors: dict[Case, Array] = {}
    for kind, groups in kinds.items():
        rows = np.array([i for mine in groups.values() for i in mine])
        starts = np.cumsum([0, *(len(mine) for mine in groups.values())])[:-1]
        means, spreads = _posterior(starts, nbytes[rows], off[rows])
        for case, mean, error in zip((kind, *groups), means, spreads, strict=True):
            logs[case], errors[case] = mean, error
    return Smooth(logs=logs, errors=errors)


@lru_cache(maxsize=1)
def _kernel() -> Array:
    """Matern 3/2 between SIZES: (1 + s) e^-s, s = sqrt(3) |ln a - ln b| / LENGTH."""
    s = np.sqrt(3) * np.abs(_LN_SIZES[:, None] - _LN_SIZES[None, :]) / LENGTH
    return np.asarray(HEIGHT**2 * (1 + s) * np.exp(-s))


def _hats(nbytes: Array) -> Array:
    """Linear interpolation as a matrix: a row for each point, a column for each of SIZES."""
    x = np.clip(np.log(nbytes), _LN_SIZES[0], _LN_SIZES[-1])
    return np.stack([np.interp(x, _LN_SIZES, unit) for unit in np.eye(len(SIZES))], axis=1)


def _posterior(starts: Rows, nbytes: Array, off: Array) -> tuple[Array, Array]:
    """Means and standard errors at SIZES: of what is shared, then of each group. starts: where each
    group's points begin.

    Weights and means in turn: a point weighs (TAILS + 1) / (TAILS + (residual / NOISE)^2).
    """
    hats = _hats(nbytes)
    pairs = hats[:, :, None] * hats[:, None, :]
    group = np.repeat(np.arange(len(starts)), np.diff([*starts, len(off)]))
    weight = np.full(len(off), _FIRST**-2)
    means, errors = _means(starts, hats, pairs, off, weight)
    for _ in range(_ROUNDS):
        r = off - np.einsum("ps,ps->p", hats, means[1 + group])
        weight = NOISE**-2 * np.minimum(1.0, (TAILS + 1) / (TAILS + (r / NOISE) ** 2))
        means, errors = _means(starts, hats, pairs, off, weight)
    return means, errors


def _means(
    starts: Rows, hats: Array, pairs: Array, off: Array, weight: Array
) -> tuple[Array, Array]:
    """The exact posterior under Gaussian noise: each group's own part is summed out first, so that
    every system has as many unknowns as there are SIZES."""
    kernel = _kernel()
    told = np.add.reduceat(weight[:, None, None] * pairs, starts)
    said = np.add.reduceat((weight * off)[:, None] * hats, starts)
    own = np.linalg.inv(told + np.linalg.inv((1 - SHARED) * kernel))
    rest = np.eye(len(SIZES)) - told @ own  # what a group's own part leaves to the shared one
    normal = np.linalg.inv(SHARED * kernel) + np.sum(rest @ told, axis=0)
    spread = np.linalg.inv(normal)
    shared = spread @ np.einsum("gij,gj->i", rest, said)
    mean = shared + np.einsum("gij,gj->gi", own, said - told @ shared)
    passed = np.eye(len(SIZES)) - own @ told
    covered = passed @ spread @ np.swapaxes(passed, 1, 2) + own
    alone = np.diag(spread) + (1 - SHARED) * np.diag(kernel)
    variance = np.concatenate([alone[None], np.diagonal(covered, axis1=1, axis2=2)])
    return np.concatenate([shared[None], mean]), np.sqrt(variance)
