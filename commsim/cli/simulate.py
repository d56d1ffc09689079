"""`commsim simulate`: every transfer of an operation played on the links of the cluster."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from commsim.advice import RingOrder, ring_orders
from commsim.cli import _arguments as a
from commsim.cli import _conditions as c
from commsim.cli import _plot as pictures
from commsim.cli._drawn import Drawn, Plot, Report, Theme
from commsim.cli._output import print_facts, print_json, print_notes, print_section, print_table
from commsim.cli._progress import Progress
from commsim.cli.predict import choice_text, title
from commsim.collectives.collective import Collective
from commsim.collectives.schedule import Schedule
from commsim.collectives.verify import verify
from commsim.engine.conditions import Conditions
from commsim.engine.timeline import Timeline
from commsim.engine.waiting import RankTime, split_time
from commsim.errors import CollectiveError
from commsim.prediction import Prediction
from commsim.simulation import simulate as play
from commsim.traces import chrome
from commsim.traces.lookup import writer
from commsim.traces.msccl import Msccl
from commsim.traces.trace import Trace
from commsim.units import format_rate, format_size, format_time

NEVER = 3
HOTTEST = 10


def simulate(
    cluster: a.ClusterText,
    op: a.OperationText,
    size: a.SizeText = None,
    nodes: a.Nodes = None,
    ranks: a.RanksText = None,
    root: a.Root = None,
    dtype: a.DtypeText = "float32",
    redop: a.RedopText = "sum",
    settings: a.Settings = None,
    library: a.LibraryText = None,
    env: a.Environment = None,
    launch: a.Launch = "processes",
    profile: a.ProfilePath = None,
    gpu: a.GpuName = None,
    algorithm: Annotated[
        str | None,
        typer.Option(
            "--algorithm",
            "-a",
            help="Play this one instead of the library's choice: a name of the catalogue, or a file"
            " of MSCCL XML, which is proved first.",
        ),
    ] = None,
    channels: Annotated[int, typer.Option("--channels", help="Channels of --algorithm.")] = 1,
    also: c.Also = None,
    routing: Annotated[
        str,
        typer.Option("--routing", help="adaptive (spread over equal ways) or ecmp (hashed)."),
    ] = "adaptive",
    seed: Annotated[int, typer.Option("--seed", help="Of ecmp's hash and of jitter.")] = 0,
    late: c.Late = None,
    slow: c.Slow = None,
    die: c.Death = None,
    jitter: c.JitterText = None,
    degrade: c.Degrade = None,
    fail: c.Fail = None,
    traffic: c.TrafficText = None,
    watchdog: Annotated[
        str, typer.Option("--watchdog", help="After which time a waiting rank reports.")
    ] = "600s",
    fold: Annotated[
        bool, typer.Option("--fold/--no-fold", help="Play equal channels and nodes as one.")
    ] = True,
    export: Annotated[
        list[str] | None,
        typer.Option(
            "--export",
            help="Write what is played as msccl=FILE.xml, goal=FILE or chakra=PREFIX. Repeatable.",
        ),
    ] = None,
    placement: Annotated[
        str | None,
        typer.Option(
            "--placement",
            help="Where a group of so many ranks lies: packed=16 (machine by machine) or spread=16"
            " (a rank of every machine in turn), instead of --ranks.",
        ),
    ] = None,
    advise: Annotated[
        bool,
        typer.Option("--advise", help="Say in which order a ring should visit the ranks."),
    ] = False,
    timeline: Annotated[
        Path | None,
        typer.Option("--timeline", help="Write a Chrome trace, which Perfetto opens."),
    ] = None,
    time_limit: Annotated[
        str | None, typer.Option("--time-limit", help="Give up after this much real time: 60s.")
    ] = None,
    plot: Plot = None,
    theme: Theme = "auto",
    report: Report = None,
    json: a.Json = False,
) -> None:
    """Play every transfer: contention, placement, stragglers, failures; hot links, critical path.

    Example: commsim simulate dgx-h100 all_reduce --size 64MiB --nodes 4 --slow 3=1.5

    Exit codes: 0 ok, 2 bad input or out of time, 3 the operation never ends.
    """
    drawn = Drawn(plot, theme, report).check()
    if placement is not None:
        machines = a.read_cluster(cluster, nodes=nodes, settings=settings, gpu=gpu)
        ranks = ",".join(map(str, c.read_placement(placement, machines, ranks)))
    question = a.question(
        cluster, op, nodes=nodes, settings=settings, gpu=gpu, library=library, env=env,
        launch=launch, ranks=ranks, root=root, dtype=dtype, redop=redop, profile=profile,
    )  # fmt: skip
    conditions = c.read_conditions(
        late=late, slow=slow, die=die, jitter=jitter, degrade=degrade, fail=fail, traffic=traffic,
        watchdog=watchdog, seed=seed,
    )  # fmt: skip
    asked = [(question.collective(a.read_size(question.operation, size)), 0.0)]
    asked += [
        (Collective(name, nbytes, dtype=question.dtype, ranks=question.ranks), start)
        for name, nbytes, start in c.read_also(also)
    ]
    chosen = read_algorithm(algorithm, asked[0][0])
    exports = a.read_pairs("--export", "goal=ring.goal", export)
    formats = {writer(name): path for name, path in exports.items()}
    a.check_folders([("--timeline", timeline), *(("--export", path) for path in formats.values())])
    limit = c.read_time("--time-limit", time_limit) if time_limit is not None else None
    with Progress(limit) as progress:

        def played(under: Conditions, fold: bool) -> Timeline:
            return play(
                asked, question.cluster, question.library, question.profile, algorithm=chosen,
                channels=channels, routing=routing, seed=seed, conditions=under,
                fold=fold, watch=progress.watch,
            )  # fmt: skip

        found = played(conditions, fold and not exports)
        # To be compared rank by rank, and so with every rank in it.
        punctual = played(replace(conditions, late={}), False) if conditions.late else None
    if timeline is not None:
        chrome.write(found, timeline)
    for trace_format, path in formats.items():
        trace = Trace(collective=asked[0][0], schedule=found.played[0].laid.schedule)
        trace_format.write(trace, path)
    orders = ring_orders(asked[0][0], question.cluster, routing=routing) if advise else ()
    data = found.to_dict() | {
        "waiting": [
            with_units(each)
            for each in (split_time(found.played[0], punctual.played[0]) if punctual else ())
        ],
        "ring_orders": [
            {"name": o.name, "duration_s": o.duration, "ranks": o.ranks} for o in orders
        ],
    } if json or report else {}  # fmt: skip
    drawn.write(lambda: pictures.played(found, question), "simulate", data)
    if json:
        print_json(data)
    else:
        show(found, punctual, question.answer(asked[0][0].nbytes))
        show_orders(orders)
        if timeline is not None:
            print(f"\ntimeline written to {timeline}; open it at https://ui.perfetto.dev")
    if found.stalled:
        raise typer.Exit(NEVER)


def read_algorithm(text: str | None, collective: Collective) -> str | Schedule | None:
    """A name for the catalogue, or the schedule in a file of MSCCL XML, once it is proved."""
    if text is None or not text.endswith(".xml"):
        return text
    trace = Msccl(nbytes=collective.nbytes, dtype=collective.dtype).read(text)
    if trace.collective.operation != collective.operation:
        raise CollectiveError(
            f"{text}: it is a schedule of {trace.collective.operation}, asked was "
            f"{collective.operation}"
        )
    verify(trace.schedule, replace(collective, ranks=None))
    return trace.schedule


def show(found: Timeline, punctual: Timeline | None, predicted: Prediction) -> None:
    """The answer for a reader: what it takes, what held it up, who waited, which links are hot."""
    print(title(predicted))
    alone = len(found.played) == 1
    for number, each in enumerate(found.played):
        if not alone:
            print(
                f"\n{number + 1}. {each.collective.operation} of "
                f"{format_size(each.collective.nbytes)}, from {format_time(each.asked)}"
            )
        print_facts(facts(found, number, predicted if number == 0 else None))
    if punctual is not None:
        show_ranks(found, punctual)
    links = [
        (name, f"{share:.1%}", format_size(round(found.bytes_of(name))))
        for name, share in list(found.link_utilization.items())[:HOTTEST]
    ]
    if links:  # a barrier has no bytes
        print_table("hottest links", ("link", ">share of its time", ">bytes"), links)
    for reports in found.watchdog:
        print_section("watchdog", [str(report) for report in reports[:HOTTEST]])
        if len(reports) > HOTTEST:
            print(f"  and {len(reports) - HOTTEST} ranks more")
    print_notes(found.notes)


def show_orders(orders: Sequence[RingOrder]) -> None:
    """Orders of the ranks for a ring, the best first."""
    if orders:
        print_table(
            "a ring through the ranks, in order",
            ("order", ">duration", "ranks"),
            [(o.name, format_time(o.duration), shorten(o.ranks)) for o in orders],
        )


def shorten(ranks: Sequence[int]) -> str:
    """`0, 1, 2, ... 30, 31`."""
    shown = [str(r) for r in ranks]
    return ", ".join(shown if len(shown) <= 16 else [*shown[:12], "...", *shown[-2:]])


def with_units(time: RankTime) -> dict[str, float]:
    """As JSON has it."""
    return {key if key == "rank" else f"{key}_s": value for key, value in asdict(time).items()}


def show_ranks(found: Timeline, punctual: Timeline) -> None:
    """How every rank's time in the first collective splits; the longest waits first."""
    times = split_time(found.played[0], punctual.played[0])
    times = tuple(sorted(times, key=lambda t: -t.late))[:HOTTEST]
    print_table(
        "ranks that waited longest for late ones",
        (">rank", ">arrived", ">for late ranks", ">otherwise", ">transferring", ">end"),
        [
            tuple(
                [str(t.rank)]
                + [format_time(v) for v in (t.arrival, t.late, t.waiting, t.transferring, t.end)]
            )
            for t in times
        ],
    )


def facts(found: Timeline, number: int, predicted: Prediction | None) -> list[tuple[str, str]]:
    """One collective, a line a fact."""
    rows, each = [], found.played[number]
    if math.isfinite(each.end):
        rows.append(("duration", format_time(each.duration)))
        if predicted is not None:
            ratio = each.duration / predicted.duration
            rows.append(
                ("closed form", f"{format_time(predicted.duration)}; simulated x {ratio:.3g}")
            )
        if each.collective.operation != "barrier":
            rows.append(("bus bandwidth", format_rate(each.bus_bandwidth)))
    else:
        rows.append(("duration", "never ends"))
    channels = int(each.laid.schedule.channel.max(initial=0) + 1) * each.multiplicity
    rows.append(("played", choice_text(each.algorithm, each.protocol, channels)))
    rows.append(("transfers", f"{len(each.laid.schedule):,}"))
    if math.isfinite(each.end):
        path = found.critical_path(number).totals
        rows.append(
            (
                "critical path",
                ", ".join(
                    f"{kind} {format_time(time)} ({time / each.duration:.0%})"
                    for kind, time in path.items()
                    if time
                ),
            )
        )
    return rows
