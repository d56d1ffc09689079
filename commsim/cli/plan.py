"""`commsim plan`: which layout, on which cluster, and which part of it to pay for."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from commsim.cli import _arguments as a
from commsim.cli import _plan_output as shown
from commsim.cli import _plot as pictures
from commsim.cli._drawn import Drawn, Plot, Report, Theme
from commsim.cli._output import chatty, print_json
from commsim.errors import PictureError, PlanError, UnknownNameError
from commsim.planning.comparison import compare
from commsim.planning.constraints import Values, excluded, fixed
from commsim.planning.emission import Emission, emitters
from commsim.planning.emission import emit as emit_for
from commsim.planning.engine import Engine
from commsim.planning.plans import Plans
from commsim.planning.plans import plan as find_plans
from commsim.planning.reliability import (
    GPU_MTBF,
    RESTART,
    Reliability,
    checkpoint_duration,
    reliability,
)
from commsim.planning.scaling import scaling
from commsim.planning.sensitivity import Sensitivity, memory_sensitivity, sensitivities
from commsim.planning.store import Store
from commsim.topology.cluster import Cluster
from commsim.units import parse_rate, parse_time
from commsim.workload.load import load_model

PLAYED = 20  # of the best, by the event engine
TUNED = 5  # of the best, with all settings of library and buckets


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
    objective: Annotated[str, typer.Option(help="time, cost or memory.")] = "time",
    framework: Annotated[
        list[str] | None,
        typer.Option(
            help="megatron (default), nemo, torchtitan, fsdp, deepspeed, ddp. Repeatable."
        ),
    ] = None,
    dtype: Annotated[str, typer.Option(help="bfloat16, float16, float32, float8.")] = "bfloat16",
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            "--fix",
            help="Hold dimensions to values: tp=4,8 or tp=8,pp=16,recompute=full,micro_batch=1..4. "
            "Repeatable.",
        ),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option(
            help="Values or words of the tables that are not to be: zero3,recompute:full,cp "
            "(above 1), tp-overlap, interleave=1. Repeatable.",
        ),
    ] = None,
    top: Annotated[int, typer.Option(help="How many layouts to rank.")] = 10,
    simulate: Annotated[
        int | None,
        typer.Option(
            help="So many of the best played by the event engine and ranked by it. Default: those "
            "ranked, 20 at most."
        ),
    ] = None,
    tune: Annotated[
        int | None,
        typer.Option(
            help="For so many of the best NCCL's settings and the size of buckets are searched, "
            f"and they are ranked with the best of these. Default: those ranked, {TUNED} at most."
        ),
    ] = None,
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
    engine: Annotated[
        str, typer.Option(help="auto, serial, local (cores), dask://host:port, ray://host:port.")
    ] = "auto",
    jobs: Annotated[int | None, typer.Option(help="Processes of the local engine.")] = None,
    results: Annotated[
        Path | None, typer.Option(help="SQLite file to keep results in and to go on from.")
    ] = None,
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
    machines = [read_machines(text, nodes, overrides) for text in cluster]
    subject = load_model(model)
    named = tuple(framework or (("megatron",) if emit is None else (emit,)))
    runner = Engine(where=engine, jobs=jobs, store=None if results is None else Store(results))
    held, without = read_constraints(only, exclude)

    def plan_on(
        where: Cluster, batch: int = global_batch, most: int = 1, play: int = 0, tuned: int = 0
    ) -> Plans:
        return find_plans(
            subject, where, global_batch=batch, seq_len=seq, objective=objective,
            framework=named, dtype=dtype, only=held, without=without, top=most, simulate=play,
            tuned=tuned, profile=profile, engine=runner, progress=_progress,
        )  # fmt: skip

    if len(machines) > 1:
        if plot is not None or report is not None:
            raise PictureError("plan: pictures and reports are of one cluster; give --cluster once")
        _several(machines, plan_on, objective, json)
        return
    played = min(top, PLAYED) if simulate is None else simulate
    tuned = min(top, TUNED) if tune is None else tune
    found = plan_on(machines[0], most=top, play=played, tuned=tuned)
    extra: dict[str, Any] = {}
    if explain:
        extra["explanation"] = shown.explanation(found)
    if sensitivity:
        extra["sensitivity"] = worth(found, plan_on, profile)
    if scale is not None:
        extra["scaling"] = scaled(found.cluster, plan_on, global_batch, scale)
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


def read_machines(text: str, nodes: int | None, settings: Sequence[str] | None) -> Cluster:
    """The cluster of `dgx-h100`, `dgx-h100@16`, or of a file."""
    match = re.fullmatch(r"(.+)@(\d+)", text)
    if match:
        return a.read_cluster(match[1], nodes=int(match[2]), settings=settings)
    return a.read_cluster(text, nodes=nodes, settings=settings)


def read_constraints(
    only: Sequence[str] | None, exclude: Sequence[str] | None
) -> tuple[Values, Values]:
    """What dimensions are held to, and what they may not be. A dimension that is held goes before
    its exclusion as a whole."""
    held, without = excluded(exclude or ())
    return held | fixed(only or ()), without


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


def scaled(
    where: Cluster, plan_on: Callable[..., Plans], global_batch: int, kind: str
) -> tuple[Any, ...]:
    """The best on 1, 2, 4 ... nodes: with the same batch, or with the same for each node."""
    if kind not in ("strong", "weak"):
        raise PlanError(f"--scaling: expected strong or weak, got {kind!r}")

    def on(changed: Cluster) -> Plans:
        batch = global_batch
        if kind == "weak":
            batch = max(1, global_batch * changed.nodes // where.nodes)
        return plan_on(changed, batch)

    return scaling(where, on)


def failures(
    plans: Plans,
    checkpoint: str | None,
    storage: str | None,
    mtbf: str | None,
    restart: str | None,
) -> Reliability:
    """What failures leave of the time."""
    if checkpoint is None and storage is None:
        raise PlanError(
            "--checkpoint: what does one take? Give its time (--checkpoint 60s) or what storage "
            "takes (--storage 100GB/s)"
        )
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


def _several(
    machines: Sequence[Cluster], plan_on: Callable[[Cluster], Plans], objective: str, json: bool
) -> None:
    offers = compare(machines, plan_on, objective)
    if json:
        print_json({"objective": objective, "offers": [offer.to_dict() for offer in offers]})
    else:
        shown.show_offers(offers, objective)
    if all(offer.plan is None for offer in offers):
        raise PlanError("\n".join(offer.why for offer in offers))


def _progress(what: str, done: int, of: int) -> None:
    if chatty():
        words = {"memory": "batches surveyed", "time": "layouts timed"}
        print(f"\r\033[K{done:,} of {of:,} {words[what]}", end="\r", file=sys.stderr)
