"""`commsim plan`: which layout, on which cluster, and which part of it to pay for."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from commsim.cli import _arguments as a
from commsim.cli._output import print_json, print_section, print_table
from commsim.planning.engine import Engine
from commsim.planning.plans import Plan, Plans
from commsim.planning.plans import plan as find_plans
from commsim.planning.reasons import explain as reasons_of
from commsim.planning.store import Store
from commsim.units import format_time
from commsim.workload.load import load_model

SHOWN = 10


def plan(
    model: Annotated[str, typer.Option(help="A preset, a Hugging Face config.json, or a .toml.")],
    cluster: Annotated[str, typer.Option(help="A preset or a cluster file.")],
    global_batch: Annotated[int, typer.Option(help="Sequences of one step.")],
    seq: Annotated[int, typer.Option("--seq", "--seq-len", help="Tokens of a sequence.")],
    nodes: a.Nodes = None,
    settings: a.Settings = None,
    objective: Annotated[str, typer.Option(help="time, cost or memory.")] = "time",
    framework: Annotated[
        list[str] | None,
        typer.Option(help="megatron (default), nemo, torchtitan, fsdp, deepspeed ... Repeatable."),
    ] = None,
    dtype: Annotated[str, typer.Option(help="bfloat16, float16, float32 or float8.")] = "bfloat16",
    only: Annotated[
        list[str] | None,
        typer.Option(help="Hold a dimension to some values: tp=4,8. Repeatable."),
    ] = None,
    top: Annotated[int, typer.Option(help="How many layouts to rank.")] = SHOWN,
    explain: Annotated[bool, typer.Option(help="Why the best beats the second.")] = False,
    engine: Annotated[
        str, typer.Option(help="auto, serial, local (cores), dask://host:port or ray://host:port.")
    ] = "auto",
    jobs: Annotated[int | None, typer.Option(help="Processes of the local engine.")] = None,
    results: Annotated[
        Path | None, typer.Option(help="SQLite file to keep results in and to go on from.")
    ] = None,
    profile: a.ProfilePath = None,
    json: a.Json = False,
) -> None:
    """The best layouts of a model on a cluster, with what each takes, needs and costs.

    Example: commsim plan --model llama3-70b --cluster dgx-h100 --nodes 16 --global-batch 512
    --seq 8192

    Exit codes: 0 ok, 2 bad input or a cluster too small for the model.
    """
    machines = a.read_cluster(cluster, nodes=nodes, settings=settings)
    found = find_plans(
        load_model(model), machines, global_batch=global_batch, seq_len=seq,
        objective=objective, framework=tuple(framework or ("megatron",)), dtype=dtype,
        only=read_only(only), top=top, profile=profile,
        engine=Engine(where=engine, jobs=jobs, store=None if results is None else Store(results)),
        progress=_progress,
    )  # fmt: skip
    if json:
        print_json(found.to_dict() | ({"explanation": explanation(found)} if explain else {}))
        return
    show(found)
    if explain:
        print_section("why the best beats the second", explanation(found))


def read_only(texts: Sequence[str] | None) -> dict[str, tuple[Any, ...]]:
    """Dimensions and their values, of tp=4,8."""
    pairs = a.read_pairs("--only", "tp=4,8", texts)
    return {
        name: tuple(_value(piece) for piece in text.split(",") if piece.strip())
        for name, text in pairs.items()
    }


def _value(text: str) -> Any:
    plain = text.strip()
    return None if plain.lower() == "none" and plain != "none" else a.read_value(plain)


def explanation(plans: Plans) -> list[str]:
    """Why the first is before the second, a line each."""
    if len(plans) < 2:
        return ["there is no second"]
    return list(reasons_of(plans[0], plans[1]))


def show(plans: Plans) -> None:
    """The table, the front, what was left out."""
    print(
        f"{plans.model.name} on {plans.cluster.name}, {plans.cluster.n_ranks:,} GPUs: "
        f"{plans.searched:,} layouts searched, {plans.timed:,} timed"
    )
    price = plans.best.price
    columns = (
        ">", "layout", ">step", ">80 %", ">MFU", ">free", ">exposed", "bottleneck", *(
            (">USD/10^12 tokens",) if price else ()
        ),
    )  # fmt: skip
    print_table(f"the best by {plans.objective}", columns, [_row(plan) for plan in plans])
    if sum(plan.tie for plan in plans) > 1:
        print(f"  ~ a tie: {_percent(0.05)} or less behind the best, which predictions cannot tell")
    print_table(
        "not beaten in both time and memory", (">step", ">free", "layout"),
        [(format_time(p.duration), _gib(p.headroom), layout_text(p)) for p in plans.front[:SHOWN]],
    )  # fmt: skip
    print_section("left out", [f"{r.count:>9,} {r.of} {r.reason}" for r in plans.rejected])
    if price:
        dated = f", {price.date}" if price.date else ""
        print_section(
            "price", [f"{price.usd_per_gpu_hour} USD per GPU-hour: {price.source}{dated}"]
        )
    print_section("notes", plans.notes)


def _row(plan: Plan) -> tuple[str, ...]:
    low, high = plan.step.interval
    exposed = sum(plan.step.exposed.values())
    kinds = ", ".join(
        f"{kind} {_percent(part / plan.duration)}"
        for kind, part in plan.step.exposed.items()
        if part > 0.005 * plan.duration
    )
    name, share = plan.bottleneck
    cost = plan.cost_per_trillion_tokens
    return (
        f"{plan.place}{'~' if plan.tie and plan.place > 1 else ' '}",
        layout_text(plan), format_time(plan.duration),
        f"{format_time(low)} .. {format_time(high)}", _percent(plan.step.mfu), _gib(plan.headroom),
        f"{_percent(exposed / plan.duration)}{f' ({kinds})' if kinds else ''}",
        f"{name} {_percent(share)}", *(() if cost is None else (f"{cost:,.0f}",)),
    )  # fmt: skip


def layout_text(plan: Plan) -> str:
    """`tp8 pp4 dp32 mb1 ...`: what differs from the plainest layout."""
    one = plan.layout
    parts = [f"tp{one.tp}", f"pp{one.pp}", f"dp{one.dp}"]
    parts += [f"cp{one.cp}"] * (one.cp > 1) + [f"ep{one.ep}"] * (one.ep > 1)
    parts += [f"etp{one.etp}"] * (one.etp is not None) + [f"mb{one.micro_batch}"]
    parts += [f"v{one.interleave}"] * (one.interleave > 1)
    parts += [one.schedule] * (one.schedule != "1f1b")
    parts += [f"zero{one.zero_stage}"] + [f"hsdp{one.hsdp}"] * (one.hsdp is not None)
    parts += [f"recompute:{one.recompute}"] * (one.recompute != "none")
    parts += ["tp-overlap"] * one.tp_comm_overlap
    parts += ["no-grad-overlap"] * (not one.overlap_grad_reduce and one.dp > 1)
    parts += ["pp-before-dp"] * (one.order == "tp-cp-ep-pp-dp")
    return " ".join(parts)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _gib(nbytes: float) -> str:
    return f"{nbytes / 2**30:.1f} GiB"


def _progress(what: str, done: int, of: int) -> None:
    if sys.stderr.isatty():
        words = {"memory": "batches surveyed", "time": "layouts timed"}
        print(f"\r{done:,} of {of:,} {words[what]} ", end="", file=sys.stderr)
        if done == of:
            print(file=sys.stderr)
