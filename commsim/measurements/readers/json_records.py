"""JSON of nccl-tests (`-J`), of rccl-tests (`-Z json`), or records of your own.

    {"nccl_version": ..., "args": ["./all_reduce_perf", ...], "devices": [{"rank": 0, ...}, ...],
     "results": [{"size": 1024, "type": "float", ..., "out_of_place": {"time": 12.3, ...}, ...}]}

Listed, or one a line. A record is any object with a size and a time or bandwidth, or with an
`out_of_place` or `in_place` object that has them; names as in `table`. What an object says outside
of its records (operation, ranks, nodes, devices, versions) holds for all of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from commsim.errors import UnitError
from commsim.measurements import log, names
from commsim.measurements.record import Context, column, is_table, rows
from commsim.measurements.row import Problem, Row

_START = re.compile(r"\s*[\[{]\s*[\[{\"]")
_PROGRAM = re.compile(r"(\w{3,30})_perf\b")
_HARNESS = re.compile(r"\s*\{\"commsim_measure\"")  # has a reader of its own
_HALVES = ("out_of_place", "in_place")


def recognises(text: str) -> bool:
    return _START.match(text) is not None and _HARNESS.match(text) is None


def read(text: str, name: str) -> Iterator[Row | Problem]:
    context = Context(operation=names.operation_in(name))
    try:
        documents = [(1, json.loads(text))]
    except (ValueError, RecursionError) as whole:
        documents = []
        for i, line in log.lines(text):
            if line.strip():
                try:
                    documents.append((i, json.loads(line)))
                except (ValueError, RecursionError) as error:
                    # a file that is one document is wrong where the whole of it is
                    found = error if documents else whole
                    at = i if documents else getattr(whole, "lineno", 1)
                    yield Problem(at, f"expected JSON, got {str(found)[:80]}")
                    return
    for i, document in documents:
        try:
            yield from _walk(i, document, context, 0)
        except UnitError as error:
            yield Problem(i, str(error))
        except (ValueError, OverflowError) as error:
            yield Problem(i, f"expected {error}")


def _walk(line: int, value: object, context: Context, depth: int) -> Iterator[Row]:
    if depth > 32:
        return
    if isinstance(value, list):
        for item in value:
            yield from _walk(line, item, context, depth + 1)
    elif isinstance(value, dict):
        flat = _flat(value)
        if is_table(flat):
            yield from rows(line, flat, context)
            return
        inside = _learn(value, context)
        for item in value.values():
            yield from _walk(line, item, inside, depth + 1)


def _flat(record: Mapping[str, object]) -> dict[str, object]:
    """The record with the figures of its halves beside the rest: "out_of_place time"."""
    flat: dict[str, object] = {}
    for key, value in record.items():
        if isinstance(value, dict):
            if key in _HALVES:
                wrong = value.get("nwrong", value.get("wrong"))
                flat |= {f"{key} {inner}": figure for inner, figure in value.items()}
                flat.setdefault("wrong", wrong if not isinstance(wrong, dict) else None)
        elif not isinstance(value, list) or key.startswith("samples"):
            flat[key] = value
    return flat


def _learn(value: Mapping[str, object], context: Context) -> Context:
    """The context with what this object says of all records inside it."""
    learnt = replace(context)
    for key, item in value.items():
        kind = found.kind if (found := column(key)) is not None else None
        if key in ("args", "cmd", "command", "argv", "test_name", "tool"):
            program = _PROGRAM.search(str(item)[:4000])
            if program is not None:
                learnt.operation = names.operation(program[1])
        elif kind == "operation" and isinstance(item, str):
            learnt.operation = names.operation(item)
        elif kind in ("ranks", "nodes") and isinstance(item, int) and not isinstance(item, bool):
            if kind == "ranks":
                learnt.n_ranks = item
            else:
                learnt.nodes = item
        elif key == "devices" and isinstance(item, list):
            devices = [device for device in item if isinstance(device, dict)]
            hosts = {str(device.get("hostname", device.get("host"))) for device in devices}
            learnt.n_ranks, learnt.nodes = len(item) or None, len(hosts - {"None"}) or None
        elif key in ("nccl_version", "rccl_version"):
            version = (("library", key[:4]), ("library_version", str(item)[:40]))
            learnt.source = (*learnt.source, *version)
    return learnt
