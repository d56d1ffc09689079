"""`commsim diagnose`: whether measurements are those of a healthy machine, and if not, why not."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from commsim.cli import _arguments as a
from commsim.cli import _plot as pictures
from commsim.cli._drawn import Drawn, Plot, Report, Theme
from commsim.cli._output import print_facts, print_json, print_notes, print_table
from commsim.diagnosis.examination import diagnose as examine
from commsim.diagnosis.findings import Findings, Hypothesis
from commsim.measurements.reading import read_measurements
from commsim.units import format_size, format_time

SICK = 1
SHOWN = 3  # hypotheses shown with their evidence, check and fix


def diagnose(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="What was measured: nccl-tests text or JSON, OSU, JSON Lines, CSV; or folders.",
            show_default=False,
        ),
    ],
    cluster: Annotated[
        str, typer.Option("--cluster", "-c", help="The cluster as it should be: preset or file.")
    ],
    nodes: a.Nodes = None,
    settings: a.Settings = None,
    library: a.LibraryText = None,
    env: a.Environment = None,
    launch: a.Launch = "processes",
    nccl_log: Annotated[
        Path | None, typer.Option("--nccl-log", help="Output of NCCL_DEBUG=INFO, as evidence.")
    ] = None,
    topology: Annotated[
        Path | None,
        typer.Option(
            "--topo",
            help="What the machine is, as evidence: `nvidia-smi topo -m` (.txt), NCCL's .xml.",
        ),
    ] = None,
    profile: a.ProfilePath = None,
    gpu: a.GpuName = None,
    curves: Annotated[
        bool, typer.Option("--curves", help="Every size: measured, expected, under each cause.")
    ] = False,
    plot: Plot = None,
    theme: Theme = "auto",
    report: Report = None,
    json: a.Json = False,
) -> int:
    """Is the machine healthy, and if not: likely causes, each with evidence, check and fix.

    Example: commsim diagnose all_reduce.log --cluster dgx-h100 --nodes 2 --nccl-log debug.log

    Exit codes: 0 ok, 2 bad input, 1 the machine is sick.
    """
    drawn = Drawn(plot, theme, report).check()
    machines = a.read_cluster(cluster, nodes=nodes, settings=settings, gpu=gpu)
    used = a.read_library(library, machines, env, launch)
    findings = examine(
        read_measurements(files, cluster=machines, library=used), machines, library=used,
        nccl_log=nccl_log, topology=topology, profile=a.read_profile(profile),
    )  # fmt: skip
    code = 0 if findings.healthy else SICK
    data = findings.to_dict()
    drawn.write(lambda: pictures.diagnosed(findings), "diagnose", data)
    if json:
        print_json(data)
        return code
    verdict = "healthy" if findings.healthy else "sick"
    print(f"{machines.name}: {verdict} (likelihood of health {findings.likelihood:.0%})")
    print_facts([("measured", findings.summary)])
    if not findings.healthy:
        _show_causes(findings)
    if curves:
        _show_curves(findings)
    print_notes(findings.notes)
    return code


def _show_causes(findings: Findings) -> None:
    """The ranking, and for the likeliest what speaks for them, how to check and how to fix."""
    rows = [(f"{h.likelihood:.0%}", h.cause, h.what) for h in findings.hypotheses]
    print_table("causes, most likely first", (">likelihood", "cause", "what it is"), rows)
    for rank, hypothesis in enumerate(findings.hypotheses[:SHOWN], 1):
        print(f"\n{rank}. {hypothesis.cause}: {hypothesis.what}")
        print_facts(_facts(hypothesis))
    if findings.untold:
        print(f"\nnot visible in these measurements: {', '.join(findings.untold)}")


def _facts(hypothesis: Hypothesis) -> list[tuple[str, str]]:
    return [
        ("fits best", hypothesis.detail),
        *(("evidence", line) for line in hypothesis.evidence),
        ("check", hypothesis.check),
        ("fix", hypothesis.fix),
    ]


def _show_curves(findings: Findings) -> None:
    """Measured, expected and predicted under the likeliest causes."""
    likeliest = findings.hypotheses[:SHOWN]
    columns = ("operation", ">size", ">measured", ">expected", ">ratio",
               *(f">{h.cause}" for h in likeliest))  # fmt: skip
    rows = [
        (
            point.collective.operation,
            format_size(point.collective.nbytes),
            format_time(point.measured),
            format_time(point.expected),
            f"{point.slower:.2f}",
            *(format_time(h.curve[i]) for h in likeliest),
        )
        for i, point in enumerate(findings.points)
    ]
    print_table("curves", columns, rows)
