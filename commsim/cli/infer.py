"""`commsim infer`: serving a model: time to first token, time per output token, memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from commsim.cli import _arguments as a
from commsim.cli import _plot as pictures
from commsim.cli._drawn import Drawn, Plot, Report, Theme
from commsim.cli._output import print_facts, print_json, print_notes, print_table
from commsim.cli.step import ClusterOption, ModelText
from commsim.units import format_size, format_time

if TYPE_CHECKING:
    from commsim.workload.inference import InferencePrediction
    from commsim.workload.serving.phases import Phase


def infer(
    model: ModelText,
    cluster: ClusterOption,
    nodes: a.Nodes = None,
    settings: a.Settings = None,
    tp: Annotated[int, typer.Option("--tp", help="Tensor-parallel ranks.")] = 1,
    pp: Annotated[int, typer.Option("--pp", help="Pipeline stages.")] = 1,
    dp: Annotated[
        int, typer.Option("--dp", help="Replicas of attention that share the experts.")
    ] = 1,
    ep: Annotated[int, typer.Option("--ep", help="Ranks over which experts are spread.")] = 1,
    batch: Annotated[int, typer.Option("--batch", help="Sequences in flight.")] = 1,
    prompt: Annotated[int, typer.Option("--prompt", help="Tokens of a prompt.")] = 1024,
    output: Annotated[int, typer.Option("--output", help="Tokens written for each.")] = 128,
    context: Annotated[
        int | None,
        typer.Option(
            "--context", help="Tokens of a sequence when decoding. Default: the mean of the run."
        ),
    ] = None,
    dtype: Annotated[
        str, typer.Option("--dtype", help="Weights and products: bfloat16, float16, float8.")
    ] = "bfloat16",
    cache_dtype: Annotated[
        str | None, typer.Option("--cache-dtype", help="Keys and values. Default: bfloat16.")
    ] = None,
    all_reduce: Annotated[
        str,
        typer.Option("--all-reduce", help="auto (by size, as vLLM), nccl, one_shot or two_shot."),
    ] = "auto",
    profile: a.ProfilePath = None,
    plot: Plot = None,
    theme: Theme = "auto",
    report: Report = None,
    json: a.Json = False,
) -> None:
    """How fast a served model answers, what its messages cost, whether its cache fits in memory.

    Example: commsim infer --model llama3-70b --cluster dgx-h100 --tp 8 --batch 32 --prompt 2048
    --output 256

    Exit codes: 0 ok, 2 bad input.
    """
    from commsim.workload.inference import predict_inference
    from commsim.workload.load import load_model

    drawn = Drawn(plot, theme, report).check()
    machines = a.read_cluster(cluster, nodes=nodes, settings=settings)
    found = predict_inference(
        load_model(model), machines, tp=tp, pp=pp, dp=dp, ep=ep, batch=batch, prompt=prompt,
        output=output, context=context, dtype=dtype, cache_dtype=cache_dtype,
        all_reduce=all_reduce, profile=a.read_profile(profile),
    )  # fmt: skip
    data = found.to_dict()
    drawn.write(lambda: pictures.served(found), "infer", data)
    if json:
        print_json(data)
        return
    print(title(found))
    print_facts(summary(found))
    print_table("where the time goes", *phases(found))
    print_table("messages", *messages(found))
    print_notes(found.notes)


def title(found: InferencePrediction) -> str:
    """One line: what is served on what."""
    x, c = found.layout, found.cluster
    sizes = " ".join(
        f"{name}={getattr(x, name)}" for name in ("tp", "pp", "dp", "ep") if getattr(x, name) > 1
    )
    return (
        f"{found.model.name} ({found.model.parameters / 1e9:.3g} B, {x.dtype}) on {c.name}:"
        f" {x.world} x {c.gpu.name}, {sizes or 'one GPU'}; {found.batch} sequences of"
        f" {found.prompt} + {found.output} tokens"
    )


def summary(found: InferencePrediction) -> list[tuple[str, str]]:
    """The answer, a line a fact."""
    m = found.memory
    room = f"fits, {format_size(int(m.headroom))} left" if m.fits else (
        f"does NOT fit, {format_size(abs(int(m.headroom)))} missing"
    )  # fmt: skip
    return [
        ("time to first token", f"{format_time(found.time_to_first_token)}"
         f"   {100 * found.prefill.communication_share:.1f} % communication"),
        ("time per output token", f"{format_time(found.time_per_output_token)}"
         f"   {100 * found.decode.communication_share:.1f} % communication,"
         f" at {found.context} tokens of context"),
        ("whole request", f"{format_time(found.request)}"),
        ("decoding", f"{found.tokens_per_second:,.0f} tokens/s;"
         f" with the prompts {found.output_tokens_per_second:,.0f}"),
        ("cache", f"{format_size(found.cache)} of keys and values a GPU ({found.cache_dtype})"),
        ("memory", f"{format_size(int(m.peak))} of {format_size(int(m.capacity))} a GPU: {room}"),
    ]  # fmt: skip


def phases(found: InferencePrediction) -> tuple[list[str], list[list[str]]]:
    """Both phases, part by part."""
    tables: list[dict[str, float]] = [
        phase.to_dict()["breakdown_s"] for phase in (found.prefill, found.decode)
    ]
    rows = []
    for part in dict.fromkeys([*tables[0], *tables[1]]):
        values = [table.get(part, 0.0) for table in tables]
        if any(values):
            rows.append([part, *map(format_time, values)])
    return ["part", ">prefill", ">one token"], rows


def messages(found: InferencePrediction) -> tuple[list[str], list[list[str]]]:
    """Every kind of message: how often, how long."""

    def listed(name: str, phase: Phase) -> list[list[str]]:
        return [
            [
                name, x.kind, x.message.operation, f"{x.message.ranks}",
                format_size(x.message.nbytes), x.message.algorithm, f"{x.count:,.0f}",
                format_time(x.message.duration), format_time(x.message.duration * x.count),
            ]
            for x in phase.sent
        ]  # fmt: skip

    head = [
        "phase", "along", "operation", ">ranks", ">size", "algorithm", ">times", ">each", ">total",
    ]  # fmt: skip
    return head, listed("prefill", found.prefill) + listed("decode", found.decode)
