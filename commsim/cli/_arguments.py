"""The arguments that commands share, and their text turned into a question."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from commsim.collectives.collective import DTYPES, OPERATIONS, Collective
from commsim.cost.profile import Profile
from commsim.errors import CollectiveError, SpecError, UnknownNameError
from commsim.libraries.library import Library
from commsim.libraries.lookup import library as find_library
from commsim.prediction import Prediction, predict
from commsim.topology.cluster import Cluster
from commsim.topology.load import load_cluster
from commsim.units import Bytes, parse_size

ClusterText = Annotated[
    str,
    typer.Argument(
        metavar="CLUSTER",
        help="A preset (`commsim topo --list`), a cluster .toml, an NCCL topology .xml, or the text"
        " of `nvidia-smi topo -m` / `rocm-smi --showtopo`.",
        show_default=False,
    ),
]
OperationText = Annotated[
    str,
    typer.Argument(
        metavar="OP",
        help=f"{', '.join(OPERATIONS)}; nccl-tests' spellings (alltoall, sendrecv) are taken too.",
        show_default=False,
    ),
]
SizeText = Annotated[
    str | None,
    typer.Option(
        "--size",
        "-s",
        help="nccl-tests' size: 1GiB, 1G (2^30), 1GB (10^9), 8 (bytes). A barrier has none.",
    ),
]
Nodes = Annotated[int | None, typer.Option("--nodes", "-N", help="Number of machines.")]
RanksText = Annotated[
    str | None, typer.Option("--ranks", help="The group, such as 0-7,16. Default: every rank.")
]
Root = Annotated[int | None, typer.Option("--root", help="Root rank, of rooted operations.")]
DtypeText = Annotated[str, typer.Option("--dtype", "-d", help=f"{', '.join(DTYPES)}.")]
RedopText = Annotated[str, typer.Option("--redop", "-o", help="sum, prod, min, max or avg.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change one key of the cluster: node.nics.count=4. Repeatable."),
]
LibraryText = Annotated[
    str | None,
    typer.Option("--library", "-l", help="nccl@2.27.3, rccl, gloo, mpi. Default: the cluster's."),
]
Environment = Annotated[
    list[str] | None,
    typer.Option("--env", help="A variable that the library reads: NCCL_ALGO=Ring. Repeatable."),
]
Launch = Annotated[
    str,
    typer.Option("--launch", help="Who drives the GPUs: processes, threads (-t N), single (-g N)."),
]
ProfilePath = Annotated[
    Path | None, typer.Option("--profile", help="Constants to use instead of the built-in ones.")
]
GpuName = Annotated[
    str | None,
    typer.Option("--gpu", help="The GPU of a file that does not name it: H100-SXM5-80GB."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, in base units.")]

# nccl-tests' names of types, and the usual short ones.
DTYPE_NAMES = {
    "half": "float16", "fp16": "float16", "bf16": "bfloat16", "float": "float32", "fp32": "float32",
    "double": "float64", "fp64": "float64", "fp8_e4m3": "float8_e4m3fn", "fp8_e5m2": "float8_e5m2",
    "float8_e4m3": "float8_e4m3fn",
}  # fmt: skip


def read_operation(text: str) -> str:
    """torch.distributed's name of an operation, from alltoall, AllReduce, all_reduce_perf too."""
    plain = re.sub(r"[-_ ]", "", text.lower().removesuffix("_perf"))
    plain = re.sub(r"(intotensor|tensor|single)$", "", plain)
    for name in OPERATIONS:
        if plain == name.replace("_", ""):
            return name
    raise UnknownNameError("operation", text, OPERATIONS)


def read_dtype(text: str) -> str:
    """torch's name of a type, from nccl-tests' (half, float, double) too."""
    name = DTYPE_NAMES.get(text, text)
    if name not in DTYPES:
        raise UnknownNameError("dtype", text, [*DTYPES, *DTYPE_NAMES], "commsim names dtypes")
    return name


def read_ranks(text: str | None) -> tuple[int, ...] | None:
    """The ranks of `0-7,16`, in the order written; None: every rank."""
    if text is None:
        return None
    ranks: list[int] = []
    for piece in text.split(","):
        match = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", piece)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if last < first:
            raise CollectiveError(
                f"--ranks: expected ranks such as 0-7,16, got {piece.strip()!r} in {text!r}"
            )
        ranks.extend(range(first, last + 1))
    return tuple(ranks)


def read_size(operation: str, text: str | None) -> Bytes:
    """Bytes of --size, which every operation but the barrier needs."""
    if operation == "barrier":
        return 0
    if text is None:
        raise CollectiveError(f"{operation}: --size is missing; give one such as --size 1GiB")
    return parse_size(text)


