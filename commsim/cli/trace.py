"""`commsim trace`: recorded steps read, replayed on other clusters, written in other formats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from commsim.cli import _arguments as a
from commsim.cli._output import print_facts, print_json, print_section, print_table
from commsim.cli._reading import ReadingBar
from commsim.errors import SpecError
from commsim.units import format_size, format_time, parse_size

if TYPE_CHECKING:
    from commsim.traces.analysis import Overlap, Row
    from commsim.traces.joining import Step
    from commsim.traces.replay import Replay, Where

MISMATCH = 3
SHOWN = 8  # ranks in a table
ROWS = 40  # kinds of operations in a table

trace = typer.Typer(
    help="Recorded steps: PyTorch profiler (Kineto), NCCL Flight Recorder, execution traces,"
    " Chakra, nsys SQLite exports. Every command takes --json. Exit codes: 0 ok, 2 bad input;"
    " of `summary` also 3, the ranks' operations do not match.",
    no_args_is_help=True,
)

Files = Annotated[
    list[Path],
    typer.Argument(metavar="FILE...", help="A file per rank, or folders.", show_default=False),
]
Format = Annotated[
    str | None, typer.Option("--format", help="Of the files. Default: recognised by itself.")
]
ClusterName = Annotated[
    str | None, typer.Option("--cluster", "-c", help="A preset or file, as for `commsim predict`.")
]
WorldSize = Annotated[
    int | None,
    typer.Option("--world-size", help="Ranks in all; data parallelism grows or shrinks to it."),
]
BucketSize = Annotated[
    str | None, typer.Option("--bucket-size", help="Of DDP's gradient buckets: 25MiB.")
]
Roles = Annotated[
    list[str] | None,
    typer.Option("--role", help="What a group is for: GROUP=dp (tp, pp, cp, ep, world)."),
]
Compute = Annotated[
    float, typer.Option("--compute", help="Factor on the time of computing: 0.5, twice as fast.")
]


@trace.command()
def summary(
    files: Files,
    format: Format = None,
    cluster: ClusterName = None,
    nodes: a.Nodes = None,
    settings: a.Settings = None,
    library: a.LibraryText = None,
    env: a.Environment = None,
    profile: a.ProfilePath = None,
    json: a.Json = False,
) -> None:
    """What recordings hold: operations with waiting split from transfer, overlap, mismatches.

    With --cluster each operation's prediction stands beside what was measured.

    Example: commsim trace summary rank0.json rank1.json --cluster dgx-h100

    Exit codes: 0 ok, 2 bad input, 3 the ranks' operations do not match.
    """
    from commsim.traces.replay import Where, price

    step = _read(files, format)
    where = Where()
    if cluster is not None:
        machines = a.read_cluster(cluster, nodes=nodes, settings=settings)
        where = Where(
            cluster=machines, library=a.read_library(library, machines, env),
            profile=a.read_profile(profile),
        )  # fmt: skip
    from commsim.traces.analysis import recorded_overlap, table

    rows = table(price(step, where))
    overlap = [recorded_overlap(r) for r in step.recordings]
    if json:
        print_json(_recorded(step) | {
            "operations": [row.to_dict() for row in rows],
            "overlap": [each.to_dict() for each in overlap],
            "mismatches": list(step.mismatches), "notes": list(step.notes),
        })  # fmt: skip
    else:
        print(_title(step))
        print_facts(_facts(step))
        _print_operations(rows)
        _print_overlap("overlap", overlap)
        print_section("mismatches", step.mismatches)
        print_section("notes", step.notes)
    if step.mismatches:
        raise typer.Exit(MISMATCH)


@trace.command()
def replay(
    files: Files,
    format: Format = None,
    cluster: ClusterName = None,
    nodes: a.Nodes = None,
    settings: a.Settings = None,
    library: a.LibraryText = None,
    env: a.Environment = None,
    profile: a.ProfilePath = None,
    world_size: WorldSize = None,
    bucket_size: BucketSize = None,
    role: Roles = None,
    compute: Compute = 1.0,
    timeline: Annotated[
        Path | None, typer.Option("--timeline", help="Write a timeline for ui.perfetto.dev.")
    ] = None,
    json: a.Json = False,
) -> None:
    """A recorded step on another cluster: computing as measured, communication predicted anew.

    Without --cluster it is replayed as measured.

    Example: commsim trace replay rank0.json --cluster dgx-h100 --nodes 4 --world-size 32

    Exit codes: 0 ok, 2 bad input.
    """
    from commsim.traces.analysis import critical_path, played_overlap, recorded_overlap, table
    from commsim.traces.chrome import Chrome

    played = _replay(
        files, format, _where(
            cluster, nodes, settings, library, env, profile, world_size, bucket_size, role, compute
        )
    )  # fmt: skip
    if timeline is not None:
        _check_folder("--timeline", timeline)
        Chrome().write_step(played, timeline)
    step, rows, path = played.step, table(played.operations), critical_path(played)
    before = [recorded_overlap(r) for r in step.recordings]
    after = played_overlap(played)
    if json:
        print_json(_recorded(step) | {
            "replayed_ranks": played.world, "replayed_duration_s": played.duration,
            "critical_path_s": path, "operations": [row.to_dict() for row in rows],
            "overlap": [each.to_dict() for each in before],
            "replayed_overlap": [each.to_dict() for each in after], "notes": list(played.notes),
        })  # fmt: skip
        return
    print(_title(step))
    timed = all(r.timed for r in step.recordings)
    change = played.duration / step.duration if step.duration else 1.0
    times = f"{change:.3g} times, " if timed else ""
    hidden = f"{_most(before)} recorded, " if timed else ""
    print_facts([
        ("recorded", format_time(step.duration) if timed else "the files hold no moments"),
        ("replayed", f"{format_time(played.duration)}   {times}{_on(played)}"),
        ("exposed communication", f"{hidden}{_most(after)} replayed"),
        ("critical path", ", ".join(
            f"{name} {format_time(time)} ({100 * time / played.duration:.0f} %)"
            for name, time in path.items()
        )),
    ])  # fmt: skip
    _print_operations(rows)
    _print_overlap("overlap, replayed", after)
    print_section("notes", played.notes)
    if timeline is not None:
        print(f"\ntimeline written to {timeline}; open it at https://ui.perfetto.dev")


@trace.command()
def convert(
    files: Files,
    to: Annotated[
        str, typer.Option("--to", "-t", help="chrome, chakra, goal; of a schedule also msccl.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write.")],
    format: Format = None,
    cluster: ClusterName = None,
    nodes: a.Nodes = None,
    settings: a.Settings = None,
    library: a.LibraryText = None,
    env: a.Environment = None,
    profile: a.ProfilePath = None,
    world_size: WorldSize = None,
    bucket_size: BucketSize = None,
    role: Roles = None,
    compute: Compute = 1.0,
    json: a.Json = False,
) -> None:
    """Recordings, or a schedule (MSCCL XML), written in another format.

    With --cluster the step is replayed first; without it is written as measured.

    Example: commsim trace convert rank0.json rank1.json --to chakra --output step

    Exit codes: 0 ok, 2 bad input.
    """
    from commsim.traces import lookup

    _check_folder("--output", output)
    if _is_schedule(files, format):
        if len(files) != 1:
            raise SpecError([f"{files[0]}: a schedule; expected one file, got {len(files)}"])
        lookup.writer(to).write(lookup.reader("msccl").read(files[0]), output)
        written: Sequence[str] = (str(output),)
    else:
        writer = lookup.step_writer(to)
        played = _replay(
            files, format, _where(
                cluster, nodes, settings, library, env, profile, world_size, bucket_size, role,
                compute,
            )
        )  # fmt: skip
        written = writer.write_step(played, output)
    if json:
        print_json({"written": list(written)})
    else:
        for name in written:
            print(f"written: {name}")


# ---- what the commands share ----


def _read(files: Sequence[Path], format: str | None) -> Step:
    from commsim.traces.joining import join
    from commsim.traces.reading import read_recordings

    with ReadingBar() as bar:
        return join(read_recordings(files, format, bar.watch))


def _replay(files: Sequence[Path], format: str | None, where: Where) -> Replay:
    from commsim.traces.replay import replay as play

    return play(_read(files, format), where)


def _where(
    cluster: str | None, nodes: int | None, settings: list[str] | None, library: str | None,
    env: list[str] | None, profile: Path | None, world_size: int | None, bucket_size: str | None,
    role: list[str] | None, compute: float,
) -> Where:  # fmt: skip
    from commsim.traces.replay import Where

    if cluster is None and (world_size, bucket_size, library) != (None, None, None):
        raise SpecError(
            ["--cluster is missing: another library, bucket size or number of ranks needs a cluster"
             " on which communication is predicted"]
        )  # fmt: skip
    where = Where(
        world=world_size, bucket=None if bucket_size is None else parse_size(bucket_size),
        roles=a.read_pairs("--role", "0=dp", role), compute=compute,
    )  # fmt: skip
    if cluster is None:
        return where
    machines = a.read_cluster(cluster, nodes=nodes, settings=settings)
    return replace(
        where, cluster=machines, library=a.read_library(library, machines, env),
        profile=a.read_profile(profile),
    )  # fmt: skip


def _check_folder(option: str, path: Path) -> None:
    if not path.resolve().parent.is_dir():
        raise SpecError([f"{option}: {path}: the folder does not exist; make it first"])


def _is_schedule(files: Sequence[Path], format: str | None) -> bool:
    if format is not None:
        return format == "msccl"
    return files[0].suffix == ".xml"


def _title(step: Step) -> str:
    formats = ", ".join(dict.fromkeys(r.format for r in step.recordings))
    backends = ", ".join(dict.fromkeys(r.backend for r in step.recordings if r.backend))
    ranks = [r.rank for r in step.recordings]
    shown = ", ".join(map(str, ranks[:SHOWN])) + (" ..." if len(ranks) > SHOWN else "")
    return f"{formats}: rank{'s' if len(ranks) > 1 else ''} {shown} of {step.world}" + (
        f", {backends}" if backends else ""
    )


def _facts(step: Step) -> list[tuple[str, str]]:
    timed = all(r.timed for r in step.recordings)
    said = format_time(step.duration) if timed else "the files hold no moments"
    facts = [("duration", said)]
    steps = [e - s for r in step.recordings[:1] for s, e in r.steps]
    if steps:
        facts.append(("steps marked", ", ".join(map(format_time, steps[:SHOWN]))))
    events = sum(len(r.events) for r in step.recordings)
    communicating = sum(len(r.communication) for r in step.recordings)
    facts.append(("events", f"{events:,}, of which {communicating:,} communicate"))
    for group in step.groups.values():
        described = f" ({group.description})" if group.description else ""
        facts.append((f"group {group.name!r}", f"{group.size} ranks{described}"))
    return facts


def _recorded(step: Step) -> dict[str, Any]:
    return {
        "formats": list(dict.fromkeys(r.format for r in step.recordings)),
        "ranks": [r.rank for r in step.recordings],
        "n_ranks": step.world,
        "duration_s": step.duration,
        "groups": [
            {"name": g.name, "description": g.description, "size": g.size, "ranks": list(g.ranks)}
            for g in step.groups.values()
        ],
    }


def _on(played: Replay) -> str:
    cluster = played.where.cluster
    if cluster is None:
        return "as measured"
    machines = "node" if cluster.nodes == 1 else "nodes"
    return f"{played.world} ranks on {cluster.name}, {cluster.nodes} {machines}"


def _most(overlap: Sequence[Overlap]) -> str:
    return format_time(max((o.exposed for o in overlap), default=0.0))


def _time(value: float | None) -> str:
    return "?" if value is None or value != value else format_time(value)


def _print_operations(rows: Sequence[Row]) -> None:
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


def _print_overlap(title: str, overlap: Sequence[Overlap]) -> None:
    shown = sorted(overlap, key=lambda o: (-o.exposed, o.rank))[:SHOWN]
    print_table(
        title if len(shown) == len(overlap) else f"{title}, {SHOWN} of {len(overlap)} ranks",
        (">rank", ">duration", ">computing", ">communicating", ">exposed", ">hidden"),
        [
            (
                str(o.rank), format_time(o.duration), format_time(o.computing),
                format_time(o.communicating), format_time(o.exposed), f"{o.hidden:.0%}",
            )
            for o in shown
        ],
    )  # fmt: skip
