"""`commsim run`: runs a torch.distributed script on a simulated cluster."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from commsim.cli import _arguments as a
from commsim.cli._output import print_facts, print_json, print_notes, print_table
from commsim.errors import SpecError
from commsim.units import format_size, format_time, parse_size, parse_time

if TYPE_CHECKING:
    from commsim.torch_backend import Run

FAILED = 3
SHOWN = 8  # ranks in a table
# What follows the script is the script's own, as with torchrun.
CONTEXT_SETTINGS = {"allow_interspersed_args": False}


def run(
    script: Annotated[Path, typer.Argument(metavar="SCRIPT", show_default=False)],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="ARGS", help="The script's own arguments.")
    ] = None,
    cluster: Annotated[
        str, typer.Option("--cluster", "-c", help="A preset or file, as for `commsim predict`.")
    ] = "dgx-h100",
    nodes: Annotated[
        int | None, typer.Option("--nodes", "--nnodes", "-N", help="Number of machines.")
    ] = None,
    nproc_per_node: Annotated[
        int | None,
        typer.Option(
            "--nproc-per-node", "--nproc_per_node", help="Ranks on a machine. Default: its GPUs."
        ),
    ] = None,
    compute: Annotated[
        str,
        typer.Option(
            "--compute",
            help="How computing is timed: roofline (of the cluster's GPU), measured (this CPU's"
            " own time), none.",
        ),
    ] = "roofline",
    launch_overhead: Annotated[
        str | None,
        typer.Option("--launch-overhead", help="What a kernel costs the host. Default: 8us."),
    ] = None,
    send_buffer: Annotated[
        str,
        typer.Option(
            "--send-buffer",
            help="A send of up to this size is done before its receive is called. 0: never.",
        ),
    ] = "0",
    simulate: Annotated[
        str | None,
        typer.Option(
            "--simulate",
            help="The ranks that really run, such as 0 or 0-3; each stands for those like it.",
        ),
    ] = None,
    fake: Annotated[
        bool, typer.Option("--fake", help="Shapes only: tensors without data, for large models.")
    ] = False,
    cuda_shim: Annotated[
        bool, typer.Option("--cuda-shim", help="Let scripts for CUDA and NCCL run on this CPU.")
    ] = False,
    share_links: Annotated[
        bool,
        typer.Option(
            "--share-links/--no-share-links",
            help="Operations under way at once slow each other on the links that both take.",
        ),
    ] = True,
    settings: a.Settings = None,
    library: a.LibraryText = None,
    env: a.Environment = None,
    profile: a.ProfilePath = None,
    timeline: Annotated[
        Path | None, typer.Option("--timeline", help="Write a timeline for ui.perfetto.dev.")
    ] = None,
    json: a.Json = False,
) -> None:
    """Run a torch.distributed script, unmodified, on a simulated cluster.

    Every rank is a thread, real values move between them, and time is that of the cluster. Whatever
    backend the script asks for, it gets the simulated one.

    Example: commsim run --cluster dgx-h100 --nodes 2 train.py --lr 0.1

    Exit codes: 0 ok, 2 bad input, 3 the script deadlocks, misuses an operation, or raises.
    """
    backend = _backend()
    machines = a.read_cluster(cluster, nodes=nodes, settings=settings)
    if timeline is not None and not timeline.resolve().parent.is_dir():
        raise SpecError([f"--timeline: {timeline}: the folder does not exist; make it first"])
    options = backend.Options(
        nproc_per_node=nproc_per_node, compute=compute, send_buffer=parse_size(send_buffer),
        launch=None if launch_overhead is None else parse_time(launch_overhead),
        ranks=a.read_ranks(simulate), keep_spans=timeline is not None,
        library=a.read_library(library, machines, env), profile=a.read_profile(profile),
        fake=fake, cuda_shim=cuda_shim, share_links=share_links,
    )  # fmt: skip
    with _output_of_script(to_stderr=json):
        found = backend.run(script, arguments or (), cluster=machines, options=options)
    if timeline is not None:
        backend.write_timeline(found, timeline)
    if json:
        print_json(found.to_dict())
    else:
        show(found)
        if timeline is not None:
            print(f"\ntimeline written to {timeline}; open it at https://ui.perfetto.dev")
    if found.failure is not None:
        print(f"\n{found.failure.traceback}{found.failure}", file=sys.stderr)
        raise typer.Exit(FAILED)


def _backend() -> Any:
    """commsim.torch_backend, if torch is there."""
    if importlib.util.find_spec("torch") is None:
        raise SpecError(
            ["commsim run needs PyTorch: pip install 'commsim[torch]' (a CPU build will do)"]
        )
    from commsim import torch_backend

    return torch_backend


@contextlib.contextmanager
def _output_of_script(to_stderr: bool) -> Iterator[None]:
    """Keep stdout for JSON."""
    if to_stderr:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    else:
        yield
        sys.stdout.flush()


def show(found: Run) -> None:
    """The answer for a reader."""
    world, cluster = found.world, found.cluster
    machines = "node" if cluster.nodes == 1 else "nodes"
    some = "" if len(world.ranks) == world.size else f", of which {len(world.ranks)} simulated"
    print(
        f"\n{world.size} ranks{some} on {cluster.name}, {cluster.nodes} {machines}, "
        f"{world.prices.library.name} {world.prices.library.version}; compute: {found.compute}"
    )
    facts = [("duration", format_time(found.duration))]
    if found.step_duration is not None:
        facts.insert(
            0, ("step", f"{format_time(found.step_duration)}   median of {found.steady_steps}")
        )
    print_facts(facts)
    rows = [
        (
            row.operation, format_size(row.nbytes), row.dtype, str(row.ranks), str(row.count),
            format_time(row.duration / row.count), format_time(row.duration),
            format_time(row.exposed), format_time(row.awaiting_others), row.algorithm,
        )
        for row in found.table()
    ]  # fmt: skip
    if rows:
        columns = ("operation", ">size", "dtype", ">ranks", ">count", ">each", ">in all")
        print_table("operations", (*columns, ">exposed", ">of it waiting", "algorithm"), rows)
    show_ranks(found)
    print_notes(found.notes)


def show_ranks(found: Run) -> None:
    """Computation, communication and their overlap; the ranks that stand still longest first."""
    ranks = sorted(found.ranks(), key=lambda r: (-r.exposed, r.rank))
    print_table(
        "overlap" if len(ranks) <= SHOWN else f"overlap, {SHOWN} of {len(ranks)} ranks",
        (
            ">rank", ">duration", ">computing", ">communicating", ">exposed", ">of it waiting",
            ">overlapped",
        ),
        [
            (
                str(r.rank), format_time(r.duration), format_time(r.computing),
                format_time(r.communicating), format_time(r.exposed),
                format_time(r.awaiting_others), f"{r.overlapped:.0%}",
            )
            for r in ranks[:SHOWN]
        ],
    )  # fmt: skip
