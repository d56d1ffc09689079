"""`commsim trace`: recorded steps read, replayed on other clusters, written in other formats."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from commsim.cli import _arguments as a
from commsim.cli import _plot as pictures
from commsim.cli import _trace_options as o
from commsim.cli import _trace_output as out
from commsim.cli._app import quietly
from commsim.cli._drawn import Drawn, Plot, Theme
from commsim.cli._output import print_facts, print_json, print_notes, print_section
from commsim.errors import SpecError
from commsim.units import format_time

MISMATCH = 3

trace = typer.Typer(
    help="Recorded steps: PyTorch profiler (Kineto), NCCL Flight Recorder, execution traces,"
    " Chakra, nsys SQLite exports. Every command takes --json. Exit codes: 0 ok, 2 bad input;"
    " of `summary` also 3, the ranks' operations do not match.",
)


@trace.callback(invoke_without_command=True)
def _help(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


@trace.command()
@quietly
def summary(
    files: o.Files,
    format: o.Format = None,
    cluster: o.ClusterName = None,
    nodes: a.Nodes = None,
    settings: a.Settings = None,
    library: a.LibraryText = None,
    env: a.Environment = None,
    profile: a.ProfilePath = None,
    nproc_per_node: o.PerNode = None,
    json: a.Json = False,
) -> None:
    """What recordings hold: operations with waiting split from transfer, overlap, mismatches.

    With --cluster each operation's prediction stands beside what was measured.

    Example: commsim trace summary rank0.json rank1.json --cluster dgx-h100

    Exit codes: 0 ok, 2 bad input, 3 the ranks' operations do not match.
    """
    from commsim.traces.analysis import recorded_overlap, table
    from commsim.traces.replay import price

    where = o.Asked(
        cluster=cluster, nodes=nodes, settings=settings, library=library, env=env, profile=profile,
        nproc_per_node=nproc_per_node,
    ).where()  # fmt: skip
    step = o.read_step(files, format)
    rows = table(price(step, where))
    overlap = [recorded_overlap(r) for r in step.recordings]
    if json:
        print_json(out.recorded(step) | {
            "operations": [row.to_dict() for row in rows],
            "overlap": [each.to_dict() for each in overlap],
            "mismatches": list(step.mismatches), "notes": list(step.notes),
        })  # fmt: skip
    else:
        print(out.title(step))
        print_facts(out.facts(step))
        out.print_operations(rows)
        out.print_overlap("overlap", overlap)
        print_section("mismatches", step.mismatches)
        print_notes(step.notes)
    if step.mismatches:
        raise typer.Exit(MISMATCH)


@trace.command()
@quietly
def replay(
    files: o.Files,
    format: o.Format = None,
    cluster: o.ClusterName = None,
    nodes: a.Nodes = None,
    settings: a.Settings = None,
    library: a.LibraryText = None,
    env: a.Environment = None,
    profile: a.ProfilePath = None,
    nproc_per_node: o.PerNode = None,
    world_size: o.WorldSize = None,
    bucket_size: o.BucketSize = None,
    role: o.Roles = None,
    compute: o.Compute = 1.0,
    timeline: Annotated[
        Path | None, typer.Option("--timeline", help="Write a timeline for ui.perfetto.dev.")
    ] = None,
    plot: Plot = None,
    theme: Theme = "auto",
    json: a.Json = False,
) -> None:
    """A recorded step on another cluster: computing as measured, communication predicted anew.

    Without --cluster it is replayed as measured.

    Example: commsim trace replay rank0.json --cluster dgx-h100 --nodes 4 --world-size 32

    Exit codes: 0 ok, 2 bad input.
    """
    from commsim.traces import replay as replaying
    from commsim.traces.analysis import critical_path, played_overlap, recorded_overlap, table
    from commsim.traces.chrome import Chrome

    drawn = Drawn(plot, theme).check()
    where = o.Asked(
        cluster=cluster, nodes=nodes, settings=settings, library=library, env=env, profile=profile,
        nproc_per_node=nproc_per_node, world_size=world_size, bucket_size=bucket_size, role=role,
        compute=compute,
    ).where()  # fmt: skip
    played = replaying.replay(o.read_step(files, format), where)
    if timeline is not None:
        o.check_folder("--timeline", timeline)
        Chrome().write_step(played, timeline)
    drawn.write(lambda: pictures.replayed(played))
    step, rows, path = played.step, table(played.operations), critical_path(played)
    before = [recorded_overlap(r) for r in step.recordings]
    after = played_overlap(played)
    if json:
        print_json(out.recorded(step) | {
            "replayed_ranks": played.world, "replayed_duration_s": played.duration,
            "critical_path_s": path, "operations": [row.to_dict() for row in rows],
            "overlap": [each.to_dict() for each in before],
            "replayed_overlap": [each.to_dict() for each in after], "notes": list(played.notes),
        })  # fmt: skip
        return
    print(out.title(step))
    timed = all(r.timed for r in step.recordings)
    change = played.duration / step.duration if step.duration else 1.0
    times = f"{change:.3g} times, " if timed else ""
    hidden = f"{out.most(before)} recorded, " if timed else ""
    print_facts([
        ("recorded", format_time(step.duration) if timed else "the files hold no moments"),
        ("replayed", f"{format_time(played.duration)}   {times}{out.on(played)}"),
        ("exposed communication", f"{hidden}{out.most(after)} replayed"),
        ("critical path", ", ".join(
            f"{name} {format_time(time)} ({100 * time / played.duration:.0f} %)"
            for name, time in path.items()
        )),
    ])  # fmt: skip
    out.print_operations(rows)
    out.print_overlap("overlap, replayed", after)
    print_notes(played.notes)
    if timeline is not None:
        print(f"\ntimeline written to {timeline}; open it at https://ui.perfetto.dev")


@trace.command()
@quietly
def convert(
    files: o.Files,
    to: Annotated[
        str, typer.Option("--to", "-t", help="chrome, chakra, goal; of a schedule also msccl.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write.")],
    format: o.Format = None,
    cluster: o.ClusterName = None,
    nodes: a.Nodes = None,
    settings: a.Settings = None,
    library: a.LibraryText = None,
    env: a.Environment = None,
    profile: a.ProfilePath = None,
    nproc_per_node: o.PerNode = None,
    world_size: o.WorldSize = None,
    bucket_size: o.BucketSize = None,
    role: o.Roles = None,
    compute: o.Compute = 1.0,
    json: a.Json = False,
) -> None:
    """Recordings, or a schedule (MSCCL XML), written in another format.

    With --cluster the step is replayed first; without it is written as measured.

    Example: commsim trace convert rank0.json rank1.json --to chakra --output step

    Exit codes: 0 ok, 2 bad input.
    """
    from commsim.traces import lookup
    from commsim.traces import replay as replaying

    o.check_folder("--output", output)
    if format == "msccl" or (format is None and files[0].suffix == ".xml"):
        if len(files) != 1:
            raise SpecError([f"{files[0]}: a schedule; expected one file, got {len(files)}"])
        lookup.writer(to).write(lookup.reader("msccl").read(files[0]), output)
        written: Sequence[str] = (str(output),)
    else:
        writer = lookup.step_writer(to)
        where = o.Asked(
            cluster=cluster, nodes=nodes, settings=settings, library=library, env=env,
            profile=profile, nproc_per_node=nproc_per_node, world_size=world_size,
            bucket_size=bucket_size, role=role, compute=compute,
        ).where()  # fmt: skip
        written = writer.write_step(replaying.replay(o.read_step(files, format), where), output)
    if json:
        print_json({"written": list(written)})
        return
    for name in written:
        print(f"written: {name}")
