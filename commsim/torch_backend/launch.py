"""Running a script as torchrun would, on ranks that are threads of a simulated cluster."""

from __future__ import annotations

import builtins
import contextlib
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.rpc as rpc
import torch.multiprocessing
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_post_hook

from commsim.cost.profile import Profile
from commsim.errors import SpecError
from commsim.libraries.library import Library
from commsim.libraries.lookup import library as find_library
from commsim.topology.cluster import Cluster
from commsim.torch_backend import cuda_shim, fake, private, streams
from commsim.torch_backend.baton import Stopped
from commsim.torch_backend.compute import Compute
from commsim.torch_backend.errors import NoSimulationError, UnsupportedCallError
from commsim.torch_backend.footprint import Footprints
from commsim.torch_backend.group import SimulatedGroup
from commsim.torch_backend.isolation import Isolated
from commsim.torch_backend.pricing import Places, Prices
from commsim.torch_backend.records import Group
from commsim.torch_backend.roofline import Roofline, roofline
from commsim.torch_backend.run import Run
from commsim.torch_backend.store import SharedStore
from commsim.torch_backend.where import raised_at
from commsim.torch_backend.work import collect_all, eagerly, wait_all
from commsim.torch_backend.world import Rank, World
from commsim.units import Bytes, Seconds

