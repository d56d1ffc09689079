"""Files of measurements, and what they ran on, for the commands that read them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from commsim.cli import _arguments as a
from commsim.libraries.library import Library
from commsim.libraries.lookup import library as find_library
from commsim.measurements.measurement import Measurement
from commsim.measurements.reading import read_measurements
from commsim.topology.cluster import Cluster

Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE...",
        help="Measurements: nccl-tests or OSU output, JSON, CSV ...; a folder is read whole.",
        show_default=False,
    ),
]
MeasuredCluster = Annotated[
    str | None,
    typer.Option("--cluster", "-c", help="What they ran on: a preset or a file, as for `predict`."),
]


def read_measured(
    files: Sequence[Path],
    cluster: str | None,
    *,
    nodes: int | None,
    settings: Sequence[str] | None,
    gpu: str | None,
    library: str | None,
    env: Sequence[str] | None,
    launch: str,
) -> tuple[Measurement, ...]:
    """The measurements of these files on that cluster, through that library (None: its own)."""
    machines: Cluster | None = None
    used: Library | None = None
    if cluster is not None:
        machines = a.read_cluster(cluster, nodes=nodes, settings=settings, gpu=gpu)
        used = a.read_library(library, machines, env, launch)
    elif library is not None:
        used = find_library(
            library, env=a.read_pairs("--env", "NCCL_ALGO=Ring", env), launch=launch
        )
    return read_measurements(list(files), cluster=machines, library=used)
