"""`commsim place`: which rank should sit on which GPU, ready for the launcher."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from commsim.cli import _arguments as a
from commsim.cli._output import print_facts, print_json, print_section, print_table
from commsim.errors import LayoutError, PlanError, UnknownNameError
from commsim.planning.placement import (
    AS_NUMBERED,
    MOST_MOVED,
    Mapping,
    Traffic,
    mappings,
    order_mappings,
    orders,
    traffic_of,
)
from commsim.planning.rank_files import FORMATS, OWN, devices, megatron, written
from commsim.topology.cluster import Cluster
from commsim.units import format_size, format_time, parse_size
from commsim.workload.layout import Layout
from commsim.workload.layouts.groups import KINDS, groups
from commsim.workload.load import load_model
from commsim.workload.step import predict_step

SHOWN = 5  # mappings, and orders
MACHINES = 16  # of which the ranks are shown
EXAMPLE = "tp=all_reduce:64MiB:160"


def place(
    cluster: a.ClusterText,
    nodes: a.Nodes = None,
    settings: a.Settings = None,
    tp: Annotated[int, typer.Option(help="Tensor-parallel ranks.")] = 1,
    pp: Annotated[int, typer.Option(help="Pipeline stages.")] = 1,
    dp: Annotated[
        int | None, typer.Option(help="Data-parallel ranks. Default: all that are left.")
    ] = None,
    cp: Annotated[int, typer.Option(help="Context-parallel ranks.")] = 1,
    ep: Annotated[int, typer.Option(help="Ranks over which experts are spread.")] = 1,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="What its groups send in a step is taken.")
    ] = None,
    global_batch: Annotated[
        int | None,
        typer.Option("--global-batch", help="Sequences of a step. Default: dp x micro-batch."),
    ] = None,
    micro_batch: Annotated[
        int, typer.Option("--micro-batch", help="Sequences a replica works on at a time.")
    ] = 1,
    seq: Annotated[int, typer.Option("--seq", help="Tokens of a sequence.")] = 4096,
    zero: Annotated[int, typer.Option("--zero", help="ZeRO stage, 0 to 3.")] = 1,
    traffic: Annotated[
        list[str] | None,
        typer.Option(
            "--traffic",
            help=f"Or said: KIND=OP:SIZE[:TIMES[:GROUPS]], {EXAMPLE} of a layout's groups, or of "
            "your own: mine=all_gather:1MiB:1:0-3/4-7. Repeatable.",
        ),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option("--format", help=f"The best alone, to paste: {', '.join(FORMATS)}."),
    ] = None,
    hosts: Annotated[
        str | None, typer.Option(help="Names of the machines for it: a,b,c. Default: node0 ...")
    ] = None,
    profile: a.ProfilePath = None,
    json: a.Json = False,
) -> None:
    """Which rank should sit on which GPU: the mapping that costs least, beside the default one.

    Logical ranks are numbered as Megatron-LM and torch meshes do: tp the fastest, then cp, dp, pp.

    Example: commsim place dgx-h100 --nodes 4 --tp 4 --pp 2 --model llama3-8b --global-batch 32

    Groups of your own: commsim place rtx4090x8 --traffic mine=all_reduce:256MiB:10:0,4/1,5/2,6/3,7

    Exit codes: 0 ok, 2 bad input.
    """
    if form is not None and form not in FORMATS:
        raise UnknownNameError("format of a mapping", form, FORMATS)
    machines = a.read_machines(cluster, nodes=nodes, settings=settings)
    layout = _layout(machines, tp, pp, dp, cp, ep, micro_batch, global_batch, seq, zero)
    found_orders: Sequence[tuple[str, float]] = ()
    if (model is None) == (not traffic):
        raise PlanError(
            "place: what do the groups send? Give --model llama3-8b --global-batch 32, or "
            f"--traffic {EXAMPLE}; one of the two"
        )
    if model is not None:
        trained = load_model(model)
        step = predict_step(trained, machines, layout, a.read_profile(profile))
        sent = traffic_of(step)
        found_orders = orders(trained, machines, layout)
    else:
        sent = tuple(read_traffic(text, layout) for text in traffic or ())
    starts = order_mappings(layout)
    found = mappings(sent, machines, starts)
    default = next(m for m in found if m.ranks == tuple(range(machines.n_ranks)))
    names = None if hosts is None else [name.strip() for name in hosts.split(",")]
    meshed = model is not None or all(one.kind in KINDS for one in sent)
    own = layout if meshed else None
    texts = {each: written(each, found[0], machines, own, sent, names) for each in FORMATS}
    flag = _flag(found, starts, layout)
    local = devices(found[0], machines)
    if json:
        print_json(
            {
                "cluster": machines.name, "n_ranks": machines.n_ranks,
                "traffic": [_traffic_dict(one) for one in sent],
                "default": default.to_dict(), "best": found[0].to_dict(),
                "mappings": [mapping.to_dict() for mapping in found],
                "orders": [{"order": o, "duration_s": s} for o, s in found_orders],
                "megatron": flag, "local_gpus": local, "formats": texts,
            }
        )  # fmt: skip
    elif form is not None:
        print(texts[form], end="")
    else:
        _show(machines, sent, found, default)
        _show_orders(found_orders, layout, starts, found[0])
        _show_paste(flag, local, machines, meshed)


def _layout(
    machines: Cluster, tp: int, pp: int, dp: int | None, cp: int, ep: int, micro_batch: int,
    global_batch: int | None, seq: int, zero: int,
) -> Layout:  # fmt: skip
    for name, value in (("tp", tp), ("pp", pp), ("dp", dp), ("cp", cp), ("ep", ep)):
        if value is not None and value < 1:
            raise LayoutError((f"layout.{name}: expected 1 or more, got {value}",))
    taken, ranks = tp * pp * cp, machines.n_ranks
    rest = ranks // taken if dp is None else dp
    if taken * rest != ranks:
        raise LayoutError(
            (f"layout: tp x pp x cp x dp = {taken} x {rest} is not the cluster's {ranks} GPUs",)
        )
    return Layout(
        tp=tp, pp=pp, dp=rest, cp=cp, ep=ep, micro_batch=micro_batch, seq_len=seq, zero_stage=zero,
        global_batch=global_batch or rest * micro_batch,
    )  # fmt: skip


def read_traffic(text: str, layout: Layout) -> Traffic:
    """The traffic of KIND=OP:SIZE[:TIMES[:GROUPS]]; PlanError on what is not of that form."""
    match = re.fullmatch(
        r"(\w+)=([\w-]+):([^:]+)(?::(\d+(?:\.\d+)?))?(?::([\d,/-]+))?", text.strip()
    )
    if match is None:
        raise PlanError(
            f"--traffic: expected KIND=OP:SIZE[:TIMES[:GROUPS]] such as {EXAMPLE}, got {text!r}"
        )
    kind, operation, size, times, own = match.groups()
    if own is not None:
        members = tuple(a.read_ranks(group) or () for group in own.split("/"))
    elif kind in KINDS:
        members = groups(layout).all(kind)
    else:
        raise UnknownNameError("kind of group without ranks of its own", kind, KINDS)
    return Traffic(
        kind=kind, groups=members, operation=a.read_operation(operation), nbytes=parse_size(size),
        count=float(times or 1),
    )  # fmt: skip


def _flag(found: Sequence[Mapping], starts: dict[str, tuple[int, ...]], layout: Layout) -> str:
    """What Megatron-LM is told to be as cheap as the best; "" where it cannot be told."""
    cheap = {m.ranks for m in found if m.duration <= found[0].duration * (1 + 1e-9)}
    if tuple(range(layout.world)) in cheap:
        return OWN
    flags = [megatron(order, layout) for order, ranks in starts.items() if ranks in cheap]
    return next(filter(None, flags), "")


def _traffic_dict(one: Traffic) -> dict[str, Any]:
    return {
        "kind": one.kind, "operation": one.operation, "size_bytes": one.nbytes,
        "count": one.count, "groups": [list(group) for group in one.groups],
    }  # fmt: skip


def _show(
    machines: Cluster, sent: Sequence[Traffic], found: Sequence[Mapping], default: Mapping
) -> None:
    best = found[0]
    print(f"{machines.name}: {machines.nodes} x {machines.gpus_per_node} {machines.gpu.name}")
    print_table(
        "what the groups send", ("kind", ">groups", ">ranks", "operation", ">size", ">times"),
        [
            (
                one.kind, f"{len(one.groups):,}", f"{len(one.groups[0])}", one.operation,
                format_size(one.nbytes), f"{one.count:,.0f}",
            )
            for one in sent
        ],
    )  # fmt: skip
    kinds = list(dict.fromkeys(one.kind for one in sent))
    shown = list(found[:SHOWN]) if default in found[:SHOWN] else [*found[: SHOWN - 1], default]
    print_table(
        "mappings of logical to physical ranks, the cheapest first",
        ("", "mapping", ">messages", ">of default", *(f">{kind}" for kind in kinds)),
        [
            (
                "*" if mapping is best else "", mapping.name, format_time(mapping.duration),
                f"x {mapping.duration / default.duration:.3f}" if default.duration else "-",
                *(format_time(mapping.parts[kind]) for kind in kinds),
            )
            for mapping in shown
        ],
    )  # fmt: skip
    if best.duration >= default.duration * (1 - 1e-9):
        print(f"  the default, {AS_NUMBERED}, costs as little as any that was tried")
    if machines.n_ranks > MOST_MOVED:
        print(f"  of more than {MOST_MOVED} ranks whole numberings alone were tried")
    each = machines.gpus_per_node
    rows = [
        (f"{host}", ", ".join(map(str, best.logical[host * each : (host + 1) * each])))
        for host in range(min(machines.nodes, MACHINES))
    ]
    print_table("who sits where, in the best", ("machine", "logical ranks on its GPUs"), rows)
    if machines.nodes > MACHINES:
        print(f"  ... {machines.nodes - MACHINES} more machines: --format ranks, --json")


def _show_orders(
    found: Sequence[tuple[str, float]], layout: Layout, starts: dict[str, tuple[int, ...]],
    best: Mapping,
) -> None:  # fmt: skip
    """With a model: the whole step, compute and all, by the order of the dimensions."""
    rows = [
        (order, format_time(took), megatron(order, layout) or "a hostfile") for order, took in found
    ]
    if len(rows) > 1:
        columns = ("order, the fastest first", ">step", "Megatron-LM")
        print_table("the step by the order of the layout's dimensions", columns, rows[:SHOWN])
        fastest, least = found[0]
        cheapest = min(
            (took for order, took in found if starts.get(order) == best.ranks), default=0
        )
        if cheapest > least * 1.001:
            print(f"  {fastest} is the better choice: it sends longer than the best above,")
            print("  but behind compute")


def _show_paste(flag: str, local: Sequence[int] | None, machines: Cluster, meshed: bool) -> None:
    print("\nto paste")
    start = "its ranks by a hostfile" if machines.nodes > 1 else "its ranks on the GPUs below"
    facts = [("Megatron-LM", flag or f"no flag says this mapping: start {start}")] * meshed
    if machines.nodes > 1:
        launch = "SLURM_HOSTFILE=ranks.txt srun --distribution=arbitrary"
        also = "mpirun --hostfile ranks.txt --map-by seq"
        facts.append(("hostfile", f"--format hostfile > ranks.txt, then {launch}, or {also}"))
    facts.append(("torch", "--format torch: " + ("a DeviceMesh" if meshed else "its groups")))
    print_facts(facts)
    if local is not None:
        lines = [f"GPU of rank 0, 1, 2 ...: {', '.join(map(str, local))}"]
        print_section("not the GPU that the local rank names: set CUDA_VISIBLE_DEVICES", lines)