MASTER_PORT = "29500"
COMPILES = "torch.compile: the script runs op by op; fused kernels would take less time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a script is run; see `commsim run --help`.

    compute: "roofline", "measured" or "none"; launch: s a kernel costs the host. ranks: those that
    really run; None: all. fake: tensors have shapes and no data. cuda_shim: see cuda_shim.py.
    share_links: operations under way at once slow each other.
    """

    nproc_per_node: int | None = None
    compute: str = "roofline"
    model: Roofline | None = None
    send_buffer: Bytes = 0
    ranks: tuple[int, ...] | None = None
    launch: Seconds | None = None
    keep_spans: bool = False
    fake: bool = False
    cuda_shim: bool = False
    share_links: bool = True
    profile: Profile | None = None
    library: Library | None = None


def run(
    script: str | Path, arguments: Sequence[str] = (), *, cluster: Cluster, options: Options
) -> Run:
    """Run a script on every GPU of a cluster; what came of it, with its virtual times in s.

    A script that fails or hangs does not raise here: see `Run.failure`. Raises SpecError for a
    script that cannot be read, or more ranks than a machine has GPUs.
    """
    path = Path(script)
    code = _compiled(path)
    world = _world(cluster, options)
    mains = {number: _main(path) for number in world.ranks}
    compute = Compute(
        mode=options.compute, model=_model(cluster, options, world.size),
        keep_spans=options.keep_spans, fake=options.fake, cuda_shim=options.cuda_shim,
    )  # fmt: skip
    for rank in world.ranks.values():
        rank.state["environment"] = _environment(rank)

    def body(rank: Rank) -> None:
        streams.HERE.clock, streams.HERE.rank = rank.clock, rank
        try:
            with compute.on(rank):
                exec(code, mains[rank.number].__dict__)
        except SystemExit as leaving:
            if leaving.code not in (None, 0):
                _note_error(rank, RuntimeError(f"exit code {leaving.code}"), leaving)
        except Stopped:
            raise
        except BaseException as error:  # such as a CheckpointException
            _note_error(rank, error, error)

    nothing = contextlib.nullcontext()
    shim = cuda_shim.patched(cluster, world.nproc_per_node) if options.cuda_shim else nothing
    shapes = fake.patched() if options.fake else nothing
    with (
        _process(path, arguments),
        Isolated(path.parent, mains, code) as isolated,
        _torch(world),
        shim,
        shapes,
    ):
        os.environ.update(_shared_environment(world))
        world.run(body, isolated)
    return Run(world=world, cluster=cluster, compute=options.compute)


def _model(cluster: Cluster, options: Options, ranks: int) -> Roofline:
    model = options.model or roofline(cluster, ranks)
    return model if options.launch is None else replace(model, launch=options.launch)


def _compiled(path: Path) -> Any:
    try:
        return compile(path.read_bytes(), str(path), "exec")
    except OSError as error:
        raise SpecError([f"{path}: {error.strerror}; name a Python script"]) from error
    except SyntaxError as error:
        raise SpecError([f"{path}:{error.lineno}: {error.msg}"]) from error


def _world(cluster: Cluster, options: Options) -> World:
    per_node = options.nproc_per_node or cluster.gpus_per_node
    if not 1 <= per_node <= cluster.gpus_per_node:
        raise SpecError(
            [
                f"--nproc-per-node: {cluster.name} has {cluster.gpus_per_node} GPUs in a machine, "
                f"asked for {per_node} ranks; give 1 to {cluster.gpus_per_node}"
            ]
        )
    size = per_node * cluster.nodes
    present = tuple(range(size)) if options.ranks is None else options.ranks
    wrong = [rank for rank in present if not 0 <= rank < size]
    if wrong or not present:
        raise SpecError([f"--simulate: expected ranks from 0 to {size - 1}, got {list(present)}"])
    library = options.library or find_library(cluster.default_library)
    prices = Prices(
        places=Places(cluster=cluster, nproc_per_node=per_node), library=library,
        footprints=Footprints(cluster=cluster, shared=options.share_links),
        profile=options.profile,
    )  # fmt: skip
    return World(
        size=size, nproc_per_node=per_node, prices=prices, present=present,
        send_buffer=options.send_buffer, keep_spans=options.keep_spans,
    )  # fmt: skip


def _main(path: Path) -> ModuleType:
    module = ModuleType("__main__")
    module.__dict__.update(__file__=str(path), __builtins__=builtins)
    return module


def _environment(rank: Rank) -> dict[str, str]:
    """What torchrun sets, differently for each rank."""
    return {
        "RANK": str(rank.number),
        "LOCAL_RANK": str(rank.local),
        "GROUP_RANK": str(rank.node),
        "ROLE_RANK": str(rank.number),
    }


def _shared_environment(world: World) -> dict[str, str]:
    """What torchrun sets for all of them."""
    return {
        "WORLD_SIZE": str(world.size),
        "LOCAL_WORLD_SIZE": str(world.nproc_per_node),
        "GROUP_WORLD_SIZE": str(world.size // world.nproc_per_node),
        "ROLE_WORLD_SIZE": str(world.size),
        "ROLE_NAME": "default",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": MASTER_PORT,
        "TORCHELASTIC_RUN_ID": "commsim",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
    }


def _note_error(rank: Rank, error: BaseException, raised: BaseException) -> None:
    rank.error, rank.error_at = error, raised_at(raised.__traceback__)
    rank.traceback = "".join(traceback.format_exception(raised))


@contextlib.contextmanager
def _process(path: Path, arguments: Sequence[str]) -> Iterator[None]:
    """What a script sees of the process as a whole: its arguments, and where it imports from."""
    before = sys.argv, list(sys.path), torch.get_num_threads()
    sys.argv = [str(path), *arguments]
    sys.path.insert(0, str(path.resolve().parent))
    torch.set_num_threads(1)  # one rank runs at a time, and small tensors gain nothing
    try:
        yield
    finally:
        sys.argv, sys.path[:] = before[0], before[1]
        torch.set_num_threads(before[2])


@contextlib.contextmanager
def _torch(world: World) -> Iterator[None]:
    """torch as every rank is to see it."""
    threading_before = torch.autograd.is_multithreading_enabled()
    hook = register_optimizer_step_post_hook(_note_step)
    replace = (
        (torch.cpu, "Stream", streams.Stream),
        (torch.cpu, "Event", streams.Event),
        (torch.cpu, "stream", streams.stream),
        (torch.cpu, "current_stream", streams.current_stream),
        (torch.cpu, "synchronize", streams.synchronize),
        (torch.futures, "collect_all", collect_all),
        (torch.futures, "wait_all", wait_all),
        (torch.multiprocessing, "spawn", _spawn),
        (torch, "compile", _uncompiled(torch.compile)),
        *((where, name, eagerly(getattr(where, name))) for where, name in private.WAITING_IN_CPP),
        (rpc, "init_rpc", _no_rpc),
        (DistributedDataParallel, "_register_builtin_comm_hook", _builtin_hook),
        (dist, "monitored_barrier", _monitored_barrier),
        (dist.distributed_c10d, "monitored_barrier", _monitored_barrier),
    )
    try:
        with private.one_process_per_thread(new_group, _meet, world.groups.add, replace):
            yield
    finally:
        hook.remove()
        if COMPILES in world.notes:
            torch.compiler.set_stance("default")
        torch.autograd.set_multithreading_enabled(threading_before)


def _rank() -> Rank:
    found: Rank | None = getattr(streams.HERE, "rank", None)
    if found is None:
        raise NoSimulationError(
            f'backend "{private.NAME}": no simulated cluster here; start the script with '
            f"`commsim run --cluster dgx-h100 {Path(sys.argv[0]).name}`"
        )
    return found


def new_group(options: Any, _: Any) -> SimulatedGroup:
    """The calling rank's handle of a new group, for torch.distributed."""
    rank = _rank()
    ranks = tuple(options.global_ranks_in_group) or tuple(range(rank.world.size))
    return SimulatedGroup(rank, Group(name=str(options.group_id), ranks=ranks))


