"""`commsim calibrate`: a profile of a machine from measurements of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from commsim.calibration.calibration import calibrate as fit
from commsim.cli import _arguments as a
from commsim.cli import _plot as pictures
from commsim.cli._drawn import Drawn, Plot, Report, Theme
from commsim.cli._measured import Files, MeasuredCluster, read_measured
from commsim.cli._output import chatty, print_facts, print_json, print_section, print_table
from commsim.cost.calibrated import Calibration, HeldOut
from commsim.cost.profile import Profile
from commsim.errors import ProfileError
from commsim.units import format_size, format_time

SHOWN = 20  # constants and outliers that are listed; JSON has all


def calibrate(
    files: Files,
    cluster: MeasuredCluster = None,
    nodes: a.Nodes = None,
    settings: a.Settings = None,
    gpu: a.GpuName = None,
    library: a.LibraryText = None,
    env: a.Environment = None,
    launch: a.Launch = "processes",
    base: Annotated[
        Path | None,
        typer.Option("--base", help="The profile to start from. Default: the built-in one."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Where to save the profile. Default: only report."),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the output file if there is one.")
    ] = False,
    plot: Plot = None,
    theme: Theme = "auto",
    report: Report = None,
    json: a.Json = False,
) -> None:
    """Fits a profile to measurements and says how far it can be trusted.

    Other commands take the saved file as --profile. Errors are those of points that were held back
    from the fit: sizes, operations and node counts in turn.

    Example: commsim calibrate logs/ --cluster dgx-h100 --nodes 4 --output ours.toml

    Exit codes: 0 ok, 2 bad input.
    """
    drawn = Drawn(plot, theme, report).check()
    if output is not None and output.exists() and not overwrite:
        raise ProfileError(f"{output}: is there already; name another file, or add --overwrite")
    measurements = read_measured(
        files, cluster, nodes=nodes, settings=settings, gpu=gpu, library=library, env=env,
        launch=launch,
    )  # fmt: skip
    with _progress() as watch:
        profile = fit(measurements, base, name=output.stem if output else "calibrated", watch=watch)
    if output is not None:
        profile.save(output, overwrite=overwrite)
    assert profile.calibration
    data = _as_json(profile, profile.calibration, output)
    drawn.write(lambda: pictures.calibrated(measurements, profile), "calibrate", data)
    if json:
        print_json(data)
    else:
        _print(profile, profile.calibration, output)


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal's stderr while fits are done."""
    if not chatty():
        yield lambda done, of: None
        return
    from rich.console import Console  # 60 ms that a pipe does not need
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("fitting", total=None)
        yield lambda done, of: bar.update(task, total=of, completed=done)


def _print(profile: Profile, made: Calibration, output: Path | None) -> None:
    report = made.report
    print(f"profile {profile.name}: {report.points} points of {report.measurements} measurements")
    facts = [
        ("started from", made.base.partition(" (")[0]),
        ("fitted", f"{report.fitted:.1%} median error on the points of the fit"),
        ("held out", _trust(report.error())),
    ]
    if output is not None:
        facts.append(("saved as", str(output)))
    print_facts(facts)
    print_section(
        "calibrated on",
        (
            f"{c.operation} ({c.hardware}): {_range(c.nodes)} node{'s' * (c.nodes[1] > 1)}, "
            f"{_range(c.ranks)} ranks, "
            f"{' to '.join(map(format_size, dict.fromkeys(c.sizes)))}, {c.points} points"
            for c in made.covered
        ),
    )
    if report.held_out:
        print_table(
            "error on points held back from the fit",
            ("held back by", "group", ">points", ">median", ">mean", ">90 %", ">bias"),
            map(_row, report.held_out),
        )
    if report.learnt:
        print_table(
            "constants learnt, with standard errors",
            ("constant", ">x base", ">+- before", ">+- now", "meaning"),
            (
                (c.name, f"{c.factor:.3f}", f"{c.before:.1%}", f"{c.after:.1%}", c.meaning)
                for c in report.learnt[:SHOWN]
            ),
        )
    print_section("not determined by these measurements", report.undetermined)
    if report.outliers:
        print_table(
            f"outliers: {len(report.outliers)}",
            ("where", "what", ">measured", ">expected"),
            (
                (o.where, o.what, format_time(o.measured), format_time(o.predicted))
                for o in report.outliers[:SHOWN]
            ),
        )


def _trust(error: float) -> str:
    if error != error:
        return "nothing could be held back: measure more than one size"
    return f"{error:.1%} median error on sizes held back"


def _row(row: HeldOut) -> tuple[str, ...]:
    return (
        row.left_out, row.group, str(row.points), f"{row.median:.1%}", f"{row.mean:.1%}",
        f"{row.worst_tenth:.1%}", f"{row.bias:.3f}",
    )  # fmt: skip


def _range(ends: tuple[int, int]) -> str:
    low, high = ends
    return str(low) if low == high else f"{low} to {high}"


def _as_json(profile: Profile, made: Calibration, output: Path | None) -> dict[str, Any]:
    report = asdict(made.report)
    for outlier in report["outliers"]:
        outlier["measured_s"] = outlier.pop("measured")
        outlier["predicted_s"] = outlier.pop("predicted")
    covered = [asdict(c) for c in made.covered]
    for each in covered:
        each["sizes_bytes"] = each.pop("sizes")
    return {
        "profile": profile.name,
        "output": None if output is None else str(output),
        "made": made.made,
        "commsim": made.commsim,
        "base": made.base,
        "files": list(made.files),
        "covered": covered,
        "report": report,
    }
