"""`commsim step`: one training step of a model under a parallel layout, where its time goes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from commsim.cli import _arguments as a
from commsim.cli import _plot as pictures
from commsim.cli._drawn import Drawn, Plot, Report, Theme
from commsim.cli._output import print_facts, print_json, print_notes, print_section, print_table
from commsim.errors import LayoutError
from commsim.units import format_size, format_time

if TYPE_CHECKING:
    from commsim.workload.simulated_step import StepTimeline
    from commsim.workload.step import StepPrediction

BAR = 40  # characters of the waterfall's longest bar

ModelText = Annotated[
    str,
    typer.Option(
        "--model",
        "-m",
        help="A preset (llama3-70b), a Hugging Face config.json, or a .toml of its keys.",
        show_default=False,
    ),
]
ClusterOption = Annotated[
    str, typer.Option("--cluster", "-c", help="A preset or a cluster file.", show_default=False)
]


def step(
    model: ModelText,
    cluster: ClusterOption,
    nodes: a.Nodes = None,
    settings: a.Settings = None,
    tp: Annotated[int, typer.Option("--tp", help="Tensor-parallel ranks.")] = 1,
    pp: Annotated[int, typer.Option("--pp", help="Pipeline stages.")] = 1,
    dp: Annotated[
        int | None, typer.Option("--dp", help="Data-parallel ranks. Default: all that are left.")
    ] = None,
    cp: Annotated[int, typer.Option("--cp", help="Context-parallel ranks.")] = 1,
    ep: Annotated[int, typer.Option("--ep", help="Ranks over which experts are spread.")] = 1,
    etp: Annotated[
        int | None, typer.Option("--etp", help="Tensor parallelism inside an expert. Default: tp.")
    ] = None,
    micro_batch: Annotated[
        int, typer.Option("--micro-batch", help="Sequences a replica works on at a time.")
    ] = 1,
    global_batch: Annotated[
        int | None,
        typer.Option("--global-batch", help="Sequences of a step. Default: dp x micro-batch."),
    ] = None,
    seq: Annotated[int, typer.Option("--seq", help="Tokens of a sequence.")] = 4096,
    dtype: Annotated[
        str, typer.Option("--dtype", help="bfloat16, float16, float32, float8.")
    ] = "bfloat16",
    schedule: Annotated[
        str, typer.Option("--schedule", help="1f1b, interleaved, gpipe, zero_bubble, dualpipe.")
    ] = "1f1b",
    interleave: Annotated[
        int, typer.Option("--interleave", help="Model chunks of each stage.")
    ] = 1,
    zero: Annotated[
        int | None,
        typer.Option("--zero", help="ZeRO stage, 0 to 3. Default: 3 for fsdp and torchtitan, 0 for"
                     " ddp, else 1."),
    ] = None,
    hsdp: Annotated[int | None, typer.Option("--hsdp", help="Ranks of a shard group.")] = None,
    recompute: Annotated[
        str, typer.Option("--recompute", help="none, selective (attention's core), full.")
    ] = "none",
    sequence_parallel: Annotated[bool, typer.Option(help="Beside tensor parallelism.")] = True,
    overlap_grad_reduce: Annotated[
        bool, typer.Option(help="Reduce gradients beside the backward pass.")
    ] = True,
    overlap_param_gather: Annotated[
        bool, typer.Option(help="Gather parameters beside the forward pass.")
    ] = True,
    tp_comm_overlap: Annotated[
        bool, typer.Option(help="Cut tensor-parallel messages into pieces beside products.")
    ] = False,
    framework: Annotated[
        str, typer.Option("--framework", help="megatron, nemo, deepspeed, fsdp, torchtitan, ddp.")
    ] = "megatron",
    profile: a.ProfilePath = None,
    simulate: Annotated[
        bool, typer.Option("--simulate", help="Play the step task by task too.")
    ] = False,
    timeline: Annotated[
        Path | None,
        typer.Option(
            "--timeline", help="Write the played step as a Chrome trace, which Perfetto opens."
        ),
    ] = None,
    plot: Plot = None,
    theme: Theme = "auto",
    report: Report = None,
    json: a.Json = False,
) -> None:  # fmt: skip
    """How long one training step takes, what it waits for, and whether it fits in memory.

    Example: commsim step --model llama3-70b --cluster dgx-h100 --nodes 32 --tp 8 --pp 4
    --global-batch 1024 --seq 8192

    Exit codes: 0 ok, 2 bad input.
    """
    from commsim.workload.layout import Layout
    from commsim.workload.load import load_model
    from commsim.workload.step import predict_step

    drawn = Drawn(plot, theme, report).check()
    machines = a.read_cluster(cluster, nodes=nodes, settings=settings)
    if dp is None:
        dp = _rest(machines.n_ranks, tp * pp * cp)
    if zero is None:
        zero = {"fsdp": 3, "torchtitan": 3, "ddp": 0}.get(framework, 1)
    layout = Layout(
        tp=tp, pp=pp, dp=dp, cp=cp, ep=ep, etp=etp, micro_batch=micro_batch,
        global_batch=global_batch or dp * micro_batch, seq_len=seq, dtype=dtype,
        schedule=schedule, interleave=interleave, zero_stage=zero, hsdp=hsdp, recompute=recompute,
        sequence_parallel=sequence_parallel, overlap_grad_reduce=overlap_grad_reduce,
        overlap_param_gather=overlap_param_gather, tp_comm_overlap=tp_comm_overlap,
        framework=framework,
    )  # fmt: skip
    a.check_folders([("--timeline", timeline)])
    trained, constants = load_model(model), a.read_profile(profile)
    played = None
    if simulate or timeline is not None:
        from commsim.workload.simulated_step import simulate_step

        played = simulate_step(trained, machines, layout, constants)
        found = played.predicted
    else:
        found = predict_step(trained, machines, layout, constants)
    if played is not None and timeline is not None:
        from commsim.traces.chrome_stages import write

        write(played, timeline)
    data = found.to_dict() | ({"simulated": played.to_dict()} if played else {})
    drawn.write(lambda: pictures.stepped(found, played), "step", data)
    if json:
        print_json(data)
        return
    print(title(found))
    print_facts([*summary(found), *(simulated(played) if played else ())])
    print_section("where the step goes", waterfall(found))
    print_table("communication of one rank", *messages(found))
    print_table("memory of the heaviest stage's ranks", *memory_table(found))
    print_notes(found.notes)
    if timeline is not None:
        print(f"\ntimeline written to {timeline}; open it at https://ui.perfetto.dev")


def _rest(ranks: int, taken: int) -> int:
    if ranks % taken:
        raise LayoutError(
            (f"layout: tp x pp x cp = {taken} does not divide the cluster's {ranks} GPUs",), ""
        )
    return ranks // taken


def title(found: StepPrediction) -> str:
    """One line: what trains on what, and how it is laid out."""
    x, c = found.layout, found.cluster
    sizes = " ".join(
        f"{name}={getattr(x, name)}" for name in ("tp", "pp", "dp", "cp", "ep")
        if getattr(x, name) > 1
    )  # fmt: skip
    return (
        f"{found.model.name} ({found.model.parameters / 1e9:.3g} B) on {c.name}:"
        f" {x.world} x {c.gpu.name}, {x.framework} {sizes or 'one GPU'},"
        f" {x.micro_batches} micro-batches of {x.micro_batch} x {x.seq_len} tokens"
    )


def summary(found: StepPrediction) -> list[tuple[str, str]]:
    """The answer, a line a fact."""
    low, high = found.interval
    m = found.memory
    room = "fits" if m.fits else "does NOT fit"
    exposed = sum(found.exposed.values())
    return [
        (
            "step",
            f"{format_time(found.duration)}   80 %: {format_time(low)} to {format_time(high)}",
        ),
        ("throughput", f"{found.tokens_per_second_per_gpu:,.0f} tokens/s/GPU"),
        ("MFU", f"{100 * found.mfu:.1f} %   (model FLOP, causal attention by half, dense peak)"),
        (
            "exposed communication",
            f"{format_time(exposed)} ({100 * exposed / found.duration:.1f} %)",
        ),
        (
            "memory",
            f"{format_size(int(m.peak))} of {format_size(int(m.capacity))} on rank {m.worst.rank}:"
            f" {room}, {format_size(abs(int(m.headroom)))} {'left' if m.fits else 'missing'}",
        ),
    ]


def simulated(played: StepTimeline) -> list[tuple[str, str]]:
    """What the step takes when it is played, beside the closed form."""
    ratio = played.duration / played.predicted.duration
    exposed = {k: v for k, v in played.exposed.items() if v > 1e-4 * played.duration}
    waited = ", ".join(f"{k} {format_time(v)}" for k, v in exposed.items())
    return [
        ("simulated", f"{format_time(played.duration)}   x {ratio:.3f} of the closed form;"
                      f" {played.tasks:,} tasks"),
        ("simulated waits", f"{waited or 'no messages'}; bubble {format_time(played.bubble)};"
                            f" stage {played.busiest}"),
    ]  # fmt: skip


def waterfall(found: StepPrediction) -> list[str]:
    """A bar for each part of the step."""
    parts = {k: v for k, v in found.breakdown.items() if v > 1e-4 * found.duration}
    longest = max(parts.values())
    width = max(map(len, parts))
    return [
        f"{name:<{width}}  {format_time(value):>9} {100 * value / found.duration:5.1f} %"
        f"  {'#' * max(1, round(BAR * value / longest))}"
        for name, value in parts.items()
    ]


def messages(found: StepPrediction) -> tuple[list[str], list[list[str]]]:
    """Every kind of message: how often, how long, how much of it shows."""
    rows = []
    for sent in found.messages:
        total = sent.message.duration * sent.count
        shown = sent.exposed * sent.count
        rows.append([
            sent.kind, sent.message.operation, f"{sent.message.ranks}",
            format_size(sent.message.nbytes), sent.message.algorithm, f"{sent.count:,.0f}",
            format_time(total), format_time(max(0.0, total - shown)), format_time(shown),
        ])  # fmt: skip
    head = [
        "along", "operation", ">ranks", ">size", "algorithm", ">times", ">total", ">hidden",
        ">exposed",
    ]  # fmt: skip
    return head, rows


def memory_table(found: StepPrediction) -> tuple[list[str], list[list[str]]]:
    """What the heaviest stage's ranks hold."""
    worst = found.memory.worst
    rows: list[Any] = [
        [name, format_size(int(value))] for name, value in worst.components.items() if value >= 1
    ]
    return ["component", ">size"], rows
