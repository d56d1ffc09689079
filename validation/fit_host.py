"""Fits the constants of the Gloo and MPI cost model and writes them as profiles: `python -m
validation.fit_host`.

Reads validation/published/gloo_lab.csv (real runs over shaped links), fits on some of its
topologies by least squares on ln(predicted / measured), reports the error on the others, and writes
commsim/cost/profiles/gloo.toml and mpi.toml.
"""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

from commsim.cost.host import Wires, parts
from commsim.cost.host_traffic import Layout, traffic
from commsim.cost.profile import Constant, Profile, Spread
from commsim.libraries.gloo import ALGORITHMS, MAX_SEGMENT
from commsim.libraries.mpi import select

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
    rate = row.link * 1e6 / 8 if row.link else math.inf
    cut = row.uplink * 1e6 / 8 if row.uplink else math.inf
    slowest = min(x for x in (row.link, row.uplink, 10**9) if x)
    return Wires(port=rate, cut=cut, cores=CORES, burst=burst(slowest) if slowest < 10**9 else 0)


def algorithm(row: Row) -> str:
    """The algorithm that the library takes for this row."""
    op = "send_recv" if row.op == "ring_shift" else row.op
    if row.backend == "gloo":
        return ALGORITHMS[op][0]
    inside = row.topology == "shared-memory"
    return select(op, row.nbytes, 4, row.ranks, inside, 5)[0]


def predict(row: Row, k: Mapping[str, float]) -> float:
    inside = row.topology == "shared-memory"
    at = Layout(
        n=row.ranks, hosts=1 if inside else row.ranks, per_host=row.ranks if inside else 1,
        near=row.ranks if inside else 1, crossings=0 if inside else 1,
        segment=MAX_SEGMENT if row.backend == "gloo" else 0, one_way=row.op == "send_recv",
    )  # fmt: skip
    op = "send_recv" if row.op == "ring_shift" else row.op
    name = algorithm(row)
    moved = traffic(name, op, 0.0 if op == "barrier" else float(row.nbytes), at)
    if row.topology == "loopback":
        k = {**k, "hop": k["loopback_hop"]}
    if row.topology in ("loopback", "shared-memory"):
        k = {**k, "launch": 0.0}
    return parts(moved, wires(row), row.ranks, f"{name}.{op}", k).duration


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """A constant to fit: start and bounds. kept: it goes into the profile."""

    start: float
    low: float
    high: float
    unit: str
    meaning: str
    kept: bool = True


COMMON = {
    "launch": Unknown(start=1e-4, low=1e-6, high=1e-2, unit="s", meaning="what a process spends to start and end an operation"),
    "hop": Unknown(start=3e-5, low=1e-7, high=1e-3, unit="s", meaning="wait for one message of a chain"),
    "message": Unknown(start=2e-5, low=1e-8, high=1e-3, unit="s", meaning="processor time to send or receive one message"),
    "byte": Unknown(start=2e-10, low=1e-11, high=1e-8, unit="s/byte", meaning="processor time to send or receive one byte"),
    "copy_byte": Unknown(start=1e-10, low=1e-12, high=1e-8, unit="s/byte", meaning="to copy one byte in memory"),
    "reduce_byte": Unknown(start=1e-10, low=1e-12, high=1e-8, unit="s/byte", meaning="to add one byte up"),
    "efficiency": Unknown(start=0.99, low=0.8, high=1.0, unit="1", meaning="share of the line rate that TCP data reaches"),
    "overlap": Unknown(start=2, low=1.0, high=12.0, unit="1", meaning="exponent by which host and network time join"),
}  # fmt: skip


def overlap(*tags: str) -> dict[str, Unknown]:
    return {
        f"overlap.{tag}": Unknown(
            start=2, low=1.0, high=12.0, unit="1", meaning="the exponent for this algorithm and operation"
        )
        for tag in tags
    }  # fmt: skip


GLOO = COMMON | overlap(
    "ring.all_reduce", "ring.all_gather", "ring_then_slice.reduce_scatter", "linear.all_to_all",
    "flooded_binomial.broadcast", "p2p.send_recv",
) | {
    "duplex.linear.all_to_all": Unknown(
        start=1, low=1e-3, high=1.5, unit="1", meaning="extra network time where one connection carries bulk data both ways"
    ),
    "duplex.ring.all_gather": Unknown(
        start=0.5, low=1e-3, high=1.5, unit="1", meaning="the same for the ring all_gather of two ranks"
    ),
    "duplex_decay": Unknown(
        start=0.7, low=0.1, high=2, unit="1", meaning="how fast that fades with the number of such connections"
    ),
}  # fmt: skip
MPI = COMMON | {
    "local_hop": Unknown(start=1e-6, low=1e-8, high=1e-4, unit="s", meaning="hop through shared memory"),
    "local_message": Unknown(start=1e-6, low=1e-8, high=1e-4, unit="s", meaning="message through shared memory"),
    "local_byte": Unknown(start=5e-11, low=1e-12, high=1e-8, unit="s/byte", meaning="byte through shared memory"),
    "loopback_hop": Unknown(start=5e-6, low=1e-8, high=1e-3, unit="s", meaning="", kept=False),
}  # fmt: skip

LOCAL = ("hop", "message", "byte")


def complete(k: dict[str, float]) -> dict[str, float]:
    """Gloo goes over TCP inside a machine too: its local constants are the network's."""
    return k | {f"local_{name}": k[name] for name in LOCAL if f"local_{name}" not in k}


