"""The lab's tables: predicted beside measured, and the rows as CSV."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from commsim.units import KIB, MIB, format_size
from validation.lab.compare import Compared, summary
from validation.lab.layout import MBIT
from validation.lab.run import Result

COLUMNS = (
    "backend", "op", "topology", "ranks", "link_mbit", "uplink_mbit", "bytes", "repeats",
    "time_us", "low_us", "high_us", "predicted_us", "algorithm", "identified",
    "cores", "messages_by", "bytes_by", "copies_by",
)  # fmt: skip
NOISY = 0.1  # spread of the repeats from which a row says more about the machine than the network


def table(rows: list[Compared]) -> None:
    """One line a case of one topology."""
    if not rows:
        return
    shown = Table(title=f"{rows[0].backend} on {rows[0].layout.name} Mbit/s", title_justify="left")
    for name in ("operation", "size", "measured ms", "predicted ms", "error", "spread"):
        shown.add_column(name, justify="left" if name == "operation" else "right")
    shown.add_column("sent per rank / size", justify="left")
    shown.add_column("algorithm by the bytes", justify="left")
    for row in rows:
        result = row.result
        sent = [nbytes / max(1, result.case.nbytes) for nbytes in result.device]
        told = "too few bytes" if row.identified is None else str(row.identified)
        if not row.agrees:
            told += f" (the model has {row.algorithm})"
        shown.add_row(
            result.case.op, format_size(result.case.nbytes),
            f"{result.median * 1e3:.2f}", f"{row.predicted * 1e3:.2f}", f"{row.error:+.1%}",
            f"{result.spread:.1%}" + (" noisy" if result.spread > NOISY else ""),
            " ".join(f"{x:.2f}" for x in sent), told,
        )  # fmt: skip
    Console(width=150, highlight=False).print(shown)


def loopback(backend: str, results: Iterable[Result]) -> None:
    """What the machine's own loopback took: there is no network to predict."""
    for result in results:
        print(
            f"{backend} loopback {result.case.op:14s} {format_size(result.case.nbytes):>8s} "
            f"{result.median * 1e3:9.3f} ms (spread {result.spread:.0%})"
        )


def summaries(rows: list[Compared]) -> None:
    """Median and largest error by backend and operation, from 256 KiB and from 4 MiB up."""
    for backend in dict.fromkeys(row.backend for row in rows):
        mine = [row for row in rows if row.backend == backend]
        for least in (256 * KIB, 4 * MIB):
            for op, (cases, median, largest) in summary(mine, least).items():
                print(
                    f"{backend} {op:14s} from {format_size(least):>7s}: {cases:3d} cases, "
                    f"median error {median:.1%}, largest {largest:.1%}"
                )
        wrong = [row for row in mine if not row.agrees]
        for row in wrong:
            print(f"{backend} {row.layout.name} {row.result.case.op}: {row.identified}")


def write(rows: Iterable[Compared], path: Path) -> None:
    """The rows in the columns of validation/published/gloo_lab.csv, with what was predicted."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for row in rows:
            result, layout = row.result, row.layout
            by = row.cores.speed
            us = [f"{1e6 * t:.1f}" for t in (result.median, min(result.times), max(result.times))]
            writer.writerow([
                {"mpi": "mpich"}.get(row.backend, row.backend), result.case.op, layout.shape,
                layout.n, f"{layout.link / MBIT:.6g}", f"{layout.uplink / MBIT:.6g}",
                result.case.nbytes, len(result.times), *us, f"{1e6 * row.predicted:.1f}",
                row.algorithm, "" if row.identified is None else str(row.identified),
                row.cores.number, *(f"{x:.4g}" for x in (by.messages, by.nbytes, by.copies)),
            ])  # fmt: skip
