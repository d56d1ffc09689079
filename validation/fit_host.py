"""Fits the constants of the Gloo and MPI cost model and writes them as profiles: `python -m
validation.fit_host`.

Reads validation/published/gloo_lab.csv (real runs over shaped links), fits on some of its
topologies by least squares on ln(predicted / measured), reports the error on the others, and writes
commsim/cost/profiles/gloo.toml and mpi.toml.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares

from commsim.cost.host import Parts, Wires, parts, pieces_of, regime
from commsim.cost.host_traffic import Layout, traffic
from commsim.cost.profile import Constant, Profile, Spread
from commsim.libraries.gloo import ALGORITHMS, MAX_SEGMENT
from commsim.libraries.mpi import select

Vector = npt.NDArray[np.float64]
ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "validation/published/gloo_lab.csv"
PROFILES = ROOT / "commsim/cost/profiles"
CORES = 2  # of the machine that ran the lab
LARGE = 256 * 1024
# tc tbf's burst by link rate in Mbit/s, as the table's head states
BURSTS = ((1000, 128 * 1024), (500, 64 * 1024), (1, 32 * 1024))


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One median of the table, in base units."""

    backend: str
    op: str
    topology: str
    ranks: int
    link: int
    uplink: int
    nbytes: int
    time: float

    @property
    def place(self) -> str:
        """The topology as text: star/500, two-level/2000/200."""
        return "/".join(str(x) for x in (self.topology, self.link, self.uplink) if x)


def read() -> list[Row]:
    with TABLE.open(encoding="utf-8") as file:
        rows = csv.DictReader(line for line in file if not line.startswith("#"))
        return [
            Row(
                backend=r["backend"], op=r["op"], topology=r["topology"], ranks=int(r["ranks"]),
                link=int(r["link_mbit"]), uplink=int(r["uplink_mbit"]), nbytes=int(r["bytes"]),
                time=float(r["time_us"]) * 1e-6,
            )
            for r in rows
        ]  # fmt: skip


def burst(link: int) -> float:
    return next((size for rate, size in BURSTS if link >= rate), 0)


def wires(row: Row) -> Wires:
    """star: a rank's link is its machine's port; two-level: the uplink is, and it has its own."""
    own = row.link * 1e6 / 8 if row.link else math.inf
    if not row.uplink:
        return Wires(port=own, cores=CORES, burst=burst(row.link))
    port = row.uplink * 1e6 / 8
    return Wires(port=port, own=own, cores=CORES, burst=burst(min(row.link, row.uplink)))


def operation(row: Row) -> str:
    """The contract's name: ring_shift is its send_recv without a root."""
    return "send_recv" if row.op == "ring_shift" else row.op


