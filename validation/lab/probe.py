"""How fast this machine's cores are, told by a few runs over links that nothing holds back.

    measured here / measured on the profile's machine = cost at Speed / cost at Speed()

Without a shaped link an operation takes what the cores do: messages, bytes through the TCP stack,
copies. The same runs were made on the machine whose constants the profile holds
(validation/published/gloo_lab.csv), so what the formula has wrong of them cancels, and three
factors are left: robust least squares on the logarithm. Every run comes after a rest as long as an
operation over a slow link takes, since a core that slept finds its caches cold. Ignored: that a
packet of a slow link is smaller.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from commsim.cost.host_speed import Speed
from commsim.units import KIB, MIB, Bytes, Seconds
from validation.lab.compare import expected
from validation.lab.cores import HERE, Cores
from validation.lab.layout import UNSHAPED, Layout
from validation.lab.network import network
from validation.lab.run import Case, Result, run

PUBLISHED = Path(__file__).resolve().parents[1] / "published/gloo_lab.csv"
THEN = Cores(number=2)  # of the machine that ran the published rows
PAUSE = 0.1  # s
REPEATS = 5
NOISE = 0.15  # of the logarithm of one row's ratio
LIMITS = (0.1, 30.0)  # of a factor
Key = tuple[str, Bytes]

RUNS = {
    "gloo": (("send_recv", 64 * KIB), ("send_recv", 16 * MIB), ("all_reduce", 64 * KIB),
             ("all_reduce", 16 * MIB), ("all_gather", 64 * KIB), ("all_gather", 16 * MIB)),
    "mpi": (("all_reduce", MIB), ("all_reduce", 16 * MIB),
            ("all_gather", MIB), ("all_gather", 16 * MIB)),
}  # fmt: skip
# As the published rows were run: the table's backend and topology, and the ranks.
PLACES = {"gloo": ("gloo", "star", 4), "mpi": ("mpich", "loopback", 2)}


def probe(backend: str) -> Cores:
    """This machine's cores as the backend uses them. Raises LabError where a run fails."""
    ranks = PLACES[backend][2]
    cases = [Case(op=op, nbytes=n, repeats=REPEATS, pause=PAUSE) for op, n in RUNS[backend]]
    if backend == "mpi":
        return read(backend, run(backend, cases, None, ranks))
    with network(_unshaped(ranks)) as built:
        return read(backend, run(backend, cases, built, ranks))


def read(backend: str, results: Sequence[Result]) -> Cores:
    """What the runs tell of the cores."""
    now = {(r.case.op, r.case.nbytes): r.median for r in results}
    return Cores(number=HERE.number, speed=speed(backend, now, published(backend)))


def speed(backend: str, now: Mapping[Key, Seconds], then: Mapping[Key, Seconds]) -> Speed:
    """The factors that turn what the profile says of `then` into `now`."""
    layout = _unshaped(PLACES[backend][2])
    keys = sorted(now)
    took = np.array([math.log(now[key] / then[key]) for key in keys])
    base = np.array([math.log(expected(backend, layout, *key, THEN)) for key in keys])

    def made(x: NDArray[np.float64]) -> Speed:
        messages, nbytes, copies = (float(v) for v in np.exp(x))
        return Speed(messages=messages, nbytes=nbytes, copies=copies)

    def off(x: NDArray[np.float64]) -> NDArray[np.float64]:
        cores = Cores(number=HERE.number, speed=made(x))
        told = [math.log(expected(backend, layout, *key, cores)) for key in keys]
        return np.array((np.array(told) - base - took) / NOISE)

    low, high = (math.log(limit) for limit in LIMITS)
    found = least_squares(off, np.zeros(3), bounds=(low, high), loss="soft_l1")
    return made(found.x)


@lru_cache(maxsize=2)
def published(backend: str) -> dict[Key, Seconds]:
    """What the same runs took on the profile's machine."""
    name, topology, ranks = PLACES[backend]
    with PUBLISHED.open(encoding="utf-8") as file:
        rows = csv.DictReader(line for line in file if not line.startswith("#"))
        return {
            (row["op"], int(row["bytes"])): float(row["time_us"]) * 1e-6
            for row in rows
            if (row["backend"], row["topology"], row["ranks"], row["link_mbit"])
            == (name, topology, str(ranks), "0")
        }


def _unshaped(ranks: int) -> Layout:
    return Layout(machines=ranks, per_machine=1, link=UNSHAPED)
