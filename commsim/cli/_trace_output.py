"""How `commsim trace` shows a step: what it is, its operations, its overlap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from commsim.cli._output import print_table
from commsim.units import format_size, format_time

if TYPE_CHECKING:
    from commsim.traces.analysis import Overlap, Row
    from commsim.traces.joining import Step
    from commsim.traces.replay import Replay

SHOWN = 8  # ranks in a table
ROWS = 40  # kinds of operations in a table


def title(step: Step) -> str:
    """One line: the formats, the ranks and the backend."""
    formats = ", ".join(dict.fromkeys(r.format for r in step.recordings))
    backends = ", ".join(dict.fromkeys(r.backend for r in step.recordings if r.backend))
    ranks = [r.rank for r in step.recordings]
    shown = ", ".join(map(str, ranks[:SHOWN])) + (" ..." if len(ranks) > SHOWN else "")
    return f"{formats}: rank{'s' if len(ranks) > 1 else ''} {shown} of {step.world}" + (
        f", {backends}" if backends else ""
    )


def facts(step: Step) -> list[tuple[str, str]]:
    """How long it took, and what it holds."""
    timed = all(r.timed for r in step.recordings)
    said = format_time(step.duration) if timed else "the files hold no moments"
    found = [("duration", said)]
    steps = [e - s for r in step.recordings[:1] for s, e in r.steps]
    if steps:
        found.append(("steps marked", ", ".join(map(format_time, steps[:SHOWN]))))
    events = sum(len(r.events) for r in step.recordings)
    communicating = sum(len(r.communication) for r in step.recordings)
    found.append(("events", f"{events:,}, of which {communicating:,} communicate"))
    for group in step.groups.values():
        described = f" ({group.description})" if group.description else ""
        found.append((f"group {group.name!r}", f"{group.size} ranks{described}"))
    return found


def recorded(step: Step) -> dict[str, Any]:
    """Plain figures of what was recorded."""
    return {
        "formats": list(dict.fromkeys(r.format for r in step.recordings)),
        "ranks": [r.rank for r in step.recordings],
        "n_ranks": step.world,
        "duration_s": step.duration if all(r.timed for r in step.recordings) else None,
        "steps_s": [e - s for r in step.recordings[:1] for s, e in r.steps],
        "groups": [
            {"name": g.name, "description": g.description, "size": g.size, "ranks": list(g.ranks)}
            for g in step.groups.values()
        ],
    }


def on(played: Replay) -> str:
    """On what it was replayed."""
    cluster = played.where.cluster
    if cluster is None:
        return "as measured"
    machines = "node" if cluster.nodes == 1 else "nodes"
    return f"{played.world} ranks on {cluster.name}, {cluster.nodes} {machines}"


def most(overlap: Sequence[Overlap]) -> str:
    """The exposed communication of the rank that has most of it."""
    return format_time(max((o.exposed for o in overlap), default=0.0))


def _time(value: float | None) -> str:
    return "?" if value is None or value != value else format_time(value)


def print_operations(rows: Sequence[Row]) -> None:
    """A line for each kind of operation."""
    if not rows:
        return
    print_table(
        "operations" if len(rows) <= ROWS else f"operations, {ROWS} of {len(rows)} kinds",
        ("operation", ">size", "dtype", ">ranks", ">count", ">measured", ">waiting", ">transfer",
         ">predicted", ">ratio", "algorithm"),
        [
            (
                row.operation, "?" if row.nbytes is None else format_size(row.nbytes), row.dtype,
                str(row.ranks), str(row.count), _time(row.measured), _time(row.waiting),
                _time(row.transfer), _time(row.predicted),
                "" if row.ratio is None else f"{row.ratio:.3g}", row.algorithm,
            )
            for row in rows[:ROWS]
        ],
    )  # fmt: skip


def print_overlap(heading: str, overlap: Sequence[Overlap]) -> None:
    """The ranks that stand still longest first."""
    shown = sorted(overlap, key=lambda o: (-o.exposed, o.rank))[:SHOWN]
    print_table(
        heading if len(shown) == len(overlap) else f"{heading}, {SHOWN} of {len(overlap)} ranks",
        (">rank", ">duration", ">computing", ">communicating", ">exposed", ">hidden"),
        [
            (
                str(o.rank), format_time(o.duration), format_time(o.computing),
                format_time(o.communicating), format_time(o.exposed), f"{o.hidden:.0%}",
            )
            for o in shown
        ],
    )  # fmt: skip
