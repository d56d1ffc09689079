"""One collective before it is played, and what conditions make of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from commsim.collectives.collective import Collective
from commsim.engine.conditions import Conditions
from commsim.engine.network import Floats, Laid
from commsim.engine.plan import Part, Times
from commsim.engine.played import Played
from commsim.errors import ConditionError
from commsim.units import Seconds


@dataclass(frozen=True, kw_only=True, eq=False)
class Job:
    """A collective laid on the links at its pace. start: s, when it is asked for. ranks: the global
    rank of each position. multiplicity: how many equal transfers one op stands for.
    """

    collective: Collective
    start: Seconds
    ranks: tuple[int, ...]
    laid: Laid
    launch: Seconds
    algorithm: str
    protocol: str
    multiplicity: int = 1
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.start < np.inf:
            raise ConditionError(
                f"{self.collective.operation}: start: expected 0 s or more, got {self.start}"
            )

    def part(self, conditions: Conditions) -> Part:
        """The job under these conditions: who is late, slow or dies, and what jitters."""
        schedule, vertices = self.laid.schedule, self.laid.schedule.vertices
        late, death, slow = np.zeros(vertices), np.full(vertices, np.inf), np.ones(vertices)
        for values, column in (
            (conditions.late, late), (conditions.deaths, death), (conditions.slow, slow)
        ):  # fmt: skip
            for position, rank in enumerate(self.ranks):
                column[position] = values.get(rank, column[position])
        laid, extra = self.laid, None
        if conditions.slow:
            laid = _slowed(laid, slow)
        if conditions.jitter is not None:
            extra = conditions.jitter.draw(len(schedule))
        start = self.start + late
        start[: len(self.ranks)] += self.launch * slow[: len(self.ranks)]
        return Part(
            laid=laid, start=start, death=death, extra=extra, share=float(self.multiplicity)
        )

    def played(self, part: Part, times: Times) -> Played:
        """What came of it."""
        return Played(
            collective=self.collective, ranks=self.ranks, laid=part.laid, times=times,
            asked=self.start, joined=part.start, launch=self.launch, algorithm=self.algorithm,
            protocol=self.protocol, multiplicity=self.multiplicity, notes=self.notes,
        )  # fmt: skip


def _slowed(laid: Laid, slow: Floats) -> Laid:
    """Ways of slow ranks: hops and channels go with the slower end, as do the device's links."""
    schedule, ways = laid.schedule, laid.ways
    factor = np.ones(len(ways))
    factor[laid.way] = np.maximum(slow[schedule.source], slow[schedule.destination])
    slower = replace(
        ways,
        latency=ways.latency * factor,
        overhead=ways.overhead * factor,
        limit=ways.limit / factor,
    )
    return replace(laid, ways=slower)
