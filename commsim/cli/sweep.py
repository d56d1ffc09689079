"""`commsim sweep`: the table that nccl-tests prints, predicted, to lay beside a measured log."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from commsim.cli import _arguments as a
from commsim.cli import _plot as pictures
from commsim.cli._drawn import Drawn, Plot, Theme
from commsim.cli._output import hushed, print_json
from commsim.collectives.collective import DTYPES
from commsim.errors import CollectiveError
from commsim.measurements.reading import read_measurements
from commsim.report import nccl_tests
from commsim.units import parse_size


def sweep(
    cluster: a.ClusterText,
    op: a.OperationText,
    low: Annotated[str, typer.Option("--begin", "-b", help="Smallest size.")] = "8",
    high: Annotated[str, typer.Option("--end", "-e", help="Largest size.")] = "8G",
    factor: Annotated[int, typer.Option("--factor", "-f", help="Each size times this.")] = 2,
    step: Annotated[
        str | None, typer.Option("--step", "-i", help="Add this to each size instead of -f.")
    ] = None,
    nodes: a.Nodes = None,
    ranks: a.RanksText = None,
    root: a.Root = None,
    dtype: a.DtypeText = "float32",
    redop: a.RedopText = "sum",
    settings: a.Settings = None,
    library: a.LibraryText = None,
    env: a.Environment = None,
    launch: a.Launch = "processes",
    profile: a.ProfilePath = None,
    gpu: a.GpuName = None,
    measured: Annotated[
        list[Path] | None,
        typer.Option("--measured", help="Measurements to draw on top of --plot. Repeatable."),
    ] = None,
    plot: Plot = None,
    theme: Theme = "auto",
    json: a.Json = False,
) -> None:
    """The table that nccl-tests prints, with the 80 % interval, algorithm, protocol and channels.

    Example: commsim sweep dgx-h100 all_reduce --nodes 2 -b 8 -e 8G -f 2

    Exit codes: 0 ok, 2 bad input.
    """
    drawn = Drawn(plot, theme).check()
    question = a.question(
        cluster, op, nodes=nodes, settings=settings, gpu=gpu, library=library, env=env,
        launch=launch, ranks=ranks, root=root, dtype=dtype, redop=redop, profile=profile,
    )  # fmt: skip
    asked = nccl_tests.sizes(
        parse_size(low), parse_size(high), factor=factor,
        step=None if step is None else parse_size(step),
    )  # fmt: skip
    itemsize = DTYPES[question.dtype]
    moved = [
        nccl_tests.whole(question.operation, nbytes, itemsize, question.n_ranks) for nbytes in asked
    ]
    if question.operation == "barrier":
        moved = [0]
    elif not any(moved):
        raise CollectiveError(
            f"sweep: {asked[-1]} bytes are less than one {question.dtype} for each of"
            f" {question.n_ranks} ranks; raise -e"
        )
    kept = [nbytes for nbytes in moved if nbytes or question.operation == "barrier"]
    predictions = [question.answer(nbytes) for nbytes in kept]
    points = [
        m
        for m in (read_measurements(measured, cluster=question.cluster) if measured else ())
        if m.collective.operation == question.operation and m.n_ranks == question.n_ranks
    ]
    drawn.write(lambda: pictures.swept(question, predictions, points))
    if json:
        print_json([prediction.to_dict() for prediction in predictions])
        return
    for line in nccl_tests.header(predictions[0], left_out=len(moved) - len(kept)):
        print(line)
    for prediction in predictions:
        print(nccl_tests.row(prediction))
    print(nccl_tests.footer(predictions))
    for note in () if hushed() else predictions[-1].notes:
        print(f"# note: {note}")
