"""`commsim measure`: the same operations for real, with the time that commsim expects beside."""

from __future__ import annotations

import re
import shutil
import sys
import uuid
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from commsim.cli import _arguments as a
from commsim.cli._output import hushed, print_json
from commsim.collectives.collective import Collective
from commsim.errors import BrokenRunError, CollectiveError, MeasureError
from commsim.libraries.lookup import library as find_library
from commsim.measure import steps
from commsim.measure.backend import BACKENDS
from commsim.measure.host import available
from commsim.measure.journal import Journal
from commsim.measure.plan import Gemm, Plan, Settings, Step
from commsim.measure.reporter import Reporter
from commsim.measure.run import CUT_SHORT, launched
from commsim.measure.run import measure as carry_out
from commsim.report.nccl_tests import sizes
from commsim.units import format_size, parse_size, parse_time

WRONG = 1
RANK = 64 << 20
"""Memory that a rank holds at least: one with mpi4py and numpy; with torch 2.13 it is 220 MiB."""
DEFAULT_GEMM: Gemm = (4096, 4096, 4096)
DEFAULT_GEMM_CPU: Gemm = (512, 512, 512)


def measure(
    op: Annotated[
        str | None,
        typer.Argument(
            metavar="OP",
            help="The operation, as for `commsim sweep`. None with --compute.",
            show_default=False,
        ),
    ] = None,
    backend: Annotated[
        str | None,
        typer.Option(help="gloo, nccl or mpi. Default: nccl where there is a GPU, else gloo."),
    ] = None,
    nproc: Annotated[
        int | None,
        typer.Option(
            "--nproc",
            help="Ranks to start here. Left out under torchrun, mpiexec, srun."
            " Default: every GPU, or 2.",
        ),
    ] = None,
    low: Annotated[str, typer.Option("--begin", "-b", help="Smallest size.")] = "4K",
    high: Annotated[str, typer.Option("--end", "-e", help="Largest size.")] = "64M",
    factor: Annotated[int, typer.Option("--factor", "-f", help="Each size times this.")] = 2,
    step: Annotated[
        str | None, typer.Option("--step", "-i", help="Add this to each size instead of -f.")
    ] = None,
    iterations: Annotated[int, typer.Option("--iters", "-n", min=1, help="Runs measured.")] = 20,
    warmup: Annotated[int, typer.Option("--warmup", "-w", min=0, help="Runs before them.")] = 5,
    check: Annotated[int, typer.Option("--check", "-c", help="0: do not check results.")] = 1,
    dtype: a.DtypeText = "float32",
    redop: a.RedopText = "sum",
    root: a.Root = None,
    ranks: a.RanksText = None,
    place: Annotated[
        str, typer.Option(help="out, in or both: of place, as far as the library has it.")
    ] = "both",
    copies: Annotated[
        bool,
        typer.Option("--copies", help="Out of place by a copy first, where torch has no such form"),
    ] = False,
    pairs: Annotated[
        bool, typer.Option("--pairs", help="send_recv from each rank to each other: matrices.")
    ] = False,
    groups: Annotated[
        str | None,
        typer.Option(help="At once on each of these groups, as 0,1/2,3; also each alone."),
    ] = None,
    interfere: Annotated[
        bool,
        typer.Option("--interfere", help="With a matrix product at once: who slows whom."),
    ] = False,
    compute: Annotated[
        bool, typer.Option("--compute", help="Matrix products alone: s and FLOP/s of each.")
    ] = False,
    gemm: Annotated[
        list[str] | None, typer.Option("--gemm", help="m,n,k of a product. Repeatable.")
    ] = None,
    gemm_dtype: Annotated[
        str | None, typer.Option("--gemm-dtype", help="Of products. Default: that of --dtype.")
    ] = None,
    timing: Annotated[
        str,
        typer.Option(
            help="isolated: all ranks start each run at one time. loop: as nccl-tests."
            " Default: loop on GPUs."
        ),
    ] = "",
    rotate: Annotated[
        str | None,
        typer.Option(help="Bytes of buffers used in turn. Default: twice a GPU's L2, none on CPUs"),
    ] = None,
    cudagraph: Annotated[
        bool, typer.Option("--cudagraph", "-G", help="Replay CUDA graphs instead of calls.")
    ] = False,
    timeout: Annotated[str, typer.Option(help="Given up without progress for this long.")] = "300s",
    output: Annotated[
        Path | None, typer.Option("--output", help="JSON Lines, which `commsim calibrate` reads.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file.")] = False,
    append: Annotated[bool, typer.Option("--append", help="Add to the file.")] = False,
    cluster: Annotated[
        str | None,
        typer.Option(help="What it runs on, for the expected times. Default: what can be known."),
    ] = None,
    nodes: a.Nodes = None,
    settings: a.Settings = None,
    library: a.LibraryText = None,
    profile: a.ProfilePath = None,
    json: a.Json = False,
) -> int:
    """Runs an operation for real: nccl-tests' table, the time expected beside the time measured.

    Example: commsim measure all_reduce --backend gloo --nproc 2 -b 4K -e 64M -f 4 --output m.jsonl

    Under a launcher: torchrun --nproc-per-node 8 -m commsim.measure all_reduce -b 8 -e 8G

    Exit codes: 0 ok, 2 bad input, 1 wrong results, 3 cut short (a rank died or hung, the disk is
    full), 130 Ctrl-C. What was measured before is in the file.
    """
    name = _backend(backend)
    alone = op is None and compute
    found = Settings(
        backend=name, iterations=iterations, warmup=warmup, check=check != 0,
        timing=_one_of("--timing", timing, ("", "isolated", "loop")), cudagraph=cudagraph,
        rotate=None if rotate is None else parse_size(rotate), copies=copies,
        timeout=parse_time(timeout),
    )  # fmt: skip
    at = launched(nproc)
    n_ranks = (
        at.n_ranks
        if at is not None
        else (nproc if nproc is not None else 1 if alone else _devices(name))
    )
    if n_ranks < 1:
        raise MeasureError(f"--nproc: expected 1 rank or more, got {n_ranks}")
    if at is None and n_ranks > (most := max(2, available() // RANK)):
        raise MeasureError(
            f"--nproc: expected {most} ranks at most in {format_size(available())} of memory, got "
            f"{n_ranks}"
        )
    products = tuple(map(_gemm, gemm or ()))
    gemm_dtypes = [a.read_dtype(text) for text in (gemm_dtype or dtype).split(",")]
    todo: tuple[Step, ...] = ()
    if compute:
        table = steps.LARGE if name == "nccl" else steps.SMALL
        todo += steps.gemms(products or table, gemm_dtypes)
    if op is not None:
        asked = Collective(
            a.read_operation(op), 0, a.read_dtype(dtype), a.read_ranks(ranks), root, redop
        )
        moved = sizes(
            parse_size(low), parse_size(high), factor=factor,
            step=None if step is None else parse_size(step),
        )  # fmt: skip
        beside = products or (DEFAULT_GEMM if name == "nccl" else DEFAULT_GEMM_CPU,)
        todo += _steps(
            asked, moved, n_ranks, found, place=_one_of("--place", place, ("both", "in", "out")),
            pairs=pairs, groups=groups, beside=beside if interfere else (),
            gemm_dtype=gemm_dtypes[0],
        )  # fmt: skip
    if not todo:
        raise CollectiveError("measure: expected an operation such as all_reduce, or --compute")
    if op is not None:
        steps.check(asked, n_ranks, found, _groups(groups) if groups else ())
    plan = Plan(
        run=uuid.uuid4().hex[:12], n_ranks=n_ranks, settings=found, steps=todo,
        command=("commsim", "measure", *_typed()),
    )  # fmt: skip
    reads = at is None or at.rank == 0
    machine = None
    if cluster is not None:
        machine = a.read_cluster(cluster, nodes=nodes, settings=settings)
    elif nodes is not None or settings:
        raise CollectiveError("--nodes, --set: expected with --cluster, which they change")
    keep: Journal | nullcontext[None] = nullcontext()
    if output is not None and reads:
        keep = Journal(output, overwrite=overwrite, append=append)
        if keep.cut:
            _say(f"{output}: a torn last line of {keep.cut} bytes was taken away")
    with keep as journal:
        reporter = Reporter(
            plan, journal, cluster=machine, quiet=json, bare=hushed(),
            library=None if library is None else find_library(library),
            profile=a.read_profile(profile),
        ) if reads else None  # fmt: skip
        try:
            carry_out(plan, at, reporter)
        except KeyboardInterrupt:
            if journal is not None:
                _say(f"{output}: interrupted; the {journal.kept} lines so far are kept")
            raise
        except BrokenRunError as error:
            for line in str(error).splitlines():
                _say(line)
            return CUT_SHORT
        finally:
            if json and reporter is not None:
                print_json({"run": reporter.header, "records": reporter.records})
    if reporter is not None and any(record.get("wrong") for record in reporter.records):
        return WRONG
    return 0


def _steps(
    asked: Collective,
    moved: Sequence[int],
    n_ranks: int,
    settings: Settings,
    *,
    place: str,
    pairs: bool,
    groups: str | None,
    beside: Sequence[Gemm],
    gemm_dtype: str,
) -> tuple[Step, ...]:
    """The steps of an operation in one of the ways it can be measured."""
    if (pairs, groups is not None, bool(beside)).count(True) > 1:
        raise CollectiveError("--pairs, --groups, --interfere: expected one of them, got more")
    if pairs:
        if asked.operation != "send_recv" or asked.root is not None:
            raise CollectiveError(
                "--pairs: expected send_recv, without --root: it goes through all of them"
            )
        return steps.pairs(asked, moved, n_ranks)
    places = steps.forms(asked.operation, settings, place)
    if groups is not None:
        return steps.together(asked, moved, _groups(groups), places)
    found = steps.sweep(asked, moved, n_ranks, places)
    return steps.interference(found, beside, gemm_dtype) if beside else found


def _typed() -> list[str]:
    """What was typed after the command's name."""
    return sys.argv[sys.argv.index("measure") + 1 :] if "measure" in sys.argv else []


def _say(line: str) -> None:
    print(f"commsim: {line}", file=sys.stderr)


def _backend(name: str | None) -> str:
    if name is None:
        return "nccl" if shutil.which("nvidia-smi") or Path("/dev/kfd").exists() else "gloo"
    return _one_of("--backend", name, BACKENDS)


def _one_of(option: str, text: str, known: Sequence[str]) -> str:
    if text not in known:
        names = ", ".join(filter(None, known))
        raise CollectiveError(f"{option}: expected one of {names}, got {text!r}")
    return text


def _devices(backend: str) -> int:
    """GPUs of this machine, or 2 ranks on its CPUs."""
    if backend != "nccl":
        return 2
    gpus = list(Path("/dev").glob("nvidia[0-9]*")) or list(Path("/dev/dri").glob("renderD*"))
    return max(1, len(gpus))


def _groups(text: str) -> tuple[tuple[int, ...], ...]:
    return tuple(a.read_ranks(group) or () for group in text.split("/"))


def _gemm(text: str) -> Gemm:
    match = re.fullmatch(r"(\d+)[,x](\d+)[,x](\d+)", text)
    if match is None or "0" in match.groups():
        raise CollectiveError(f"--gemm: expected m,n,k such as 4096,4096,4096, got {text!r}")
    m, n, k = (int(number) for number in match.groups())
    return m, n, k
