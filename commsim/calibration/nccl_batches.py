"""Points of NCCL and RCCL, by the formula of the algorithm and protocol that was chosen."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from commsim.calibration.batch import Array, Batch
from commsim.collectives.collective import Collective
from commsim.cost import nccl as cost
from commsim.cost.calibrated import Case
from commsim.cost.features import features, machine
from commsim.cost.formulas import FORMULAS
from commsim.libraries.library import Choice
from commsim.topology.cluster import Cluster

Asked = tuple[Collective, Cluster, Choice]


def batches(points: Sequence[Asked]) -> list[Batch]:
    """The points sorted by formula; rows are their places in `points`."""
    sorted_: dict[tuple[str, str], list[tuple[int, Any, dict[str, str], float]]]
    sorted_ = defaultdict(list)
    for i, (collective, cluster, choice) in enumerate(points):
        m = machine(cluster, _facts(choice))
        f = features(collective, choice.chosen, _facts(choice), m)
        floor = cost.least_launch(_facts(choice))
        tags = dict(cost.tags_of(m, _facts(choice)))
        sorted_[choice.chosen.algorithm, choice.chosen.protocol].append((i, f, tags, floor))
    return [_batch(algorithm, rows) for (algorithm, _), rows in sorted_.items()]


def _batch(algorithm: str, rows: Sequence[tuple[int, Any, dict[str, str], float]]) -> Batch:
    joined = SimpleNamespace()
    for name, value in vars(rows[0][1]).items():
        same = isinstance(value, str)
        setattr(joined, name, value if same else np.array([getattr(r[1], name) for r in rows]))
    floor = np.array([r[3] for r in rows])

    def duration(k: Mapping[str, Any]) -> Array:
        return np.asarray(np.maximum(sum(FORMULAS[algorithm](joined, k).values()), floor))

    return Batch(rows=np.array([r[0] for r in rows]), tags=[r[2] for r in rows], duration=duration)


def case(collective: Collective, cluster: Cluster, choice: Choice) -> Case:
    """What a calibration tells apart."""
    facts = _facts(choice)
    return cost.case_of(collective.operation, choice.chosen, facts, machine(cluster, facts))


def _facts(choice: Choice) -> Any:
    return choice.facts
