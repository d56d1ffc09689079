"""What formulas with a machine's own constants still miss, as a smooth function of the message.

    r = f(ln message) + noise,   f = everywhere + choice + group + own

r = ln(measured / formula) of one operation on one hardware is a Gaussian process (Rasmussen and
Williams, Gaussian Processes for Machine Learning, 2006, chapter 2) with a Matern 3/2 kernel over
the ln of what one rank sends another at once (commsim.cost.calibrated.message): what a network does
to a message, it does on two nodes and on two hundred. It follows the measurements where there are
some and fades within a factor of e^LENGTH of them. Four such functions add up: what all choices and
all groups have in common, a choice (algorithm and protocol) in all groups, a group of ranks in all
choices, and what only this choice in this group has. So a choice or a group that was not measured
still gets its part. f is kept at SIZES and linear between them. Noise has heavy tails (Student's
t), so that a lone spike bends nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from commsim.calibration.batch import Array
from commsim.cost.calibrated import (
    Case,
    Correction,
    any_choice,
    any_group,
    closest,
    message,
    sorted_cases,
)

SIZES = tuple(4**step for step in range(18))
"""Bytes of a message at which a correction is kept: 1 B to 16 GiB."""
LENGTH = 3.0
"""Over which ln(message) it fades: a factor of 20."""
HEIGHT = 0.15
"""Standard deviation, ln, of what all choices have in common, and again of one choice beside it."""
SHARED = 0.5
"""Share of both variances that all groups of ranks have in common."""
NOISE = 0.03
"""Scatter of one measured point, ln."""
TAILS = 4.0
"""Degrees of freedom of the noise: the fewer, the less an outlier says."""
_FIRST = 0.1  # scatter assumed while outliers are not known yet
_ROUNDS = 5
_LN_SIZES = np.log(SIZES)
_N = len(SIZES)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Smooth:
    """ln factors at SIZES with standard errors, by case, and of any group and any choice."""

    logs: dict[Case, Array]
    errors: dict[Case, Array]

    def at(self, cases: Sequence[Case], nbytes: Array) -> Array:
        """ln factors of points; 0 where nothing is known."""
        rows: dict[Case, list[int]] = defaultdict(list)
        for i, case in enumerate(cases):
            rows[case].append(i)
        known = sorted_cases(self.logs)
        out = np.zeros(len(cases))
        for case, mine in rows.items():
            near = closest(case, known)
            if near is not None:
                x = np.log(np.maximum(message(case, nbytes[mine]), 1e-300))
                out[mine] = np.interp(x, _LN_SIZES, self.logs[near])
        return out

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


def smooth(cases: Sequence[Case], nbytes: Array, off: Array, use: NDArray[np.bool_]) -> Smooth:
    """f of every case, from the points in `use`. off: ln(measured / formula) of each."""
    fields: dict[Case, dict[Case, list[int]]] = defaultdict(lambda: defaultdict(list))
    for i in map(int, np.flatnonzero(use & (nbytes > 0))):
        fields[any_choice(any_group(cases[i]))][cases[i]].append(i)
    logs: dict[Case, Array] = {}
    errors: dict[Case, Array] = {}
    for field in fields.values():
        for case, (mean, error) in _posterior(field, nbytes, off).items():
            logs[case], errors[case] = mean, error
    return Smooth(logs=logs, errors=errors)


@lru_cache(maxsize=1)
def _kernel() -> Array:
    """Matern 3/2 between SIZES: (1 + s) e^-s, s = sqrt(3) |ln a - ln b| / LENGTH."""
    s = np.sqrt(3) * np.abs(_LN_SIZES[:, None] - _LN_SIZES[None, :]) / LENGTH
    return np.asarray((1 + s) * np.exp(-s))


def _hats(messages: Array) -> Array:
    """Linear interpolation as a matrix: a row for each point, a column for each of SIZES."""
    x = np.clip(np.log(messages), _LN_SIZES[0], _LN_SIZES[-1])
    return np.stack([np.interp(x, _LN_SIZES, unit) for unit in np.eye(_N)], axis=1)


def _posterior(
    field: Mapping[Case, Sequence[int]], nbytes: Array, off: Array
) -> dict[Case, tuple[Array, Array]]:
    """Means and standard errors at SIZES, of one operation on one hardware.

    Weights and means in turn: a point weighs (TAILS + 1) / (TAILS + (residual / NOISE)^2).
    """
    rows = np.concatenate([np.array(mine) for mine in field.values()])
    cell = np.repeat(np.arange(len(field)), [len(mine) for mine in field.values()])
    hats = np.concatenate([_hats(message(case, nbytes[list(i)])) for case, i in field.items()])
    pairs, said = hats[:, :, None] * hats[:, None, :], off[rows]
    starts = np.searchsorted(cell, np.arange(len(field)))
    weight = np.full(len(rows), _FIRST**-2)
    for _ in range(_ROUNDS + 1):
        found = _Solved(
            tuple(field),
            np.add.reduceat(weight[:, None, None] * pairs, starts),
            np.add.reduceat((weight * said)[:, None] * hats, starts),
        )
        r = said - np.einsum("ps,ps->p", hats, found.means[cell])
        weight = NOISE**-2 * np.minimum(1.0, (TAILS + 1) / (TAILS + (r / NOISE) ** 2))
    return found.all()


class _Solved:
    """The exact posterior under Gaussian noise, one unknown for each of SIZES in each function.

    told, said: of each cell (a choice in a group), hats' hats and hats' r over the noise's
    variance. A cell's own function is summed out first, then a group's; what is left are choices
    with what all have in common.
    """

    def __init__(self, cells: tuple[Case, ...], told: Array, said: Array) -> None:
        self.cells, self.told, self.said = cells, told, said
        self.choices = list(dict.fromkeys(any_group(cell) for cell in cells))
        self.groups = list(dict.fromkeys(any_choice(cell) for cell in cells))
        self.choice = np.array([self.choices.index(any_group(cell)) for cell in cells])
        self.group = np.array([self.groups.index(any_choice(cell)) for cell in cells])
        inverse = np.linalg.inv(_kernel())
        every, alone = HEIGHT**2 * SHARED, HEIGHT**2 * (1 - SHARED)  # all groups; one group
        self.own = np.linalg.inv(told + inverse / alone)
        left = told - told @ self.own @ told
        heard = said - np.einsum("cij,cjk,ck->ci", told, self.own, said)
        # choices with what is everywhere: covariance every (1 1' + I)
        k = len(self.choices)
        prior = (np.eye(k) - np.ones((k, k)) / (1 + k)) / every
        normal = np.einsum("kl,ij->kilj", prior, inverse)
        right = np.zeros((k, _N))
        self.spread = np.empty((len(self.groups), _N, _N))
        self.pull = np.zeros((len(self.groups), _N, k, _N))  # of the choices on a group, negative
        self.lift = np.empty((len(self.groups), _N))
        for g in range(len(self.groups)):
            mine = np.flatnonzero(self.group == g)
            s = self.spread[g] = np.linalg.inv(left[mine].sum(axis=0) + inverse / alone)
            self.lift[g] = s @ heard[mine].sum(axis=0)
            for c in mine:
                self.pull[g, :, self.choice[c]] = s @ left[c]
            for c in mine:
                a = self.choice[c]
                normal[a, :, a] += left[c]
                normal[a] -= np.einsum("ij,jlk->ilk", left[c], self.pull[g])
                right[a] += heard[c] - left[c] @ self.lift[g]
        self.covariance = np.linalg.inv(normal.reshape(k * _N, k * _N))
        self.of_choice = (self.covariance @ right.ravel()).reshape(k, _N)
        self.of_group = self.lift - np.einsum("gikj,kj->gi", self.pull, self.of_choice)
        shared = self.of_choice[self.choice] + self.of_group[self.group]
        left_over = said - np.einsum("cij,cj->ci", told, shared)
        self.means = shared + np.einsum("cij,cj->ci", self.own, left_over)

    def all(self) -> dict[Case, tuple[Array, Array]]:
        """Mean and standard error of every choice in every group, of each alone, and of neither."""
        alone = HEIGHT**2 * (1 - SHARED)
        k = len(self.choices)
        unknown = HEIGHT**2 * SHARED / (1 + k)  # of what is everywhere, the choices known
        all_alike = np.full(k, 1 / (1 + k))
        cell_of = {cell: c for c, cell in enumerate(self.cells)}
        found: dict[Case, tuple[Array, Array]] = {}
        for a, choice in enumerate(self.choices):
            weights = np.eye(k)[a]
            for g, group in enumerate(self.groups):
                mean, spread = self._sum(weights, g)
                case = replace(choice, ranks=group.ranks, nodes=group.nodes)
                if (c := cell_of.get(case)) is None:
                    spread += alone * _kernel()
                else:
                    passed = np.eye(_N) - self.own[c] @ self.told[c]
                    mean, spread = self.means[c], passed @ spread @ passed.T + self.own[c]
                found[case] = mean, np.sqrt(np.diag(spread))
            mean, spread = self._sum(weights)
            found[choice] = mean, np.sqrt(np.diag(spread + 2 * alone * _kernel()))
        new = unknown + HEIGHT**2 * SHARED + alone  # another choice, by itself
        for g, group in enumerate(self.groups):
            mean, spread = self._sum(all_alike, g)
            found[group] = mean, np.sqrt(np.diag(spread + new * _kernel()))
        mean, spread = self._sum(all_alike)
        spread += (new + alone) * _kernel()
        found[any_choice(self.choices[0])] = mean, np.sqrt(np.diag(spread))
        return found

    def _sum(self, weights: Array, group: int | None = None) -> tuple[Array, Array]:
        """Mean and covariance of a weighted sum of choices, and of a group's function with it."""
        along = np.einsum("k,ij->ikj", weights, np.eye(_N))
        mean = weights @ self.of_choice
        if group is not None:
            along = along - self.pull[group]
            mean = mean + self.of_group[group]
        flat = along.reshape(_N, -1)
        spread = flat @ self.covariance @ flat.T
        return mean, spread if group is None else spread + self.spread[group]