def read_pairs(option: str, example: str, texts: Sequence[str] | None) -> dict[str, str]:
    """KEY=VALUE texts as a dict; SpecError names every one that is not of that form."""
    texts = texts or ()
    problems = [
        f"{option}: expected KEY=VALUE such as {example}, got {text!r}"
        for text in texts
        if not re.fullmatch(r"\s*[^=\s]+\s*=.*", text)
    ]
    if problems:
        raise SpecError(problems)
    return {key.strip(): value.strip() for key, _, value in (t.partition("=") for t in texts)}


def read_value(text: str) -> Any:
    """What a cluster file would hold: a truth value, a number or text."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def read_cluster(
    source: str,
    *,
    nodes: int | None = None,
    settings: Sequence[str] | None = None,
    gpu: str | None = None,
    changes: Mapping[str, object] | None = None,
) -> Cluster:
    """The cluster of a preset or file, changed by --nodes, --set, --gpu, then by `changes`."""
    overrides: dict[str, Any] = {
        key: read_value(value)
        for key, value in read_pairs("--set", "node.nics.count=4", settings).items()
    }
    if nodes is not None:
        overrides["nodes"] = nodes
    if gpu is not None:
        overrides["node.gpu"] = gpu
    return load_cluster(source, **(overrides | dict(changes or {})))


def read_machines(
    text: str, *, nodes: int | None = None, settings: Sequence[str] | None = None
) -> Cluster:
    """The cluster of `dgx-h100`, of `dgx-h100@16` (machines, whatever --nodes says), or a file."""
    source, own = counted(text)
    return read_cluster(source, nodes=nodes if own is None else own, settings=settings)


def counted(text: str) -> tuple[str, int | None]:
    """A cluster's name or file, and the machines of `NAME@16`; None where it does not say."""
    match = re.fullmatch(r"(.+)@(\d+)", text)
    return (match[1], int(match[2])) if match else (text, None)


def nodes_of(source: str, gpus: int, settings: Sequence[str] | None = None) -> int:
    """Machines of a cluster that have so many GPUs; SpecError where none or only a part would."""
    each = read_cluster(source, settings=settings).gpus_per_node
    if gpus < 1 or gpus % each:
        raise SpecError(
            [f"--gpus: {source} has {each} GPUs in a machine: expected a multiple, got {gpus}"]
        )
    return gpus // each


def read_library(
    text: str | None, cluster: Cluster, env: Sequence[str] | None = None, launch: str = "processes"
) -> Library:
    """The library named, or the cluster's own, with its environment."""
    variables: Mapping[str, str] = read_pairs("--env", "NCCL_ALGO=Ring", env)
    return find_library(text or cluster.default_library, env=variables, launch=launch)


def read_profile(path: Path | None) -> Profile | None:
    """The profile in a file; None: the built-in one."""
    return None if path is None else Profile.load(path)


def check_folders(paths: Sequence[tuple[str, str | Path | None]]) -> None:
    """Nothing if every file can be written where it is to go; before a long simulation, not after.

    Otherwise raises SpecError.
    """
    problems = [
        f"{option}: {path}: the folder {Path(path).parent} does not exist; make it first"
        for option, path in paths
        if path is not None and not Path(path).parent.is_dir()
    ]
    if problems:
        raise SpecError(problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked at every size: an operation, a group, a cluster, a library."""

    operation: str
    cluster: Cluster
    library: Library
    dtype: str = "float32"
    reduce_op: str = "sum"
    ranks: tuple[int, ...] | None = None
    root: int | None = None
    profile: Profile | None = None

    @property
    def n_ranks(self) -> int:
        return self.cluster.n_ranks if self.ranks is None else len(self.ranks)

    def collective(self, nbytes: Bytes) -> Collective:
        """The operation at one size."""
        return Collective(
            self.operation, nbytes=nbytes, dtype=self.dtype, ranks=self.ranks, root=self.root,
            reduce_op=self.reduce_op,
        )  # fmt: skip

    def answer(self, nbytes: Bytes) -> Prediction:
        """The prediction at one size."""
        return predict(self.collective(nbytes), self.cluster, self.library, self.profile)


def question(
    cluster: str,
    operation: str,
    *,
    nodes: int | None = None,
    settings: Sequence[str] | None = None,
    gpu: str | None = None,
    library: str | None = None,
    env: Sequence[str] | None = None,
    launch: str = "processes",
    ranks: str | None = None,
    root: int | None = None,
    dtype: str = "float32",
    redop: str = "sum",
    profile: Path | None = None,
) -> Question:
    """The question that a command line asks; a CommsimError on what it cannot read."""
    name = read_operation(operation)
    machines = read_cluster(cluster, nodes=nodes, settings=settings, gpu=gpu)
    return Question(
        operation=name, cluster=machines, library=read_library(library, machines, env, launch),
        dtype=read_dtype(dtype), reduce_op=redop, ranks=read_ranks(ranks), root=root,
        profile=read_profile(profile),
    )  # fmt: skip
