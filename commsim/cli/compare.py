"""`commsim compare`: an operation on two clusters, a training on several, and what differs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated

import typer

from commsim.cli import _arguments as a
from commsim.cli import _planning as p
from commsim.cli._compared import compared
from commsim.cli._drawn import Drawn, Plot, Report, Theme
from commsim.errors import PlanError, UnknownNameError
from commsim.report.comparison import Overrides
from commsim.topology.cluster import Cluster
from commsim.units import parse_size

SIZES = ("64KiB", "1MiB", "16MiB", "256MiB", "1GiB")
OPERATION = ("size", "library", "library_a", "library_b", "env", "ranks", "root", "redop", "launch")
TRAINING = (
    "global_batch", "seq", "objective", "framework", "only", "exclude", "simulate", "tune",
    "engine", "jobs", "results",
)  # fmt: skip
"""Options of the one question alone, and of the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the clusters as it was asked for."""

    source: str
    nodes: int | None
    settings: tuple[str, ...]

    def cluster(self, changes: Overrides | None = None) -> Cluster:
        """What was asked for, with some keys changed."""
        return a.read_cluster(
            self.source, nodes=self.nodes, settings=self.settings, changes=changes
        )


def compare(
    context: typer.Context,
    cluster_a: Annotated[str, typer.Argument(metavar="CLUSTER_A", show_default=False)],
    cluster_b: Annotated[str, typer.Argument(metavar="CLUSTER_B", show_default=False)],
    rest: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="OP | CLUSTER_C...",
            help="The operation, of two clusters; with --model more clusters. NAME@16: of 16 "
            "machines.",
            show_default=False,
        ),
    ] = None,
    size: Annotated[
        list[str] | None,
        typer.Option("--size", "-s", help=f"Repeatable. Default: {', '.join(SIZES)}."),
    ] = None,
    nodes: a.Nodes = None,
    gpus: Annotated[
        int | None, typer.Option(help="GPUs of each cluster: as many machines as that takes.")
    ] = None,
    nodes_a: Annotated[int | None, typer.Option(help="Machines of A alone.")] = None,
    nodes_b: Annotated[int | None, typer.Option(help="Machines of B alone.")] = None,
    settings: a.Settings = None,
    set_a: Annotated[list[str] | None, typer.Option(help="--set for A alone.")] = None,
    set_b: Annotated[list[str] | None, typer.Option(help="--set for B alone.")] = None,
    library: a.LibraryText = None,
    library_a: Annotated[str | None, typer.Option(help="Library of A alone.")] = None,
    library_b: Annotated[str | None, typer.Option(help="Library of B alone.")] = None,
    env: a.Environment = None,
    ranks: a.RanksText = None,
    root: a.Root = None,
    dtype: Annotated[
        str | None,
        typer.Option("--dtype", "-d", help="Default: float32; with --model bfloat16."),
    ] = None,
    redop: a.RedopText = "sum",
    launch: a.Launch = "processes",
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help="Compares its training instead of an operation."),
    ] = None,
    global_batch: Annotated[
        int | None, typer.Option("--global-batch", help="Sequences of one step.")
    ] = None,
    seq: Annotated[int | None, typer.Option("--seq", help="Tokens of a sequence.")] = None,
    objective: p.Objective = "time",
    framework: p.Framework = None,
    only: p.Only = None,
    exclude: p.Exclude = None,
    simulate: p.Simulate = None,
    tune: p.Tune = None,
    engine: p.Where = "auto",
    jobs: p.Jobs = None,
    results: p.Results = None,
    profile: a.ProfilePath = None,
    plot: Plot = None,
    theme: Theme = "auto",
    report: Report = None,
    json: a.Json = False,
) -> None:
    """One operation on two clusters, or the training of a model on several: what differs, and why.

    An operation: times, ratio, what the difference is due to, price if known. A training: the best
    layout of each cluster as `commsim plan` finds it, days and USD for 10^12 tokens, the same.

    Example: commsim compare dgx-a100 dgx-h100 all_reduce --size 1GiB --nodes 4

    A training: commsim compare dgx-a100 dgx-h100 hgx-b200 --model llama3-70b --global-batch 1024
    --seq 8192 --gpus 128; or each of its own size: dgx-a100@32 dgx-h100@16 hgx-b200@8.

    Exit codes: 0 ok, 2 bad input, or a model that fits on none of the clusters.
    """
    drawn = Drawn(plot, theme, report).check()
    operation, others = _asked(context, model, rest or [])
    if gpus is not None and (nodes, nodes_a, nodes_b) != (None, None, None):
        raise PlanError("compare: --gpus says how many machines: leave --nodes out")
    shared = tuple(settings or ())
    sides = [
        _side(cluster_a, nodes if nodes_a is None else nodes_a, gpus, (*shared, *(set_a or ()))),
        _side(cluster_b, nodes if nodes_b is None else nodes_b, gpus, (*shared, *(set_b or ()))),
        *(_side(other, nodes, gpus, shared) for other in others),
    ]
    if operation is None:
        if model is None or global_batch is None or seq is None:
            raise PlanError("compare: --model: a training wants --global-batch and --seq too")
        from commsim.cli._offers import offered  # 0.5 s, which an operation does not need
        from commsim.cli._training import training

        asked = training(
            model, global_batch=global_batch, seq=seq, objective=objective, framework=framework,
            dtype=dtype or "bfloat16", only=only, exclude=exclude, simulate=simulate, tune=tune,
            profile=profile, engine=engine, jobs=jobs, results=results,
        )  # fmt: skip
        offered([side.cluster() for side in sides], asked, drawn, json)
        return
    first, second = (
        a.question(
            side.source, operation, nodes=side.nodes, settings=side.settings, library=name,
            env=env, launch=launch, ranks=ranks, root=root, dtype=dtype or "float32", redop=redop,
            profile=profile,
        )
        for side, name in zip(sides, (library_a or library, library_b or library), strict=True)
    )  # fmt: skip
    sizes = [0] if first.operation == "barrier" else [parse_size(text) for text in size or SIZES]
    compared(first, second, sides[0].cluster, sizes, drawn, json)


def _asked(
    context: typer.Context, model: str | None, rest: Sequence[str]
) -> tuple[str | None, Sequence[str]]:
    """The operation, or None and the clusters after the second; PlanError on anything between."""
    if model is None:
        if not rest:
            raise PlanError(
                "compare: expected an operation (compare dgx-a100 dgx-h100 all_reduce), or a "
                "training: --model llama3-70b --global-batch 1024 --seq 8192"
            )
        if len(rest) > 1:
            raise PlanError(
                f"compare: an operation is compared on two clusters, got {' '.join(rest)} after "
                "them; several are compared by a training: --model"
            )
        _refuse(context, TRAINING, f"is of a training, not of {rest[0]}: give --model instead")
        return rest[0], ()
    for word in rest:
        with suppress(UnknownNameError):
            raise PlanError(
                f"compare: {a.read_operation(word)} and --model: one operation or a training, "
                "leave one of them out"
            )
    _refuse(context, OPERATION, "is of an operation, and --model asks for a training")
    return None, rest


def _refuse(context: typer.Context, names: Sequence[str], why: str) -> None:
    """Raises PlanError on an option that was given and is none of this question."""
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name in names and source is not None and source.name == "COMMANDLINE":
            raise PlanError(f"compare: {max(parameter.opts, key=len)} {why}")


def _side(text: str, nodes: int | None, gpus: int | None, settings: tuple[str, ...]) -> Side:
    source, own = a.counted(text)
    if gpus is not None and own is not None:
        raise PlanError(f"compare: --gpus says how many machines: leave @{own} of {text} out")
    if gpus is not None:
        nodes = a.nodes_of(source, gpus, settings)
    return Side(source=source, nodes=nodes if own is None else own, settings=settings)
