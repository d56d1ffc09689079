"""What is measured as lines for a reader: nccl-tests' table with the expected time behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from commsim.collectives.collective import DTYPES, REDUCTIONS, ROOTED, SHARED
from commsim.measure.plan import Plan, Step
from commsim.report.nccl_tests import TYPE_NAMES
from commsim.units import Seconds, format_size, format_time

Record = Mapping[str, Any]
_HALF = f"{'time':>9}{'algbw':>8}{'busbw':>8}{'#wrong':>8}"
_UNITS = f"{'(us)':>9}{'(GB/s)':>8}{'(GB/s)':>8}{'':8}"


def about(header: Record, plan: Plan) -> list[str]:
    """The run, in lines of comment: what, where, with what."""
    versions = ", ".join(f"{name} {version}" for name, version in header["versions"].items())
    devices = sorted({str(rank["device"]) for rank in header["ranks"]})
    settings = header["settings"]
    how = "one after another, mean of the ranks, as nccl-tests"
    if settings["timing"] == "isolated":
        how = "each alone, from the last rank's start to the last one's end"
    if {step.kind for step in plan.steps} <= {"gemm", "interference"}:
        how = "one after another"
    runs = f"{settings['iterations']} runs after {settings['warmup']} to warm up"
    ranks = "rank" if header["n_ranks"] == 1 else "ranks"
    lines = [
        f"# {header['n_ranks']} {ranks} on {header['nodes']} x {', '.join(devices)}; {versions}",
        f"# median of {runs}: {how}",
    ]
    for rank in header["ranks"]:
        where = f"#  rank {rank['rank']:>3} on {rank['host']}: {rank['device']}"
        doubt = rank["clock_error_s"]
        lines.append(f"{where}, clock known to {format_time(doubt)}" if doubt else where)
    return lines


def head(step: Step) -> list[str]:
    """The names and units of the columns of a step's kind."""
    if step.kind == "gemm":
        return [f"#{'m':>8}{'n':>9}{'k':>9}  {'dtype':<14}{'time':>10}{'quartiles':>22}"
                f"{'host':>10}{'rate':>12}",
                f"#{'':42}{'(us)':>10}{'(us)':>22}{'(us)':>10}{'(TFLOP/s)':>12}"]  # fmt: skip
    if step.kind == "interference":
        return [f"#{'size':>11}  {'what':<30}{'alone':>11}{'together':>11}{'slowdown':>10}",
                f"#{'(B)':>11}{'':32}{'(us)':>11}{'(us)':>11}"]  # fmt: skip
    if step.kind == "together":
        return [f"#{'size':>11}  {'group':<22}{'in place':>9}{'alone':>11}{'together':>11}"
                f"{'slowdown':>10}{'#wrong':>8}",
                f"#{'(B)':>11}{'':33}{'(us)':>11}{'(us)':>11}"]  # fmt: skip
    ranks = f"{'ranks':>10}"
    return [
        f"# {'':59}{'out-of-place':^33}{'in-place':^33}",
        f"#{'size':>11}{'count':>14}{'type':>10}{'redop':>8}{'root':>8}{_HALF}{_HALF}"
        f"{'expected':>10}{'measured':>10}{ranks}",
        f"#{'(B)':>11}{'(elements)':>14}{'':26}{_UNITS}{_UNITS}{'(us)':>10}{'/expected':>10}",
    ]


def rows(step: Step, records: Sequence[Record], expected: Seconds | None) -> list[str]:
    """A step's records as lines of its table."""
    if step.kind == "gemm":
        return [_gemm(record) for record in records]
    if step.kind == "interference":
        return [line for record in records for line in _interference(record)]
    if step.kind == "together":
        return [_together(record) for record in records if record["kind"] == "together"]
    return [_collective(records, expected)]


def _collective(records: Sequence[Record], expected: Seconds | None) -> str:
    """One size: nccl-tests' figures of both forms, N/A for one that was not measured."""
    first, halves = records[0], {record["in_place"]: record for record in records}
    operation, n = first["operation"], first["n_ranks"]
    count = first["size_bytes"] // DTYPES[first["dtype"]] // (n if operation in SHARED else 1)
    root = (first["root"] or 0) if operation in ROOTED else -1
    ratio = "N/A" if expected is None else f"{first['duration_s'] / expected:.2f}"
    ranks = "".join(_ranks(first["ranks"], first["root"] if operation == "send_recv" else None))
    return (
        f"{first['size_bytes']:>12}{count:>14}{TYPE_NAMES.get(first['dtype'], first['dtype']):>10}"
        f"{first['reduce_op'] if operation in REDUCTIONS else 'none':>8}{root:>8}"
        f"{_half(halves.get(False))}{_half(halves.get(True))}"
        f"{'N/A' if expected is None else short(expected * 1e6):>10}{ratio:>10}{ranks:>10}"
    )


