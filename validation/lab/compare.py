"""What commsim predicts for the lab, beside what the lab measured."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from commsim.collectives.collective import ROOTED, Collective
from commsim.cost.host import cost, wires_of
from commsim.cost.host_speed import slowed
from commsim.cost.host_traffic import COUNTS
from commsim.cost.profile import shipped
from commsim.libraries.gloo import Gloo
from commsim.libraries.host import HostFacts
from commsim.libraries.library import Candidate, Library
from commsim.libraries.mpi import Mpi
from commsim.units import Bytes, Seconds
from validation.lab.cores import HERE, Cores
from validation.lab.identify import Identified, identify
from validation.lab.layout import Layout, burst, cluster
from validation.lab.run import Result

APART = 0.15  # an algorithm whose time is further from the measured one did not run
LIBRARIES: dict[str, Library] = {"gloo": Gloo(), "mpi": Mpi(env={"MPIR_CVAR_NOLOCAL": "1"})}


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One case of one layout on these cores. algorithm: the library's, as the model has it;
    identified: as the bytes tell (None: too few)."""

    backend: str
    layout: Layout
    cores: Cores
    result: Result
    algorithm: str
    predicted: Seconds
    identified: Identified | None

    @property
    def error(self) -> float:
        """predicted / measured - 1."""
        return self.predicted / self.result.median - 1

    @property
    def agrees(self) -> bool:
        """Whether the algorithm that the model has is among those that the bytes allow."""
        return self.identified is None or self.algorithm in self.identified.names


def compare(
    backend: str, layout: Layout, results: Iterable[Result], cores: Cores = HERE
) -> list[Compared]:
    """Every result with its prediction and the algorithm that its bytes tell, or bytes and time."""
    found = []
    for result in results:
        op, nbytes = result.case.op, result.case.nbytes
        told = identify(op, nbytes, result.pairs)
        found.append(
            Compared(
                backend=backend, layout=layout, cores=cores, result=result,
                algorithm=chosen(backend, layout, op, nbytes).algorithm,
                predicted=expected(backend, layout, op, nbytes, cores),
                identified=told and _by_time(told, backend, layout, result, cores),
            )
        )  # fmt: skip
    return found


def _by_time(
    told: Identified, backend: str, layout: Layout, result: Result, cores: Cores
) -> Identified:
    """Of several algorithms that send the same, those that would take about as long as it took, if
    any and if the times are steady."""
    if len(told.names) < 2 or result.spread > APART:
        return told
    op, nbytes = result.case.op, result.case.nbytes
    off = {
        name: abs(expected(backend, layout, op, nbytes, cores, name) / result.median - 1)
        for name in told.names
        if (name, op) in COUNTS
    }
    near = tuple(n for n in told.names if off.get(n, 0.0) <= APART)
    return replace(told, names=near or told.names)


def question(op: str, nbytes: Bytes, n: int) -> Collective:
    """The lab's operation as a Collective: ring_shift is a send_recv without a root, and the lab's
    send_recv is one message from the first rank to one across."""
    if op == "send_recv":
        return Collective("send_recv", nbytes, ranks=(0, n // 2), root=0)
    if op == "ring_shift":
        return Collective("send_recv", nbytes)
    return Collective(op, nbytes, root=0 if op in ROOTED else None)


def chosen(backend: str, layout: Layout, op: str, nbytes: Bytes) -> Candidate:
    """What the library takes."""
    return LIBRARIES[backend].choose(question(op, nbytes, layout.n), cluster(layout)).chosen


def expected(
    backend: str,
    layout: Layout,
    op: str,
    nbytes: Bytes,
    cores: Cores = HERE,
    algorithm: str = "",
) -> Seconds:
    """What `commsim.predict` says, s (for another algorithm than the library's, if one is named),
    told of what a cluster file cannot say: these few cores run all ranks, at their own speed, and a
    token bucket that was idle lets `burst` bytes pass."""
    machines, asked = cluster(layout), question(op, nbytes, layout.n)
    choice = LIBRARIES[backend].choose(asked, machines)
    assert isinstance(choice.facts, HostFacts)
    taken = replace(choice.chosen, algorithm=algorithm or choice.chosen.algorithm)
    through = replace(
        wires_of(machines, choice.facts.placement, asked.ranks, choice.facts.interfaces),
        cores=cores.number,
        burst=burst(layout.slowest),
    )
    book = slowed(shipped(choice.facts.library), cores.speed)
    return cost(asked, machines, taken, choice.facts, book, through).duration


def summary(rows: Iterable[Compared], least: Bytes) -> dict[str, tuple[int, float, float]]:
    """By operation: cases of at least `least` bytes, the median and the largest absolute error."""
    found: dict[str, list[float]] = {}
    for row in rows:
        if row.result.case.nbytes >= least:
            found.setdefault(row.result.case.op, []).append(abs(row.error))
    return {
        op: (len(errors), float(np.median(errors)), max(errors)) for op, errors in found.items()
    }
