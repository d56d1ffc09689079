"""What a calibration says beside its numbers: what it learnt, cannot tell, and does not believe."""

from __future__ import annotations

import math

import numpy as np

from commsim.calibration.model import Fitted, Problem
from commsim.calibration.points import place
from commsim.cost.calibrated import Learnt, Outlier, regime
from commsim.cost.profile import Profile

FAR = 4.0
"""Standard deviations from the fit at which a measurement is an outlier."""
LEAST_FAR = 0.15
"""ln(measured / predicted) below which it is none, however quiet the others are."""
TOLD = 0.9
"""Share of the prior's standard error below which the measurements have told a constant."""
IDLE = 0.999
"""The same above which a constant has nothing to do with what was measured."""
MEDIAN_TO_SD = 1.4826
"""Standard deviation of normal noise over the median of its absolute value."""


def learnt(asked: Problem, found: Fitted, base: Profile) -> tuple[Learnt, ...]:
    """The constants that the measurements told, the best known first."""
    p = asked.parameters
    rows = [
        Learnt(
            name=name if not kind else f"{name}[{kind}={tag}]",
            meaning=base.constants[name].meaning, factor=math.exp(found.solution.theta[i]),
            before=p.sd[i], after=float(found.solution.error[i]),
        )
        for (name, kind, tag), i in p.place.items()
    ]  # fmt: skip
    told = [row for row in rows if row.after < TOLD * row.before]
    return tuple(sorted(told, key=lambda row: row.after / row.before))


def undetermined(asked: Problem, found: Fitted, base: Profile) -> tuple[str, ...]:
    """What stays as the base has it, a sentence each."""
    sizes = {regime(n) for n in asked.nbytes}
    nodes = {case.nodes for case in asked.cases}
    says = []
    for name, where in (
        ("latency", "no size up to 64 KiB: what small messages take is the base's"),
        ("bandwidth", "no size from 16 MiB: what large messages take is the base's"),
    ):
        if name not in sizes:
            says.append(where)
    if nodes == {1}:
        says.append("nothing over a network: everything between nodes is the base's")
    if 1 not in nodes:
        says.append(
            "nothing inside one node alone: its links and hops are told apart only through "
            "what the network leaves"
        )
    operations = sorted({case.operation for case in asked.cases})
    says.append(
        f"only {', '.join(operations)}: other operations share its constants where they use them, "
        "without a correction of their own"
    )
    p, error = asked.parameters, found.solution.error
    left = [
        f"{base.constants[name].meaning} ({name})"
        for (name, kind, _), i in p.place.items()
        if not kind and TOLD * p.sd[i] <= error[i] < IDLE * p.sd[i]
    ]
    if left:
        says.append(f"hardly told, and near the base's value: {'; '.join(left)}")
    return tuple(says)


def outliers(asked: Problem, found: Fitted) -> tuple[Outlier, ...]:
    """Single measurements far from the fit, and those whose result was wrong, the farthest
    first."""
    rows = [
        (math.log(m.duration / predicted), point, m, float(predicted))
        for point, predicted in zip(asked.points, found.predicted, strict=True)
        for m in point.measurements
    ]
    off = np.array([row[0] for row in rows])
    limit = max(LEAST_FAR, FAR * MEDIAN_TO_SD * float(np.median(np.abs(off))))
    return tuple(
        Outlier(where=place(m), what=str(point), measured=m.duration, predicted=predicted)
        for r, point, m, predicted in sorted(rows, key=lambda row: -abs(row[0]))
        if abs(r) > limit
    )
