"""Which algorithm a library ran, told by who sent how much to whom, not by its documentation.

The bytes that each rank sends to each other are counted by its sockets; every algorithm that could
carry out the operation has a schedule, which says the same. Ranks may be numbered differently in
the two (a ring may go backwards), so each rank is compared with the one that is most like it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from commsim.collectives import catalogue
from commsim.collectives.collective import Collective
from commsim.collectives.schedule import Schedule
from commsim.cost.host_traffic import COUNTS
from commsim.errors import CommsimError
from commsim.libraries.host import HostFacts
from commsim.libraries.host_schedules import carry_out
from commsim.libraries.library import Candidate
from commsim.topology.placement import place
from validation.lab.layout import Layout, cluster

Matrix = NDArray[np.float64]
TOLERANCE = 0.05  # of all bytes: control messages and uneven chunks
SIZE = 1 << 20  # bytes of the schedules compared with; shares do not depend on it
SAME = 1e-3  # two schedules that differ by uneven chunks only
LEAST = 64 << 10  # below, control messages weigh as much as data


@dataclass(frozen=True, slots=True, kw_only=True)
class Identified:
    """names: the algorithms that send what was counted, best first; several where they do not
    differ for this number of ranks, none where no known one does. off: the share of bytes that the
    nearest has elsewhere."""

    names: tuple[str, ...]
    nearest: str
    off: float

    def __str__(self) -> str:
        return (
            " or ".join(self.names) or f"none known (nearest: {self.nearest}, {self.off:.0%} off)"
        )


def identify(op: str, nbytes: int, pairs: Matrix) -> Identified | None:
    """What sent `pairs` bytes from rank to rank for one `op` on `nbytes`; None where too little was
    sent to tell."""
    if op == "barrier" or nbytes < LEAST or not pairs.any():
        return None
    counted = pairs / nbytes
    off = {name: apart(counted, sent) for name, sent in candidates(op, len(pairs)).items()}
    order = sorted(off, key=lambda name: (off[name] > TOLERANCE, round(off[name], 2), name))
    matching = tuple(name for name in order if off[name] <= TOLERANCE)
    return Identified(names=matching, nearest=order[0], off=off[order[0]])


def apart(one: Matrix, other: Matrix) -> float:
    """The share of all bytes that one has elsewhere than the other, whoever is who: each rank's
    amounts to others, largest first, beside those of the rank that is most like it."""
    rows, others = (-np.sort(-shares, axis=1) for shares in (one, other))
    off = np.abs(rows[:, np.newaxis] - others[np.newaxis]).sum(axis=2)
    return float(off[linear_sum_assignment(off)].sum() / max(one.sum(), other.sum()))


@lru_cache(maxsize=256)
def candidates(op: str, n: int) -> dict[str, Matrix]:
    """What every algorithm that serves the operation sends, over the size: those of the libraries
    by their names, then whatever else commsim knows by its own."""
    if op in ("send_recv", "ring_shift"):
        return {"p2p": _shift(n) if op == "ring_shift" else _one(n)}
    root = 0 if op in ("broadcast", "reduce", "gather", "scatter") else None
    collective = Collective(op, SIZE // n * n, root=root)
    flat = cluster(Layout(machines=n, per_machine=1, link=1.0))
    facts = HostFacts(placement=place(flat, None), library="gloo")
    theirs = sorted(a for a, serves in COUNTS if serves == op and a != "release_gather")
    found: dict[str, Matrix] = {}
    for name in (*theirs, *catalogue.names(op)):
        try:
            if name in theirs:
                schedule = carry_out(collective, _candidate(name), facts, flat)
            else:
                schedule = catalogue.algorithm(name).schedule(collective, n)
        except CommsimError:
            continue  # wants a switch, a grid or teams
        shares = sent(schedule)[:n, :n] / collective.nbytes
        known = any(apart(shares, other) < SAME for other in found.values())
        if not schedule.switches and (name in theirs or not known):
            found[name] = shares
    return found


def _candidate(name: str) -> Candidate:
    return Candidate(
        algorithm=name, protocol="TCP", channels=1, estimate=0.0, available=True, reason=""
    )


def sent(schedule: Schedule) -> Matrix:
    """Bytes from each rank to each other."""
    pairs = np.zeros((schedule.vertices, schedule.vertices))
    away = schedule.source != schedule.destination
    np.add.at(pairs, (schedule.source[away], schedule.destination[away]), schedule.nbytes[away])
    return pairs


def _shift(n: int) -> Matrix:
    return np.roll(np.eye(n), 1, axis=1)


def _one(n: int) -> Matrix:
    pairs = np.zeros((n, n))
    pairs[0, n // 2] = 1.0
    return pairs