def _meet() -> tuple[Any, int, int]:
    rank = _rank()
    if "store" not in rank.state:  # torch's C++ keeps no reference to it
        rank.state["store"] = SharedStore(rank)
    return rank.state["store"], rank.number, rank.world.size


def _note_step(*_: Any) -> None:
    rank: Rank | None = getattr(streams.HERE, "rank", None)
    if rank is not None:
        rank.steps.append(rank.now)


def _spawn(function: Any, args: Any = (), nprocs: int = 1, *_: Any, **__: Any) -> None:
    """torch.multiprocessing.spawn: the processes are there already, and this is one of them."""
    rank = _rank()
    if nprocs != rank.world.nproc_per_node:
        raise UnsupportedCallError(
            f"torch.multiprocessing.spawn: the script starts {nprocs} processes, the simulation "
            f"has {rank.world.nproc_per_node} on a machine; run it with --nproc-per-node {nprocs}"
        )
    function(rank.local, *args)


def _uncompiled(compile_: Callable[..., Any]) -> Callable[..., Any]:
    """torch.compile, giving what it would give around a model that then runs op by op."""

    def call(model: Any = None, **options: Any) -> Any:
        _rank().world.notes[COMPILES] = None
        torch.compiler.set_stance("force_eager")
        kept = {name: value for name, value in options.items() if name not in ("mode", "options")}
        return compile_(model, **(kept | {"backend": "eager"}))

    return call


def _no_rpc(*_: Any, **__: Any) -> None:
    raise UnsupportedCallError(
        "torch.distributed.rpc is not simulated: use collectives, send and recv, or objects "
        "(send_object_list)"
    )


def _builtin_hook(model: Any, kind: Any) -> None:
    """DDP's hooks in C++ by those in Python, which do the same: C++ wants another Future."""
    compress = kind == private.FP16_COMPRESS
    hook = default_hooks.fp16_compress_hook if compress else default_hooks.allreduce_hook
    model.register_comm_hook(model.process_group, hook)


def _monitored_barrier(
    group: Any = None, timeout: Any = None, wait_all_ranks: bool = False
) -> None:
    """dist.monitored_barrier for groups of any backend."""
    if group == private.NON_MEMBER:
        return
    chosen: Any = dist.group.WORLD if group is None else group
    chosen.monitored_barrier(timeout, wait_all_ranks=wait_all_ranks)
