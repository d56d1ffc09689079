"""`python -m validation.lab`: real collectives over shaped links, beside what commsim predicts.

python -m validation.lab [--quick] [--backend gloo|mpi] [--topology 4@500Mbit/s] [--output rows.csv]
python -m validation.lab ddp      # a training step of real DDP over a slow link
python -m validation.lab clean    # removes what labs that were killed left behind

Exit status: 0 it ran, 1 a run failed, 2 bad input.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from commsim.collectives.collective import OPERATIONS as ALL
from commsim.errors import CommsimError, SpecError
from commsim.units import KIB, MIB, parse_size
from validation.lab import ddp, report
from validation.lab.compare import Compared, compare
from validation.lab.cores import Cores
from validation.lab.layout import Layout, parse
from validation.lab.network import clean, network, refusal
from validation.lab.probe import probe
from validation.lab.run import BACKENDS, Case, run

# None of these link rates or shapes is in the table that the constants are fitted on.
FULL = (
    "3@300Mbit/s",
    "5@300Mbit/s",
    "6@700Mbit/s",
    "2x3@1Gbit/s,150Mbit/s",
    "3x2@1Gbit/s,300Mbit/s",
)
QUICK = ("3@300Mbit/s", "2x2@1Gbit/s,300Mbit/s")
# MPI's ranks spin while they wait: more of them than cores would measure the scheduler
FEW = ("2@300Mbit/s", "3@300Mbit/s")
OPERATIONS = ("all_reduce", "broadcast", "all_gather", "send_recv")
KNOWN = (*ALL, "ring_shift")  # every rank to the next; send_recv: one message across
SIZES = (256 * KIB, MIB, 4 * MIB, 16 * MIB)
LOOPBACK_RANKS = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs what was asked for; returns the exit status."""
    asked = _arguments(arguments)
    try:
        if asked.command == "clean":
            left = clean()
            print("\n".join(left) or "nothing left behind")
        elif asked.command == "ddp":
            ddp.main(asked.topology, quick=asked.quick)
        else:
            measure(asked)
    except SpecError as error:
        print(error, file=sys.stderr)
        return 2
    except CommsimError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; the lab is taken down", file=sys.stderr)
        return 130
    return 0


def measure(asked: argparse.Namespace) -> None:
    """Every operation and size on every topology; prints the table, writes the rows."""
    print(f"load of this machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    try:
        sizes = [parse_size(text) for text in asked.size] or list(
            SIZES[1:3] if asked.quick else SIZES
        )
    except CommsimError as error:
        raise SpecError([f"--size: {error}"]) from None
    unknown = [op for op in asked.op if op not in KNOWN]
    if unknown or asked.repeats < 1:
        raise SpecError(
            [f"--op {op}: expected one of {', '.join(KNOWN)}" for op in unknown]
            + [f"--repeats {asked.repeats}: expected 1 or more"] * (asked.repeats < 1)
        )
    cases = [Case(op=op, nbytes=n, repeats=asked.repeats) for op in asked.op for n in sizes]
    if why := refusal():
        print(f"no shaped links here: {why}; the machine's loopback instead, without predictions")
        for backend in asked.backend:
            report.loopback(backend, run(backend, cases, None, LOOPBACK_RANKS))
        return
    rows: list[Compared] = []
    for backend in asked.backend:
        cores = probe(backend)
        print(f"{backend}: {cores}")
        for layout in _layouts(backend, asked):
            found = _measured(backend, layout, cases, cores)
            report.table(found)
            rows += found
    report.summaries(rows)
    if asked.output:
        report.write(rows, asked.output)
        print(f"{len(rows)} rows in {asked.output}")


def _measured(backend: str, layout: Layout, cases: Sequence[Case], cores: Cores) -> list[Compared]:
    """Every case; those that came out noisy twice, and the steadier run counts."""
    start = time.monotonic()
    with network(layout) as built:
        results = run(backend, cases, built, layout.n)
        noisy = [i for i, result in enumerate(results) if result.spread > report.NOISY]
        again = run(backend, [cases[i] for i in noisy], built, layout.n) if noisy else []
    for i, result in zip(noisy, again, strict=True):
        results[i] = min(results[i], result, key=lambda each: each.spread)
    print(f"{backend} {layout.name}: {time.monotonic() - start:.1f} s", file=sys.stderr)
    return compare(backend, layout, results, cores)


def _layouts(backend: str, asked: argparse.Namespace) -> list[Layout]:
    known = (
        (QUICK[:1] if asked.quick else FEW) if backend == "mpi" else QUICK if asked.quick else FULL
    )
    return [parse(text) for text in asked.topology or known]


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    about = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(prog="python -m validation.lab", description=about)
    parser.add_argument(
        "command", nargs="?", choices=("measure", "ddp", "clean"), default="measure"
    )
    parser.add_argument("--quick", action="store_true", help="two topologies, two sizes: 25 s")
    parser.add_argument(
        "--backend", action="append", choices=BACKENDS, help="gloo (default) or mpi"
    )
    parser.add_argument(
        "--topology", action="append", help='"4@500Mbit/s", "2x3@1Gbit/s,150Mbit/s"'
    )
    parser.add_argument("--op", action="append", help=f"default {', '.join(OPERATIONS)}")
    parser.add_argument("--size", action="append", default=[], help="such as 4MiB")
    parser.add_argument("--repeats", type=int, default=3, help="the median counts (default 3)")
    parser.add_argument("--output", type=Path, help="write the rows as CSV")
    asked = parser.parse_args(arguments)
    asked.backend = asked.backend or ["gloo"]
    asked.op = asked.op or list(OPERATIONS)
    return asked


if __name__ == "__main__":
    sys.exit(main())
