"""Comma-, semicolon- or tab-separated tables with a line of names, yours or those of a tool.

    op,bytes,time_us,ranks
    all_reduce,1048576,41.2,8

Names: op, bytes, a time with its unit (time_us, duration_s; time_us_oop and time_us_ip for both
halves), algbw and busbw in GB/s, dtype, redop, root, ranks, nodes, in_place, wrong, in any order;
others are passed over. rccl-tests' own CSV (`-Z csv`) reads the same way.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator

from commsim.errors import UnitError
from commsim.measurements import log, names
from commsim.measurements.record import Context, is_table, rows
from commsim.measurements.row import Problem, Row

_DELIMITERS = ",;\t"
_TOP = 100_000  # characters in which the line of names must begin


def recognises(text: str) -> bool:
    return _header(text[:_TOP]) is not None


def read(text: str, name: str) -> Iterator[Row | Problem]:
    header = _header(text[:_TOP])
    if header is None:
        return
    start, delimiter = header
    context = Context(operation=names.operation_in(name), n_ranks=log.processes(text[:_TOP]))
    columns: list[str] = []
    for i, line in log.lines(text):
        if i < start or not line.strip() or line.lstrip().startswith("#"):
            continue
        cells = _cells(line, delimiter)
        if not columns:
            columns = cells
        elif cells != columns:  # the names may stand there again, in files put together
            try:
                if len(cells) != len(columns):
                    raise ValueError(f"{len(columns)} cells, got {len(cells)}")
                yield from rows(i, dict(zip(columns, cells, strict=True)), context)
            except UnitError as error:
                yield Problem(i, str(error))
            except ValueError as error:
                yield Problem(i, f"expected {error}")


def _header(text: str) -> tuple[int, str] | None:
    """The line of the names, the first that is no comment, and what stands between them."""
    for i, line in log.lines(text):
        if line.strip() and not line.startswith("#"):
            for delimiter in _DELIMITERS:
                if delimiter in line and is_table(_cells(line, delimiter)):
                    return i, delimiter
            return None
    return None


def _cells(line: str, delimiter: str) -> list[str]:
    if '"' not in line:
        return [cell.strip() for cell in line.split(delimiter)]
    return [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter), [])]
