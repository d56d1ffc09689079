"""How far a calibration is off where it has not measured: points held back, the rest refitted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from commsim.calibration.batch import Array
from commsim.calibration.model import Problem, fit
from commsim.cost.calibrated import HeldOut, regime

FOLDS = 5
"""Parts that the sizes of a curve are held back in, one after the other."""
STEPS = 15
"""Of a fit without the points held back. It starts at the base: from the fit to all of them it
could end in an optimum that only the points held back have shown."""
TOLERANCE = 1e-3
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Check:
    """Predictions of points by fits that did not see them. left_out: what was held back together:
    "size", "operation" or "nodes". predicted: s, nan where a point could not be held back."""

    left_out: str
    predicted: Array


def checks(asked: Problem, watch: Callable[[int, int], None]) -> tuple[Check, ...]:
    """Every way of holding back that the points allow. watch: told how many
    fits of how many are done."""
    ways = [(name, list(parts)) for name, parts in _ways(asked)]
    total, done = sum(len(parts) for _, parts in ways), 0
    found = []
    for name, parts in ways:
        predicted = np.full(len(asked.points), np.nan)
        for held in parts:
            predicted[held] = fit(asked, ~held, STEPS, TOLERANCE).predicted[held]
            done += 1
            watch(done, total)
        found.append(Check(left_out=name, predicted=predicted))
    return tuple(found)


def _ways(asked: Problem) -> Iterator[tuple[str, Iterator[Mask]]]:
    operations = np.array([case.operation for case in asked.cases])
    nodes = np.array([case.nodes for case in asked.cases])
    fold = _folds(asked)
    for name, label in (("size", fold), ("operation", operations), ("nodes", nodes)):
        values = [value for value in dict.fromkeys(label.tolist()) if value != -1]
        if len(set(label.tolist())) > 1:
            yield name, (label == value for value in values)


def _folds(asked: Problem) -> NDArray[np.int64]:
    """Every size of a curve in one of FOLDS parts, in turn; -1 for curves of one size."""
    curves: dict[object, list[int]] = {}
    for i, point in enumerate(asked.points):
        c = point.collective
        key = (point.cluster.name, str(point.library), c.operation, c.dtype, c.ranks, c.root)
        curves.setdefault(key, []).append(i)
    fold = np.full(len(asked.points), -1, dtype=np.int64)
    for rows in curves.values():
        sizes = sorted({asked.nbytes[i] for i in rows})
        if len(sizes) > 1:
            for i in rows:
                fold[i] = sizes.index(asked.nbytes[i]) % FOLDS
    return fold


def rows(asked: Problem, found: Sequence[Check]) -> tuple[HeldOut, ...]:
    """The errors by operation, size, ranks and nodes, for each way of holding back."""
    out = []
    for check in found:
        ratio = check.predicted / asked.measured
        known = np.isfinite(ratio)
        if not known.any():
            continue
        out.append(_row(check.left_out, "all", ratio[known]))
        for label in _labels(asked, check.left_out):
            for group in dict.fromkeys(label):
                mine = known & np.array([name == group for name in label])
                if mine.any():
                    out.append(_row(check.left_out, group, ratio[mine]))
    return tuple(out)


def _labels(asked: Problem, left_out: str) -> Iterator[list[str]]:
    """What the points are grouped by; of points held back by operation, only that one tells."""
    if left_out != "nodes":
        yield [case.operation for case in asked.cases]
    if left_out == "size":
        yield [f"{regime(nbytes)} sizes" for nbytes in asked.nbytes]
        yield [f"{case.ranks} ranks" for case in asked.cases]
    if left_out != "operation":
        yield ["1 node" if c.nodes == 1 else f"{c.nodes} nodes" for c in asked.cases]


def _row(left_out: str, group: str, ratio: Array) -> HeldOut:
    error = np.abs(ratio - 1)
    return HeldOut(
        left_out=left_out, group=group, points=len(ratio), median=float(np.median(error)),
        mean=float(np.mean(error)), worst_tenth=float(np.quantile(error, 0.9)),
        bias=float(np.exp(np.mean(np.log(ratio)))),
    )  # fmt: skip
