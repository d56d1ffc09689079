"""Points of Gloo and MPI, by the algorithm and operation whose constants they share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import numpy as np

from commsim.calibration.batch import Array, Batch
from commsim.collectives.collective import Collective
from commsim.cost import host as cost
from commsim.cost.calibrated import Case
from commsim.libraries.library import Choice
from commsim.topology.cluster import Cluster

Asked = tuple[Collective, Cluster, Choice]


def batches(points: Sequence[Asked]) -> list[Batch]:
    """The points sorted by formula; rows are their places in `points`."""
    sorted_: dict[tuple[str, ...], list[tuple[int, list[cost.Phase], float]]] = defaultdict(list)
    for i, (collective, cluster, choice) in enumerate(points):
        facts: Any = choice.facts
        stages, wires = cost.phases(collective, cluster, choice.chosen, facts)
        staging = cost.staged(collective.operation, facts.placement.n, collective.nbytes)
        sorted_[tuple(tag for *_, tag in stages)].append((i, stages, staging / wires.staging))
    return [_batch(tags, rows) for tags, rows in sorted_.items()]


def _batch(tags: tuple[str, ...], rows: Sequence[tuple[int, list[cost.Phase], float]]) -> Batch:
    stages: Any = [
        (
            _joined([stages[j][0] for _, stages, _ in rows]),
            _joined([stages[j][1] for _, stages, _ in rows]),
            np.array([stages[j][2] for _, stages, _ in rows], dtype=np.float64),
            tag,
        )
        for j, tag in enumerate(tags)
    ]
    staging = np.array([staged for *_, staged in rows])

    def duration(k: Mapping[str, Any]) -> Array:
        found = [cost.parts(moved, wires, n, tag, k) for moved, wires, n, tag in stages]
        later = sum(p.duration - p.launch for p in found)  # an operation is launched once
        return np.asarray(found[0].launch + staging + later)

    return Batch(rows=np.array([i for i, *_ in rows]), tags=[{} for _ in rows], duration=duration)


def _joined(records: Sequence[Any]) -> Any:
    """The records' fields as arrays."""
    return SimpleNamespace(
        **{
            f.name: np.array([getattr(record, f.name) for record in records], dtype=np.float64)
            for f in fields(records[0])
        }
    )


def case(collective: Collective, cluster: Cluster, choice: Choice) -> Case:
    """What a calibration tells apart."""
    facts: Any = choice.facts
    wires = cost.wires_of(cluster, facts.placement, collective.ranks, facts.interfaces)
    return cost.case_of(collective.operation, cluster, choice.chosen, facts, wires)