def fit(
    rows: list[Row], unknowns: Mapping[str, Unknown]
) -> tuple[dict[str, float], dict[str, float]]:
    """Constants, and the standard error of the logarithm of each."""
    names = list(unknowns)
    low = np.log([unknowns[n].low for n in names])
    high = np.log([unknowns[n].high for n in names])
    weight = np.array([1.0 if r.nbytes >= LARGE else 0.4 for r in rows])

    def residuals(x: np.ndarray) -> np.ndarray:
        k = complete(dict(zip(names, np.exp(x), strict=True)))
        return weight * np.array([math.log(predict(r, k) / r.time) for r in rows])

    start = np.clip(np.log([unknowns[n].start for n in names]), low + 1e-6, high - 1e-6)
    found = least_squares(
        residuals, start, bounds=(low, high), loss="soft_l1", f_scale=0.1, max_nfev=60
    )
    values = dict(zip(names, np.exp(found.x), strict=True))
    spread = (
        np.linalg.pinv(found.jac.T @ found.jac) * 2 * found.cost / max(1, len(rows) - len(names))
    )
    return values, dict(zip(names, np.sqrt(np.diag(spread)), strict=True))


def errors(rows: Iterable[Row], k: Mapping[str, float]) -> np.ndarray:
    return np.array([math.log(r.time / predict(r, k)) for r in rows])


def table(
    title: str, rows: list[Row], k: Mapping[str, float], key: Callable[[Row], object]
) -> None:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(str(key(row)), []).append(row)
    for name, group in sorted(groups.items()):
        err = np.abs(np.expm1(-errors(group, k)))
        print(
            f"  {title} {name:38s} {len(group):4d} rows  median {np.median(err):6.1%}  90 % {np.quantile(err, 0.9):6.1%}",
            file=sys.stderr,
        )


def regime(row: Row, k: Mapping[str, float]) -> str:
    return (
        "bandwidth" if row.nbytes >= 1 << 20 else "middle" if row.nbytes >= 1 << 16 else "latency"
    )


def main() -> None:
    rows = read()
    gloo = [r for r in rows if r.backend == "gloo"]
    taught = ("star", "star/500", "star/1000")
    run("gloo", gloo, [r for r in gloo if r.place in taught], GLOO)
    mpich = [r for r in rows if r.backend == "mpich"]
    run(
        "mpi",
        mpich,
        [
            r
            for r in mpich
            if r.place in ("loopback", "shared-memory")
            or (r.place == "star/500" and r.ranks in (2, 4))
        ],
        MPI,
    )


def run(name: str, rows: list[Row], train: list[Row], unknowns: Mapping[str, Unknown]) -> None:
    held = [r for r in rows if r not in set(train)]
    values, error = fit(train, unknowns)
    k = complete(values)
    for n, v in values.items():
        print(f"  {name} {n:36s} {v:.4g}  +- {error[n]:.2g}", file=sys.stderr)
    for title, group in (("fitted", train), ("held out", held)):
        large = [r for r in group if r.nbytes >= LARGE]
        small = [r for r in group if r.nbytes < LARGE]
        for what, part in ((">= 256 KiB", large), ("< 256 KiB", small)):
            err = np.abs(np.expm1(-errors(part, k)))
            print(
                f"{name} {title} {what}: {len(part)} rows, median {np.median(err):.1%}, mean {np.mean(err):.1%}, 90 % {np.quantile(err, 0.9):.1%}",
                file=sys.stderr,
            )
    table("held out >= 256 KiB", [r for r in held if r.nbytes >= LARGE], k, lambda r: r.op)
    table(
        "held out >= 256 KiB",
        [r for r in held if r.nbytes >= LARGE],
        k,
        lambda r: f"{r.place} n={r.ranks}",
    )
    table("held out < 256 KiB", [r for r in held if r.nbytes < LARGE], k, lambda r: r.op)
    where = ", ".join(sorted({r.place for r in train}))
    birth = f"least squares on {len(train)} medians of validation/published/gloo_lab.csv ({where})"
    constants = {
        n: Constant(
            value=float(v),
            unit=unknowns[n].unit,
            meaning=unknowns[n].meaning,
            birthplace=birth,
            error=float(error[n]),
        )
        for n, v in values.items()
        if unknowns[n].kept
    }
    for part in LOCAL:
        if f"local_{part}" not in constants:
            c = constants[part]
            constants[f"local_{part}"] = Constant(
                value=c.value,
                unit=c.unit,
                meaning=c.meaning + ", inside a machine",
                birthplace=birth + "; TCP there as well",
                error=c.error,
            )
    spreads = {}
    for name_ in ("latency", "middle", "bandwidth"):
        err = errors([r for r in held if regime(r, k) == name_], k)
        spreads[name_] = Spread(
            low=float(np.quantile(err, 0.1)), high=float(np.quantile(err, 0.9)), points=len(err)
        )
    Profile(
        name=name,
        source="python -m validation.fit_host",
        constants=constants,
        spreads=spreads,
        fitted={
            "ranks": tuple(str(n) for n in sorted({r.ranks for r in rows})),
            "operation": tuple(
                sorted({"send_recv" if r.op == "ring_shift" else r.op for r in rows})
            ),
            "port": (str(max(r.link for r in rows) * 1e6 / 8),),
        },
    ).save(PROFILES / f"{name}.toml")


if __name__ == "__main__":
    main()
