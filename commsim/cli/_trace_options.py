"""What the commands of `commsim trace` are asked: files, and on what they are replayed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from commsim.cli import _arguments as a
from commsim.cli._reading import ReadingBar
from commsim.errors import SpecError
from commsim.units import parse_size

if TYPE_CHECKING:
    from commsim.traces.joining import Step
    from commsim.traces.replay import Where

Files = Annotated[
    list[Path],
    typer.Argument(metavar="FILE...", help="A file per rank, or folders.", show_default=False),
]
Format = Annotated[
    str | None, typer.Option("--format", help="Of the files. Default: recognised by itself.")
]
ClusterName = Annotated[
    str | None, typer.Option("--cluster", "-c", help="A preset or file, as for `commsim predict`.")
]
PerNode = Annotated[
    int | None,
    typer.Option(
        "--nproc-per-node", "--nproc_per_node", help="Ranks on a machine. Default: its GPUs."
    ),
]
WorldSize = Annotated[
    int | None,
    typer.Option("--world-size", help="Ranks in all; data parallelism grows or shrinks to it."),
]
BucketSize = Annotated[
    str | None, typer.Option("--bucket-size", help="Of DDP's gradient buckets: 25MiB.")
]
Roles = Annotated[
    list[str] | None,
    typer.Option("--role", help="What a group is for: GROUP=dp (tp, pp, cp, ep, world)."),
]
Compute = Annotated[
    float, typer.Option("--compute", help="Factor on the time of computing: 0.5, twice as fast.")
]


def read_step(files: Sequence[Path], format: str | None) -> Step:
    """The step that these files and folders are of."""
    from commsim.traces.joining import join
    from commsim.traces.reading import read_recordings

    with ReadingBar() as bar:
        return join(read_recordings(files, format, bar.watch))


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """On what a step is to be replayed, as the command line says it."""

    cluster: str | None = None
    nodes: int | None = None
    settings: list[str] | None = None
    library: str | None = None
    env: list[str] | None = None
    profile: Path | None = None
    nproc_per_node: int | None = None
    world_size: int | None = None
    bucket_size: str | None = None
    role: list[str] | None = None
    compute: float = 1.0

    def where(self) -> Where:
        """The same, understood; SpecError where there is no cluster for what needs one."""
        from commsim.traces.replay import Where

        roles = a.read_pairs("--role", "0=dp", self.role)
        if self.cluster is None:
            if (self.world_size, self.bucket_size, self.library) != (None, None, None):
                raise SpecError(
                    ["--cluster is missing: another library, bucket size or number of ranks needs a"
                     " cluster on which communication is predicted"]
                )  # fmt: skip
            return Where(roles=roles, compute=self.compute)
        machines = a.read_cluster(self.cluster, nodes=self.nodes, settings=self.settings)
        return Where(
            cluster=machines, library=a.read_library(self.library, machines, self.env),
            profile=a.read_profile(self.profile), per_node=self.nproc_per_node,
            world=self.world_size, roles=roles, compute=self.compute,
            bucket=None if self.bucket_size is None else parse_size(self.bucket_size),
        )  # fmt: skip


def check_folder(option: str, path: Path) -> None:
    """SpecError unless a file can be written there."""
    if not path.resolve().parent.is_dir():
        raise SpecError([f"{option}: {path}: the folder does not exist; make it first"])
