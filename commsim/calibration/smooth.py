"""What formulas with a machine's own constants still miss, as a smooth function of the message.

    r = f(ln message) + noise,   f = everywhere + choice + group + own

r = ln(measured / formula) of one operation on one hardware is a Gaussian process (Rasmussen and
Williams, Gaussian Processes for Machine Learning, 2006, chapter 2) with a Matern 3/2 kernel over
the ln of what one rank sends another at once (commsim.cost.calibrated.message): what a network does
to a message, it does on two nodes and on two hundred. It follows the measurements where there are
some and fades within a factor of e^LENGTH of them. Four such functions add up: what all choices and
all groups have in common, a choice (algorithm and protocol) in all groups, a group of ranks in all
choices, and what only this choice in this group has. So a choice or a group that was not measured
still gets its part. f is its mean, kept at SIZES and linear between them. Noise has heavy tails
(Student's t), so that a lone spike bends nothing.
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
_ROUNDS = 6
_SETTLED = 0.02  # change of every weight below which the next round would change nothing
_LN_SIZES = np.log(SIZES)
_N = len(SIZES)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Smooth:
    """ln factors at SIZES by case, and of any group and any choice."""

    logs: dict[Case, Array]

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
                protocol=case.protocol, ranks=case.ranks, nodes=case.nodes, setting=case.setting,
                sizes=SIZES, logs=tuple(map(float, logs)),
            )
            for case, logs in self.logs.items()
        )  # fmt: skip


def smooth(cases: Sequence[Case], nbytes: Array, off: Array, use: NDArray[np.bool_]) -> Smooth:
    """f of every case, from the points in `use`. off: ln(measured / formula) of each."""
    fields: dict[Case, dict[Case, list[int]]] = defaultdict(lambda: defaultdict(list))
    for i in map(int, np.flatnonzero(use & (nbytes > 0))):
        fields[any_choice(any_group(cases[i]))][cases[i]].append(i)
    logs: dict[Case, Array] = {}
    for field in fields.values():
        logs |= _posterior(field, nbytes, off)
    return Smooth(logs=logs)


@lru_cache(maxsize=1)
def _kernel() -> Array:
    """Matern 3/2 between SIZES: (1 + s) e^-s, s = sqrt(3) |ln a - ln b| / LENGTH."""
    s = np.sqrt(3) * np.abs(_LN_SIZES[:, None] - _LN_SIZES[None, :]) / LENGTH
    return np.asarray((1 + s) * np.exp(-s))


@lru_cache(maxsize=1)
def _inverse() -> Array:
    return np.asarray(np.linalg.inv(_kernel()))


def _hats(messages: Array) -> Array:
    """Linear interpolation as a matrix: a row for each point, a column for each of SIZES."""
    x = np.clip(np.log(messages), _LN_SIZES[0], _LN_SIZES[-1])
    return np.stack([np.interp(x, _LN_SIZES, unit) for unit in np.eye(_N)], axis=1)


def _posterior(field: Mapping[Case, Sequence[int]], nbytes: Array, off: Array) -> dict[Case, Array]:
    """Means at SIZES, of one operation on one hardware.

    Weights and means in turn: a point weighs (TAILS + 1) / (TAILS + (residual / NOISE)^2).
    """
    rows = np.concatenate([np.array(mine) for mine in field.values()])
    cell = np.repeat(np.arange(len(field)), [len(mine) for mine in field.values()])
    hats = np.concatenate([_hats(message(case, nbytes[list(i)])) for case, i in field.items()])
    pairs, said = hats[:, :, None] * hats[:, None, :], off[rows]
    starts = np.searchsorted(cell, np.arange(len(field)))
    weight = np.full(len(rows), _FIRST**-2)
    for _ in range(_ROUNDS):
        found = _Means(
            tuple(field),
            np.add.reduceat(weight[:, None, None] * pairs, starts),
            np.add.reduceat((weight * said)[:, None] * hats, starts),
        )
        r = said - np.einsum("ps,ps->p", hats, found.of_cell[cell])
        before = weight
        weight = NOISE**-2 * np.minimum(1.0, (TAILS + 1) / (TAILS + (r / NOISE) ** 2))
        if np.all(np.abs(weight - before) <= _SETTLED * before):
            break
    return found.all()


class _Means:
    """The exact posterior means under Gaussian noise, one unknown for each of SIZES in each
    function.

    told, said: of each cell (a choice in a group), hats' hats and hats' r over the noise's
    variance. A cell's own function is summed out first, then a group's, so that what is solved at
    once is as large as the choices (each with what is everywhere).
    """

    def __init__(self, cells: tuple[Case, ...], told: Array, said: Array) -> None:
        self.cells = cells
        self.choices = list(dict.fromkeys(any_group(cell) for cell in cells))
        self.groups = list(dict.fromkeys(any_choice(cell) for cell in cells))
        choice = np.array([self.choices.index(any_group(cell)) for cell in cells])
        group = np.array([self.groups.index(any_choice(cell)) for cell in cells])
        inverse, k = _inverse(), len(self.choices)
        every, alone = HEIGHT**2 * SHARED, HEIGHT**2 * (1 - SHARED)  # all groups; one group
        own = np.linalg.inv(told + inverse / alone)
        left = told - told @ own @ told
        heard = said - np.einsum("cij,cjk,ck->ci", told, own, said)
        prior = (np.eye(k) - np.ones((k, k)) / (1 + k)) / every  # of choices: every (1 1' + I)
        normal = np.einsum("kl,ij->kilj", prior, inverse)
        right = np.zeros((k, _N))
        settled = []  # of each group: its cells, and the inverse of what they tell of it
        for g in range(len(self.groups)):
            mine = np.flatnonzero(group == g)
            spread = np.linalg.inv(left[mine].sum(axis=0) + inverse / alone)
            settled.append((mine, spread))
            level = spread @ heard[mine].sum(axis=0)
            for c in mine:
                normal[choice[c], :, choice[c]] += left[c]
                right[choice[c]] += heard[c] - left[c] @ level
                for other in mine:
                    normal[choice[c], :, choice[other]] -= left[c] @ spread @ left[other]
        self.of_choice = np.linalg.solve(normal.reshape(k * _N, k * _N), right.ravel()).reshape(
            k, _N
        )
        missed = heard - np.einsum("cij,cj->ci", left, self.of_choice[choice])
        self.of_group = np.stack([spread @ missed[mine].sum(axis=0) for mine, spread in settled])
        shared = self.of_choice[choice] + self.of_group[group]
        over = said - np.einsum("cij,cj->ci", told, shared)
        self.of_cell = shared + np.einsum("cij,cj->ci", own, over)

    def all(self) -> dict[Case, Array]:
        """Of every choice in every group, of each without the other, and of neither."""
        found = {
            replace(choice, ranks=group.ranks, nodes=group.nodes, setting=group.setting): (
                mine + theirs
            )
            for choice, mine in zip(self.choices, self.of_choice, strict=True)
            for group, theirs in zip(self.groups, self.of_group, strict=True)
        }
        found |= dict(zip(self.cells, self.of_cell, strict=True))
        found |= dict(zip(self.choices, self.of_choice, strict=True))
        # each choice is what is everywhere and as much again of its own
        everywhere = self.of_choice.sum(axis=0) / (1 + len(self.choices))
        for group, theirs in zip(self.groups, self.of_group, strict=True):
            found[group] = everywhere + theirs
        found[any_choice(self.choices[0])] = everywhere
        return found
