"""Rows from named figures: what CSV and JSON share.

A name is taken apart into words, so that "time_us_oop", "timeUs oop" and "Time (us), oop" are one.
A time names its unit (`time_us`, `duration_s`); without one it is in us where bandwidths stand
beside it, as nccl-tests writes them, and refused else. Bandwidths are in GB/s (10^9) unless their
name says otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from commsim.collectives.collective import ROOTED
from commsim.measurements import names
from commsim.measurements.row import Row, duration_of, number
from commsim.units import parse_size

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SECONDS = {
    "s": 1.0, "sec": 1.0, "seconds": 1.0, "ms": 1e-3, "msec": 1e-3, "milliseconds": 1e-3,
    "us": 1e-6, "usec": 1e-6, "microseconds": 1e-6, "ns": 1e-9, "nanoseconds": 1e-9,
}  # fmt: skip
_RATES = {"bytes": 1.0, "mb": 1e6, "gb": 1e9, "gbit": 1e9 / 8, "gbits": 1e9 / 8, "gbps": 1e9 / 8}
_NOT_THE_MIDDLE = frozenset({"min", "max", "std", "stddev", "75", "90", "95", "99", "total"})
_PLAIN = {
    "op": "operation", "operation": "operation", "collective": "operation", "coll": "operation",
    "name": "operation", "test": "operation", "primitive": "operation", "bytes": "size",
    "nbytes": "size", "size": "size", "message size": "size", "msg size": "size", "size b": "size",
    "size bytes": "size", "message size bytes": "size", "total size b": "size", "ranks": "ranks",
    "nranks": "ranks", "n ranks": "ranks", "world size": "ranks", "gpus": "ranks", "ngpus": "ranks",
    "nprocs": "ranks", "num ranks": "ranks", "num gpus": "ranks", "nodes": "nodes",
    "nnodes": "nodes", "n nodes": "nodes", "num nodes": "nodes", "dtype": "dtype", "type": "dtype",
    "data type": "dtype", "redop": "reduce_op", "reduce op": "reduce_op", "root": "root",
    "in place": "in_place", "inplace": "in_place", "wrong": "wrong", "nwrong": "wrong",
    "samples": "samples", "samples s": "samples",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Column:
    """What a name stands for: one of the kinds above, or a time, algbw, busbw of one half."""

    kind: str
    factor: float | None = None
    in_place: bool | None = None


@lru_cache(maxsize=1024)
def column(name: str) -> Column | None:
    """The column of that name; None for one that is not needed."""
    words = [word.lower() for word in _WORDS.findall(name[:80].replace("µ", "u"))]
    kind = _PLAIN.get(" ".join(words))
    if kind is not None:
        return Column(kind)
    known = frozenset(words)
    if known & _NOT_THE_MIDDLE:
        return None
    half = None
    if "ip" in known or ("in" in known and "place" in known):
        half = not known & {"oop", "out"}
    elif known & {"oop", "out"}:
        half = False
    together = "".join(words)
    for kind, starts in (("algbw", ("algbw", "algorithmb")), ("busbw", ("busbw", "busb"))):
        if any(start in together for start in starts):
            return Column(kind, next((_RATES[w] for w in words if w in _RATES), 1e9), half)
    if known & {"time", "duration", "latency", "elapsed"} and "stamp" not in known:
        return Column("time", next((_SECONDS[w] for w in words if w in _SECONDS), None), half)
    return None


@dataclass(slots=True)
class Context:
    """What holds for every record of a file that does not say otherwise."""

    operation: str | None = None
    n_ranks: int | None = None
    nodes: int | None = None
    source: tuple[tuple[str, str], ...] = ()


def is_table(columns: Iterable[str]) -> bool:
    """Whether there is a size, or an operation, and something that a duration comes from."""
    kinds = {found.kind for name in columns if (found := column(name)) is not None}
    return bool(kinds & {"size", "operation"}) and bool(kinds & {"time", "algbw", "busbw"})


def rows(line: int, record: Mapping[str, object], context: Context) -> Iterator[Row]:
    """The out-of-place and the in-place row of one record; raises ValueError."""
    said: dict[str, object] = {}
    halves: dict[bool | None, dict[str, tuple[float, float | None]]] = {}
    for name, value in record.items():
        found = column(name)
        if found is None:
            continue
        if found.kind not in ("time", "algbw", "busbw"):
            said.setdefault(found.kind, value)
        elif (figure := number(value)) is not None:
            halves.setdefault(found.in_place, {}).setdefault(found.kind, (figure, found.factor))
    if not halves:
        return
    operation, dtype, reduce_op, root, said_ranks, said_nodes, flag = _stated(
        *(said.get(kind) for kind in _STATED), context.operation
    )
    nbytes = _size(said.get("size", 0 if operation == "barrier" else None))
    n_ranks, nodes = said_ranks or context.n_ranks, said_nodes or context.nodes
    wrong = _count(said.get("wrong"))
    samples = said.get("samples")
    for in_place, figures in halves.items():
        rates = {kind: figure * (factor or 1) for kind, (figure, factor) in figures.items()}
        if "time" in figures and figures["time"][1] is None:
            if len(rates) == 1:
                raise ValueError("a time with its unit, such as time_us or duration_s, got none")
            rates["time"] *= 1e-6
        duration, of = rates.get("time", 0.0), "time"
        if not duration:
            duration, of = duration_of(
                rates.get("algbw", 0.0), rates.get("busbw", 0.0), operation, nbytes, n_ranks
            )
        if not duration:
            continue
        yield Row(
            line, duration, operation, nbytes, n_ranks, nodes, dtype, reduce_op, root, False,
            flag if in_place is None else in_place, wrong,
            context.source if of == "time" else (*context.source, ("duration_from", of)),
            tuple(s for s in map(number, samples) if s) if isinstance(samples, list) else (),
        )  # fmt: skip


_STATED = ("operation", "dtype", "reduce_op", "root", "ranks", "nodes", "in_place")


@lru_cache(maxsize=1024)
def _stated(
    operation: object,
    dtype: object,
    reduce_op: object,
    root: object,
    ranks: object,
    nodes: object,
    in_place: object,
    default: str | None,
) -> tuple[str, str, str, int | None, int | None, int | None, bool]:
    """What is equal in many records, understood once; raises ValueError."""
    found = default
    if operation or found is None:
        found = names.operation(str(operation or ""))
    return (
        found,
        names.dtype(str(dtype)) if dtype else "float32",
        names.reduce_op(str(reduce_op)),
        _count(root) if found in ROOTED else None,
        _count(ranks),
        _count(nodes),
        str(in_place).strip().lower() in ("1", "true", "yes", "in", "in-place", "in_place"),
    )


def _size(value: object) -> int:
    if isinstance(value, str) and not value.strip().isdecimal():
        return parse_size(value)
    found = number(value)
    if found is None or found != int(found):
        raise ValueError(f"a whole number of bytes, got {str(value)[:40]!r}")
    return int(value) if isinstance(value, str | int) else int(found)


def _count(value: object) -> int | None:
    if value is None or str(value).strip() == "-1":
        return None
    found = number(value)
    if found is not None and found != int(found):
        raise ValueError(f"a whole number, got {str(value)[:40]!r}")
    return None if found is None else int(found)