def algorithm(row: Row) -> str:
    """The algorithm that the library takes for this row."""
    op = operation(row)
    if row.backend == "gloo":
        return ALGORITHMS[op][0]
    inside = row.topology == "shared-memory"
    return select(op, row.nbytes, 4, row.ranks, inside, 5)[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """A constant to fit: where the search starts, and its bounds."""

    start: float
    low: float
    high: float
    unit: str
    meaning: str

    @property
    def machines(self) -> float:
        """Standard deviation of its logarithm from one machine to the next. Nothing measured tells
        it (the lab is one machine): processors and their TCP stacks are taken to differ by a factor
        of 1.6, shares of a line's rate by a hundredth, exponents by a fifth."""
        share = self.meaning.startswith("share of the line")
        return 0.5 if self.unit != RATIO else 0.01 if share else 0.2

    @property
    def limits(self) -> tuple[float, float]:
        """What physics allows a calibration."""
        return (self.low, self.high) if self.unit == RATIO else (0.0, math.inf)


SECONDS, PER_BYTE, RATIO, BYTES = "s", "s/byte", "1", "bytes"


def unknown(unit: str, start: float, low: float, high: float, meaning: str) -> Unknown:
    return Unknown(start=start, low=low, high=high, unit=unit, meaning=meaning)


COMMON = {
    "launch": unknown(SECONDS, 1e-4, 1e-8, 1e-2, "a process starting and ending an operation"),
    "hop": unknown(SECONDS, 3e-5, 1e-8, 1e-3, "wait for one message of a chain"),
    "message": unknown(SECONDS, 2e-5, 1e-8, 1e-3, "a process sending or receiving one message"),
    "byte": unknown(PER_BYTE, 2e-10, 1e-11, 1e-8, "a process sending or receiving one byte"),
    "copy_byte": unknown(PER_BYTE, 1e-10, 1e-12, 1e-8, "copying one byte in memory"),
    "reduce_byte": unknown(PER_BYTE, 1e-10, 1e-12, 1e-8, "adding up one byte"),
}
# Not fitted: the lab's MTU is 9000, so a frame has 9014 bytes, of which TCP with timestamps fills
# 8948 with data, and it acknowledges every second one by a frame of 66 bytes.
_MTU = "a frame of 9014 bytes (the MTU of 9000 of validation/published/gloo_lab.csv)"
FRAMES = {
    "efficiency": Constant(
        value=8948 / 9014, unit="1", meaning="share of the line rate that TCP data reaches",
        birthplace=f"8948 bytes of data in {_MTU}",
    ),
    "acknowledgements": Constant(
        value=66 / (2 * 9014), unit="1", meaning="what is sent back of what comes in",
        birthplace=f"66 bytes for every second of {_MTU}",
    ),
}  # fmt: skip
OVERLAP = unknown(RATIO, 2, 1.0, 12.0, "exponent that joins process and network time")
GLOO = COMMON | {
    "copy_byte.ring.all_gather": unknown(
        PER_BYTE, 3e-10, 1e-12, 1e-8, "the same in all_gather, whose buffer is new to the process"
    ),
    "overlap.ring.all_reduce": OVERLAP,
    "overlap.ring.all_gather": OVERLAP,
    "overlap.ring_then_slice.reduce_scatter": OVERLAP,
    "overlap.linear.all_to_all": OVERLAP,
    "overlap.flooded_binomial.broadcast": OVERLAP,
    "overlap.p2p.send_recv": OVERLAP,
    "duplex.linear.all_to_all": unknown(
        RATIO, 1, 1e-3, 1.5, "extra port time where one connection carries bulk data both ways"
    ),
    "duplex.ring.all_gather": unknown(
        RATIO, 0.5, 1e-3, 1.5, "the same, for the all_gather of two ranks"
    ),
    "queue": unknown(
        BYTES, 1.3e5, 1e3, 1e7, "what waits in a sender's own queue before a control message"
    ),
    "duplex_decay": unknown(
        RATIO, 0.7, 0.1, 2, "how that fades with the number of such connections of a process"
    ),
}
MPI = COMMON | {
    "overlap": OVERLAP,
    "local_hop": unknown(SECONDS, 1e-6, 1e-8, 1e-4, "hop through shared memory"),
    "local_message": unknown(SECONDS, 1e-6, 1e-8, 1e-4, "message through shared memory"),
    "local_byte": unknown(PER_BYTE, 5e-11, 1e-12, 1e-8, "byte through shared memory"),
}
# What belongs to the runs and not to MPI: fitted with it, left out of the profile.
RUNS = {
    "lab_start": unknown(SECONDS, 3e-5, 1e-8, 1e-3, "waking up at the common start time"),
    "loopback_hop": unknown(SECONDS, 5e-6, 1e-8, 1e-3, "hop over loopback, not a network"),
}
LOCAL = ("hop", "message", "byte")


def complete(k: dict[str, float]) -> dict[str, float]:
    """With the constants that follow from others: Gloo uses TCP inside a machine too, and an
    operation whose overlap was not measured gets the median of those that were."""
    k = k | {f"local_{name}": k[name] for name in LOCAL if f"local_{name}" not in k}
    k |= {name: constant.value for name, constant in FRAMES.items()}
    if "overlap" not in k:
        k["overlap"] = float(np.median([v for n, v in k.items() if n.startswith("overlap.")]))
    return k


def predict(row: Row, k: Mapping[str, float]) -> Parts:
    """The parts of the row's duration, s."""
    hosts = {"shared-memory": 1, "two-level": 2}.get(row.topology, row.ranks)
    inside = hosts == 1
    at = Layout(
        n=row.ranks, hosts=hosts, per_host=row.ranks // hosts, near=row.ranks // hosts,
        crossings=0 if inside else 1,
        segment=MAX_SEGMENT if row.backend == "gloo" else 0, one_way=row.op == "send_recv",
    )  # fmt: skip
    name, op = algorithm(row), operation(row)
    moved = traffic(name, op, 0.0 if op == "barrier" else float(row.nbytes), at)
    if row.topology == "loopback":
        k = {**k, "hop": k["loopback_hop"]}
    elif row.backend == "mpich" and not inside:
        k = {**k, "launch": k["launch"] + k["lab_start"]}
    return parts(moved, wires(row), row.ranks, f"{name}.{op}", k)


def errors(rows: list[Row], k: Mapping[str, float]) -> Vector:
    """ln(measured / predicted) of each row."""
    return np.array([math.log(row.time / predict(row, k).duration) for row in rows])


def fit(rows: list[Row], unknowns: Mapping[str, Unknown]) -> tuple[dict[str, float], Vector]:
    """The constants, and the standard error of the logarithm of each."""
    names = list(unknowns)
    low = np.log([unknowns[n].low for n in names])
    high = np.log([unknowns[n].high for n in names])
    start = np.log([unknowns[n].start for n in names])
    # below 256 KiB repeats of one run scatter by 30 %: those rows weigh less
    weight = np.array([1.0 if row.nbytes >= LARGE else 0.4 for row in rows])

    def constants(x: Vector) -> dict[str, float]:
        return {name: float(value) for name, value in zip(names, np.exp(x), strict=True)}

    def residuals(x: Vector) -> Vector:
        return weight * errors(rows, complete(constants(x)))

    start = np.clip(start, low + 1e-6, high - 1e-6)
    found = least_squares(
        residuals, start, bounds=(low, high), loss="soft_l1", f_scale=0.1, max_nfev=400
    )
    scale = 2 * found.cost / (len(rows) - len(names))
    covariance = np.linalg.pinv(found.jac.T @ found.jac) * scale
    return constants(found.x), np.sqrt(np.diag(covariance))


def say(title: str, rows: list[Row], k: Mapping[str, float]) -> None:
    """One line of errors for rows from 256 KiB up, and one for those below."""
    for what, part in (
        (">= 256 KiB", [row for row in rows if row.nbytes >= LARGE]),
        ("< 256 KiB", [row for row in rows if row.nbytes < LARGE]),
    ):
        if part:
            off = np.abs(np.expm1(-errors(part, k)))
            print(
                f"{title:48s} {what:10s} {len(part):4d} rows  median {np.median(off):6.1%}  "
                f"mean {np.mean(off):6.1%}  90 % {np.quantile(off, 0.9):6.1%}"
            )


def spreads(rows: list[Row], k: Mapping[str, float]) -> dict[str, Spread]:
    """The central 80 % of the held-out residuals by regime, at least 2 % to each side."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        pieces = pieces_of([predict(row, k)], 0.0)
        waiting = pieces["launch"] + pieces["latency"]
        groups.setdefault(regime(waiting, sum(pieces.values())), []).append(row)
    found = {}
    for name in ("latency", "middle", "bandwidth"):
        off = errors(groups[name], k)
        low, high = float(np.quantile(off, 0.1)), float(np.quantile(off, 0.9))
        found[name] = Spread(low=min(low, -0.02), high=max(high, 0.02), points=len(off))
    return found


def book(
    name: str, rows: list[Row], train: list[Row], held: list[Row], unknowns: Mapping[str, Unknown]
) -> Profile:
    """The fitted profile; prints its errors."""
    values, deviation = fit(train, unknowns)
    k = complete(values)
    say(f"{name} fitted", train, k)
    say(f"{name} held out", held, k)
    for op in sorted({row.op for row in held}):
        say(f"{name} held out, {op}", [row for row in held if row.op == op], k)
    for place in sorted({row.place for row in held}):
        say(f"{name} held out, {place}", [row for row in held if row.place == place], k)
    rest = [row for row in rows if row not in {*train, *held}]
    say(f"{name} not used (busy or crowded machine)", rest, k)

    places = ", ".join(sorted({row.place for row in train}))
    birth = f"least squares on {len(train)} medians of {TABLE.relative_to(ROOT)} ({places})"
    made = dict(zip(values, deviation, strict=True))
    constants = {}
    for key, value in k.items():
        if key in RUNS:
            continue
        if key in FRAMES:
            constants[key] = FRAMES[key]
            continue
        source = key if key in unknowns else key.removeprefix("local_")
        about = unknowns.get(source, OVERLAP)
        where = "" if key in unknowns else "; TCP inside a machine as between machines"
        if key == "overlap" and key not in unknowns:
            where = "; the median of the exponents fitted by operation"
        constants[key] = Constant(
            value=value, unit=about.unit, meaning=about.meaning, birthplace=birth + where,
            error=float(made.get(source, 0.0)), machines=about.machines, limits=about.limits,
        )  # fmt: skip
    fitted = {
        "operation": tuple(sorted({operation(row) for row in train})),
        "max_ranks": (str(max(row.ranks for row in train)),),
        "max_port": (f"{max(row.link for row in train) * 1e6 / 8:.0f}",),
    }
    return Profile(
        name=name, source="python -m validation.fit_host", constants=constants,
        spreads=spreads(held, k), fitted=fitted,
    )  # fmt: skip


def split(rows: list[Row]) -> tuple[list[Row], list[Row]]:
    """The rows of one library to fit on, and those held out: other links and other topologies.

    MPICH: 4 ranks on shaped links; with 2 the machine was busy, with 8 ranks spin on 2 cores, and
    neither is used.
    """
    if rows[0].backend == "gloo":
        train = [row for row in rows if row.place in ("star", "star/500", "star/1000")]
        return train, [row for row in rows if row not in set(train)]
    own = [row for row in rows if row.place in ("loopback", "shared-memory")]
    four = [row for row in rows if row.ranks == 4]
    return (
        own + [row for row in four if row.place == "star/500"],
        [row for row in four if row.place == "star/1000"],
    )


def main() -> None:
    rows = read()
    for name, backend, unknowns in (("gloo", "gloo", GLOO), ("mpi", "mpich", MPI | RUNS)):
        mine = [row for row in rows if row.backend == backend]
        train, held = split(mine)
        book(name, mine, train, held, unknowns).save(PROFILES / f"{name}.toml")


if __name__ == "__main__":
    main()
