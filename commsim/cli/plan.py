"""`commsim plan`: which layout, on which cluster, and which part of it to pay for."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from commsim.cli import _arguments as a
from commsim.cli import _plan_output as shown
from commsim.cli import _planning as p
from commsim.cli import _plot as pictures
from commsim.cli._drawn import Drawn, Plot, Report, Theme
from commsim.cli._offers import offered
from commsim.cli._output import print_json
from commsim.cli._training import Training, training
from commsim.errors import PlanError, UnknownNameError
from commsim.planning.emission import Emission, emitters
from commsim.planning.emission import emit as emit_for
from commsim.planning.plans import Plans
from commsim.planning.reliability import (
    GPU_MTBF,
    RESTART,
    Reliability,
    checkpoint_duration,
    reliability,
)
from commsim.planning.scaling import scaling
from commsim.planning.sensitivity import Sensitivity, memory_sensitivity, sensitivities
from commsim.topology.cluster import Cluster
from commsim.units import parse_rate, parse_time


def plan(
    model: Annotated[
        str, typer.Option("--model", "-m", help="A preset, a config.json or a .toml of its keys.")
    ],
    cluster: Annotated[
        list[str],
        typer.Option("--cluster", "-c", help="A preset or file, NAME@NODES too. Repeatable."),
    ],
    global_batch: Annotated[int, typer.Option("--global-batch", help="Sequences of one step.")],
    seq: Annotated[int, typer.Option("--seq", help="Tokens of a sequence.")],
    nodes: a.Nodes = None,
    overrides: a.Settings = None,
    objective: p.Objective = "time",
    framework: p.Framework = None,
    dtype: Annotated[str, typer.Option(help="bfloat16, float16, float32, float8.")] = "bfloat16",
    only: p.Only = None,
    exclude: p.Exclude = None,
    top: Annotated[int, typer.Option(help="How many layouts to rank.")] = p.RANKED,
    simulate: p.Simulate = None,
    tune: p.Tune = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Why the best beats the next.")
    ] = False,
    emit: Annotated[
        str | None, typer.Option(help=f"The best as configuration: {', '.join(emitters())}.")
    ] = None,
    sensitivity: Annotated[
        bool, typer.Option("--sensitivity", help="What each part of the hardware is worth.")
    ] = False,
    scale: Annotated[
        str | None,
        typer.Option("--scaling", help="On 1, 2, 4 ... nodes: strong (same batch) or weak."),
    ] = None,
    checkpoint: Annotated[
        str | None, typer.Option(help="Time of a checkpoint (60s): shows the goodput.")
    ] = None,
    storage: Annotated[
        str | None, typer.Option(help="Or the rate that storage takes one at: 100GB/s.")
    ] = None,
    mtbf: Annotated[
        str | None, typer.Option(help="Mean time between failures of one GPU: 50000h.")
    ] = None,
    restart: Annotated[str | None, typer.Option(help="From a failure to computing: 10min.")] = None,
    engine: p.Where = "auto",
    jobs: p.Jobs = None,
    results: p.Results = None,
    profile: a.ProfilePath = None,
    plot: Plot = None,
    theme: Theme = "auto",
    report: Report = None,
    json: a.Json = False,
) -> None:
    """The best layouts of a model on a cluster; on several, which of them is best.

    Example: commsim plan --model llama3-70b --cluster dgx-h100 --nodes 16 --global-batch 512
    --seq 8192 --explain

    Exit codes: 0 ok, 2 bad input, or a cluster too small for the model.
    """
    if emit is not None and emit not in emitters():
        raise UnknownNameError("framework to emit for", emit, emitters())
    drawn = Drawn(plot, theme, report).check()
    machines = [a.read_machines(text, nodes=nodes, settings=overrides) for text in cluster]
    asked = training(
        model, global_batch=global_batch, seq=seq, objective=objective,
        framework=framework or (None if emit is None else [emit]), dtype=dtype, only=only,
        exclude=exclude, top=top, simulate=simulate, tune=tune, profile=profile, engine=engine,
        jobs=jobs, results=results,
    )  # fmt: skip
    if len(machines) > 1:
        _check_alone(
            explain=explain, emit=emit, sensitivity=sensitivity, scaling=scale,
            checkpoint=checkpoint, storage=storage, mtbf=mtbf, restart=restart,
        )  # fmt: skip
        offered(machines, asked, drawn, json)
        return
    _check_words(scale, checkpoint, storage, mtbf or restart)
    found = asked.plans(machines[0])
    extra: dict[str, Any] = {}
    if explain:
        extra["explanation"] = shown.explanation(found)
    if sensitivity:
        extra["sensitivity"] = worth(found, asked.best, profile)
    if scale is not None:
        extra["scaling"] = scaled(found.cluster, asked, scale)
    if checkpoint or storage or mtbf or restart:
        extra["reliability"] = failures(found, checkpoint, storage, mtbf, restart)
    if emit is not None:
        extra["emitted"] = emitted(emit, found)
    data = found.to_dict() | shown.plain(extra)
    drawn.write(lambda: pictures.planned(found, extra.get("scaling", ())), "plan", data)
    if json:
        print_json(data)
        return
    shown.show(found)
    shown.show_extra(found, extra)


def _check_alone(**given: object) -> None:
    """Raises PlanError on what is asked about one cluster alone."""
    for name, value in given.items():
        if value:
            raise PlanError(f"plan: --{name} is about one cluster; give --cluster once")


def _check_words(
    scale: str | None, checkpoint: str | None, storage: str | None, failing: str | None
) -> None:
    """Raises PlanError on what could not be answered, before the long search."""
    if scale not in (None, "strong", "weak"):
        raise PlanError(f"--scaling: expected strong or weak, got {scale!r}")
    if failing and checkpoint is None and storage is None:
        raise PlanError(
            "--checkpoint: what does one take? Give its time (--checkpoint 60s) or what storage "
            "takes (--storage 100GB/s)"
        )


def emitted(name: str, plans: Plans) -> Emission:
    """The best as configuration, with its settings."""
    best = plans.best
    tuned = best.tuned
    bucket = best.bucket if tuned is None else tuned.bucket
    found = emit_for(name, best.layout, plans.model, plans.cluster, bucket)
    if tuned is None or not tuned.variables:
        return found
    line = f"in the environment: {tuned.environment}"
    return Emission(text=found.text, notes=(*found.notes, line))


def worth(
    plans: Plans, plan_on: Callable[[Cluster], Plans], profile: Path | None
) -> list[Sensitivity]:
    """What each part is worth, memory by planning anew."""
    constants = a.read_profile(profile)

    def best(where: Cluster) -> float:
        try:
            return plan_on(where).best.duration
        except PlanError:
            return math.inf

    found = list(sensitivities(plans.model, plans.cluster, plans.best.layout, constants))
    return [*found, memory_sensitivity(plans.cluster, plans.best.step, best)]


def scaled(where: Cluster, asked: Training, kind: str) -> tuple[Any, ...]:
    """The best on 1, 2, 4 ... nodes: with the same batch, or with the same for each node."""

    def on(changed: Cluster) -> Plans:
        batch = asked.global_batch
        if kind == "weak":
            batch = max(1, batch * changed.nodes // where.nodes)
        return asked.best(changed, batch)

    return scaling(where, on)


def failures(
    plans: Plans,
    checkpoint: str | None,
    storage: str | None,
    mtbf: str | None,
    restart: str | None,
) -> Reliability:
    """What failures leave of the time."""
    took = (
        parse_time(checkpoint)
        if checkpoint is not None
        else checkpoint_duration(plans.model, parse_rate(storage or ""))
    )
    return reliability(
        plans.cluster.n_ranks, took,
        restart=RESTART if restart is None else parse_time(restart),
        gpu_mtbf=GPU_MTBF if mtbf is None else parse_time(mtbf),
    )  # fmt: skip