def _half(record: Record | None) -> str:
    if record is None:
        return f"{'N/A':>9}{'N/A':>8}{'N/A':>8}{'N/A':>8}"
    wrong = "N/A" if record["wrong"] is None else str(record["wrong"])
    return (
        f"{short(record['duration_s'] * 1e6):>9}"
        f"{record['algorithm_bandwidth_bytes_per_s'] / 1e9:>8.2f}"
        f"{record['bus_bandwidth_bytes_per_s'] / 1e9:>8.2f}{wrong:>8}"
    )


def _ranks(ranks: Sequence[int], root: int | None) -> str:
    """0-3, 0,2,5 or, of a message one way, 0>1."""
    if root is not None:
        return f"{root}>{next(rank for rank in ranks if rank != root)}"
    if list(ranks) == list(range(ranks[0], ranks[0] + len(ranks))) and len(ranks) > 1:
        return f"{ranks[0]}-{ranks[-1]}"
    return ",".join(map(str, ranks))


def _together(record: Record) -> str:
    return (
        f"{record['size_bytes']:>12}  {_ranks(record['ranks'], None):<22}"
        f"{'yes' if record['in_place'] else 'no':>9}{short(record['alone_s'] * 1e6):>11}"
        f"{short(record['duration_s'] * 1e6):>11}{record['slowdown']:>10.2f}"
        f"{'N/A' if record['wrong'] is None else record['wrong']:>8}"
    )


def _interference(record: Record) -> list[str]:
    product = f"{record['m']}x{record['n']}x{record['k']} {record['dtype']}"
    lines = []
    for key, what in (("collective", record["operation"]), ("gemm", product)):
        found = record[key]
        together, factor = "N/A", "N/A"
        if found["together"] is not None:
            together = short(found["together"]["duration_s"] * 1e6)
            factor = f"{found['slowdown']:.2f}"
        lines.append(
            f"{record['size_bytes']:>12}  {what:<30}"
            f"{short(found['alone']['duration_s'] * 1e6):>11}{together:>11}{factor:>10}"
        )
    return lines


def _gemm(record: Record) -> str:
    what = f"{record['m']:>9}{record['n']:>9}{record['k']:>9}  {record['dtype']:<14}"
    if "error" in record:
        return f"{what}  {record['error']}"
    low, high = (short(1e6 * quartile) for quartile in record["quartiles_s"])
    return (
        f"{what}{short(record['duration_s'] * 1e6):>10}{f'{low} .. {high}':>22}"
        f"{short(record['host_s'] * 1e6):>10}{record['flops_per_s'] / 1e12:>12.4f}"
    )


def footer(plan: Plan, records: Sequence[Record]) -> list[str]:
    """What is said of all: nccl-tests' mean bus bandwidth and #wrong; the matrices of pairs."""
    found = [record for record in records if record["kind"] == "collective"]
    lines = []
    if any(step.kind == "collective" for step in plan.steps) and found:
        mean = sum(record["bus_bandwidth_bytes_per_s"] for record in found) / len(found) / 1e9
        lines.append(f"# Avg bus bandwidth    : {mean:.6g}")
    checked = [record["wrong"] for record in records if record.get("wrong") is not None]
    if checked:
        bad = sum(1 for wrong in checked if wrong)
        lines.insert(0, f"# Out of bounds values : {bad} {'FAILED' if bad else 'OK'}")
    pairs = [r for r in found if r["operation"] == "send_recv" and r["root"] is not None]
    if len({(r["root"], *r["ranks"]) for r in pairs}) > 1:
        lines += matrix(pairs)
    return lines


def matrix(pairs: Sequence[Record]) -> list[str]:
    """From the rank of a row to that of a column: us of the smallest, GB/s of the largest size."""
    small, large = (of(record["size_bytes"] for record in pairs) for of in (min, max))
    lines = _matrix(f"us for {format_size(small)}", small, pairs, lambda r: r["duration_s"] * 1e6)
    if large != small:
        lines += _matrix(f"GB/s at {format_size(large)}", large, pairs,
                         lambda r: r["algorithm_bandwidth_bytes_per_s"] / 1e9)  # fmt: skip
    return lines


def _matrix(title: str, size: int, pairs: Sequence[Record], figure: Any) -> list[str]:
    ranks = sorted({rank for record in pairs for rank in record["ranks"]})
    found = {
        (r["root"], next(x for x in r["ranks"] if x != r["root"])): f"{figure(r):.2f}"
        for r in pairs if r["size_bytes"] == size
    }  # fmt: skip
    lines = [
        f"# {title}, from row to column",
        "#" + f"{'':>7}" + "".join(f"{r:>10}" for r in ranks),
    ]
    return lines + [
        f"#{a:>7}" + "".join(f"{found.get((a, b), '-'):>10}" for b in ranks) for a in ranks
    ]


def short(number: float) -> str:
    """Digits that fit eight columns, as nccl-tests shortens its times."""
    for limit, places in ((1e4, 2), (1e5, 1), (1e8, 0)):
        if number < limit:
            return f"{number:.{places}f}"
    return f"{number:.2e}"
