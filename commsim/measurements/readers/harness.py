"""JSON Lines of commsim's own harness, `commsim measure --output`.

    {"commsim_measure":1,"kind":"run","run":"a1","library":"gloo","versions":{...},"hosts":{...}}
    {"commsim_measure":1,"kind":"collective","run":"a1","operation":"all_reduce","duration_s":...}

A run's line comes before its records. Taken are collectives that had the machine to themselves;
matrix products, and collectives beside others, are no measurements of a collective. A last line
without its end is one that was being written when the machine stopped: it is left out, and the
other rows' provenance says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from commsim.collectives.collective import DTYPES, OPERATIONS, REDUCE_OPS
from commsim.measurements.row import Problem, Row, number

FORMAT = 1
_START = '{"commsim_measure"'


def recognises(text: str) -> bool:
    return text.lstrip().startswith(_START)


def read(text: str, name: str) -> Iterator[Row | Problem]:
    runs: dict[str, _Run] = {}
    *lines, rest = text.split("\n")
    torn: tuple[tuple[str, str], ...] = ()
    if rest.strip():
        torn = (("note", f"line {len(lines) + 1} is torn and left out"),)
    for i, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            if not isinstance(record, dict) or record.get("commsim_measure") != FORMAT:
                raise ValueError(f"a line of format {FORMAT}, got {line[:40]!r}")
            if record.get("kind") == "run":
                runs[str(record.get("run"))] = _Run((*_source(record), *torn), *_home(record))
            elif record.get("kind") == "collective" and _several(record):
                yield _row(i, record, runs.get(str(record.get("run")), _Run(torn)))
        except RecursionError:
            yield Problem(i, "expected JSON, got brackets without end")
        except json.JSONDecodeError as error:
            yield Problem(i, f"expected JSON, got {str(error)[:80]}")
        except (KeyError, TypeError) as error:
            yield Problem(i, f"expected a collective's record, got one without {error}")
        except (ValueError, OverflowError) as error:
            yield Problem(i, f"expected {error}")


class _Run(NamedTuple):
    """What a run's line says of all its records."""

    source: tuple[tuple[str, str], ...]
    library: str = ""
    local: int = 0


def _home(record: dict[str, Any]) -> tuple[str, int]:
    """The library with its version, and the ranks if all are processes of one machine's CPUs."""
    name, version = str(record.get("library", "")), str(record.get("library_version", ""))
    text = f"{name}@{version.partition('+')[0]}" if version else name
    ranks = record.get("n_ranks")
    if name not in ("gloo", "mpi") or record.get("nodes") != 1 or not isinstance(ranks, int):
        return text, 0
    return text, ranks if ranks > 1 else 0


def _several(record: dict[str, Any]) -> bool:
    """A single rank moves nothing: its time is the launch alone."""
    return isinstance(record["n_ranks"], int) and record["n_ranks"] > 1


def _row(line: int, record: dict[str, Any], run: _Run) -> Row:
    for key, known in (("operation", OPERATIONS), ("dtype", DTYPES), ("reduce_op", REDUCE_OPS)):
        if record[key] not in known:
            raise ValueError(f"{key}: one of {', '.join(known)}, got {str(record[key])[:40]!r}")
    duration = number(record["duration_s"])
    if not duration:
        raise ValueError(f"duration_s: seconds > 0, got {record['duration_s']!r}")
    ranks = tuple(_whole(rank) for rank in record["ranks"])
    return Row(
        line, duration, record["operation"], _whole(record["size_bytes"]), len(ranks),
        _whole(record["nodes"]), record["dtype"], record["reduce_op"],
        None if record["root"] is None else _whole(record["root"]),
        in_place=record["in_place"] is True,
        wrong=None if record["wrong"] is None else _whole(record["wrong"]),
        source=(*run.source, ("timing", str(record["timing"]))),
        samples=tuple(s for s in map(number, record["samples_s"]) if s),
        ranks=None if ranks == tuple(range(run.local or len(ranks))) else ranks,
        library=run.library, local=run.local,
    )  # fmt: skip


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"a whole number, got {str(value)[:40]!r}")
    return value


def _source(record: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """What a run's line says, as provenance."""
    said = ("library", "library_version", "run", "date", "commsim")
    pairs: list[tuple[str, str]] = [(key, str(record[key])) for key in said if key in record]
    ranks = record.get("ranks")
    if isinstance(ranks, list):
        for key, label in (("device", "device"), ("host", "hosts")):
            names = {str(rank.get(key)) for rank in ranks if isinstance(rank, dict)}
            pairs.append((label, ", ".join(sorted(names))))
    for key in ("versions", "environment"):
        if isinstance(found := record.get(key), dict):
            pairs.append((key, " ".join(f"{name}={value}" for name, value in found.items())))
    if isinstance(command := record.get("command"), list):
        pairs.append(("command", " ".join(map(str, command))))
    return tuple(pairs)
