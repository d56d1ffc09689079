"""Everything of torch that is not its public interface, in one place.

Written for torch 2.13; `tests/torch_backend/test_private.py` holds each name to what is relied on.
The simulator gives every rank, which is a thread here, the tables that a process would have, and
replaces what would talk to a network.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d
from torch._subclasses import fake_tensor
from torch.distributed import device_mesh
from torch.distributed import distributed_c10d as c10d
from torch.nn.parallel import distributed as ddp
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

NAME = "commsim"  # of the backend
MAJOR, MINOR = (int(part) for part in torch.__version__.split(".")[:2])
NEW = (MAJOR, MINOR) >= (2, 13)  # 2.6 and 2.13 were looked at; what lies between is taken for old
# C++ holds on to the Python half of a Work; in 2.6 that half was gone once Python forgot it, and
# waiting in C++ never ended.
KEEPS_HANDLES = NEW
TABLES = (
    "default_pg", "pg_map", "pg_names", "pg_group_ranks", "pg_backend_config", "group_count",
    "tags_to_pg", "pg_to_tag", "pg_coalesce_state", "comms", "pg_config_info",
)  # fmt: skip

# Base classes, which torch's stubs describe for its own callers only.
ProcessGroup: Any = dist.ProcessGroup
Store: Any = _distributed_c10d.Store
Reducer: Any = _distributed_c10d.Reducer
FunctionMode: Any = TorchFunctionMode
DispatchMode: Any = TorchDispatchMode
Work: Any = _distributed_c10d.Work
FP16_COMPRESS: Any = _distributed_c10d.BuiltinCommHookType.FP16_COMPRESS
no_modes = _disable_current_modes
FakeTensor = fake_tensor.FakeTensor
FakeTensorMode = fake_tensor.FakeTensorMode
NEEDS_VALUES = (
    fake_tensor.DynamicOutputShapeException,
    fake_tensor.DataDependentOutputException,
)
# Of DDP, in C++ or about C++: they read the values of parameters.
READING_DATA = (
    (ddp, "_verify_param_shape_across_processes"),
    (ddp, "_sync_module_states"),
)
SAVING, LOADING = ("save", "async_save", "save_state_dict"), ("load", "load_state_dict")
# They start buckets in C++, which waits for them there before long: in a static graph's first
# step, for a rank that has joined early, and in hooks that step the optimizer.
WAITING_IN_CPP = tuple(
    (Reducer, name) for name in ("_delay_all_reduce", "_run_comm_hook", "_run_allreduce_hook")
)
BUCKETS = (dist, "_compute_bucket_assignment_by_size")
BEFORE_BUCKETS = (ddp.DistributedDataParallel, "_ddp_init_helper")
CONVERT = (torch.nn.Module, "_apply")
MISSING = object()
NON_MEMBER = c10d.GroupMember.NON_GROUP_MEMBER
# A split of a group keeps the order of its ranks since 2.14.
ORDERED = (MAJOR, MINOR) >= (2, 14)
NOT_IN_SPLIT = NON_MEMBER if ORDERED else None
IN_ORDER: dict[str, Any] = {"sort_ranks": False} if NEW else {}  # of new_group


@dataclass(slots=True, eq=False)
class ProcessTables:
    """What `distributed_c10d._World` holds for one process."""

    default_pg: Any = None
    pg_map: dict[Any, Any] = field(default_factory=dict)
    pg_names: dict[Any, Any] = field(default_factory=dict)
    pg_group_ranks: dict[Any, Any] = field(default_factory=dict)
    pg_backend_config: dict[Any, Any] = field(default_factory=dict)
    group_count: int = 0
    tags_to_pg: dict[str, list[Any]] = field(default_factory=dict)
    pg_to_tag: dict[Any, str] = field(default_factory=dict)
    pg_coalesce_state: dict[Any, list[Any]] = field(default_factory=dict)
    comms: list[Any] = field(default_factory=list)

    @property
    def pg_config_info(self) -> list[dict[str, Any]]:
        """One line per group, for torch's own logging."""
        return [
            {
                "pg_name": name, "pg_desc": pg.group_desc, "ranks": list(self.pg_group_ranks[pg]),
                "backend_config": self.pg_backend_config[pg], "group_count": self.group_count,
                "group_size": len(self.pg_group_ranks[pg]),
            }
            for pg, name in self.pg_names.items()
        ]  # fmt: skip


class TablesByThread:
    """Stands in for `distributed_c10d._world`: the tables of the calling thread."""

    _here = threading.local()

    @property
    def _mine(self) -> ProcessTables:
        try:
            return self._here.tables  # type: ignore[no-any-return]
        except AttributeError:
            self._here.tables = ProcessTables()
            return self._here.tables  # type: ignore[no-any-return]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._mine, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._mine, name, value)


def tables() -> Any:
    """The tables of the calling rank."""
    return c10d._world


def set_backend_name(group: Any, name: str) -> None:
    """Let `dist.get_backend(group)` answer `name`."""
    pg_map = c10d._world.pg_map
    pg_map[group] = (name, pg_map[group][1])


def backend_name(group: Any) -> str:
    """What `dist.get_backend(group)` answers."""
    return str(c10d._world.pg_map[group][0])


def as_split(places: Sequence[int]) -> list[int]:
    """The places of a part of a group, in the order that `dist.split_group` gives them."""
    return list(places) if ORDERED else sorted(places)


def in_backward() -> bool:
    """Is the calling thread inside a backward pass?"""
    return bool(torch._C._current_graph_task_id() != -1)


def after_backward(callback: Callable[[], None]) -> None:
    """Have `callback` called when the backward pass ends, before callbacks queued later."""
    torch.autograd.Variable._execution_engine.queue_callback(callback)


def schema(op: Any) -> Any:
    """The schema of an op: its name, and what its arguments and results alias."""
    return op._schema


def overloads(op: Any) -> Any:
    """All overloads of an op together, by which torch counts flops."""
    return op._overloadpacket


def swap_loss_ops(wanted: dict[Any, Any]) -> dict[Any, Any]:
    """What DTensor does differently within `loss_parallel`; from here on it is `wanted`."""
    module: Any = sys.modules.get("torch.distributed.tensor.parallel.loss")
    if module is None:
        return {}
    handlers = module.DTensor._op_dispatcher._custom_op_handlers
    before = {op: handlers.pop(op) for op in module.customized_loss_ops if op in handlers}
    handlers.update(wanted)
    return before


def premul_factor(op: Any) -> Any:
    """The factor of a ReduceOp.PREMUL_SUM."""
    return op.__getstate__()[1]


def pretending_nccl() -> list[tuple[Any, str, Any]]:
    """What lets c10d believe in NCCL on a build without it: it asks, and looks at the class."""
    answers: list[tuple[Any, str, Any]] = [
        (module, "is_nccl_available", lambda: True) for module in (dist, c10d)
    ]
    if not hasattr(c10d, "ProcessGroupNCCL"):
        answers.append((c10d, "ProcessGroupNCCL", type("ProcessGroupNCCL", (), {})))
    return answers


def needing_data() -> list[tuple[Any, str]]:
    """What keeps its own books in tensors: ranks of a mesh, votes of a pipeline's stages.

    init_device_mesh: in every module that took it by its name, as FSDP2's did.
    """
    sharding()
    from torch.distributed.pipelining import PipelineStage  # takes a second to import

    make, name = device_mesh.init_device_mesh, "init_device_mesh"
    modules = list(sys.modules.values())
    found: list[tuple[Any, str]] = [
        *((m, name) for m in modules if getattr(m, "__dict__", {}).get(name) is make),
        (device_mesh.DeviceMesh, "__init__"),
        (device_mesh.DeviceMesh, "__getitem__"),
        (PipelineStage, "_warmup_forward_vote"),  # not yet in 2.6, whose stages do not vote
        (PipelineStage, "_warmup_backward_result"),
    ]
    return [(where, name) for where, name in found if hasattr(where, name)]


def sharding() -> tuple[Any, str]:
    """What cuts a parameter into FSDP2's shards, one tensor for each rank."""
    from torch.distributed.fsdp._fully_shard import _fsdp_param  # takes a second to import

    return _fsdp_param, "_chunk_with_empty"


def keeping_values() -> list[tuple[Any, str]]:
    """What reads or writes a checkpoint's values."""
    from torch.distributed import checkpoint  # takes a while to import
    from torch.distributed.checkpoint import state_dict_loader, state_dict_saver

    return [
        *((where, name) for where in (checkpoint, state_dict_saver) for name in SAVING),
        *((where, name) for where in (checkpoint, state_dict_loader) for name in LOADING),
    ]


def bucket_limits(module: Any) -> list[int]:
    """Bytes of the first bucket that a DistributedDataParallel rebuilds, and of the others."""
    cap = module.bucket_bytes_cap
    if "_bucket_config" in vars(module):
        return [min(module._bucket_config.first_bucket_bytes_cap, cap), cap]
    return [min(vars(dist)["_DEFAULT_FIRST_BUCKET_BYTES"], cap), cap]  # as it was in 2.6


def resolve(group: Any) -> Any:
    """The process group of a name, as functional collectives are given it."""
    find: Any = _distributed_c10d._resolve_process_group
    return find(group) if isinstance(group, str) else group


@contextlib.contextmanager
def one_process_per_thread(
    backend: Callable[[Any, Any], Any],
    rendezvous: Callable[[], tuple[Any, int, int]],
    note_group: Callable[[tuple[int, ...]], None],
    replace: tuple[tuple[Any, str, Any], ...] = (),
) -> Iterator[None]:
    """While this lasts, torch.distributed takes a thread for a process and `backend` for all.

    rendezvous: the store, the rank and the world size of the calling thread. note_group: is told
    the ranks of every group that a rank makes, as a member or not.
    """
    register(backend)
    helper = c10d._new_process_group_helper

    def simulated(
        size: int, rank: int, ranks: Any, wanted: Any, store: Any, name: Any, **more: Any
    ) -> Any:
        if size < 0:  # MPI's are not known before
            _, rank, size = rendezvous()
        note_group(tuple(ranks) or tuple(range(size)))
        device = more.get("device_id")
        more.update(device_id=None, backend_options=None)
        ours = dist.Backend(NAME)
        group, prefix = helper(size, rank, ranks, ours, store, name, **more)
        if group is not NON_MEMBER:
            set_backend_name(group, NAME if str(wanted) == "undefined" else str(wanted))
            group.device = device
        return group, prefix

    def meet(url: str, **_: Any) -> Iterator[tuple[Any, int, int]]:
        yield rendezvous()

    def shared_store(*_: Any, **__: Any) -> Any:
        return rendezvous()[0]

    module = sys.modules["torch.distributed.rendezvous"]
    handlers = dict.fromkeys(module._rendezvous_handlers, meet)
    changes = [
        (c10d, "_world", TablesByThread()),
        (c10d, "_new_process_group_helper", simulated),
        (module, "_rendezvous_handlers", handlers),
        (dist, "TCPStore", shared_store),
        (dist, "FileStore", shared_store),
        (sys, "excepthook", sys.excepthook),
        (torch.cuda.nccl, "version", lambda: (2, 27, 3)),
        *replace,
    ]
    isolate: Any = vars(_distributed_c10d)["_set_thread_isolation_mode"]
    isolate(True)
    try:
        with replaced(changes), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Attempted to get default timeout for nccl")
            yield
    finally:
        isolate(False)


@contextlib.contextmanager
def replaced(changes: list[tuple[Any, str, Any]]) -> Iterator[None]:
    """Set attributes, and set them back in the end; one that was not there goes again."""
    before = [(where, name, getattr(where, name, MISSING)) for where, name, _ in changes]
    try:
        for where, name, value in changes:
            setattr(where, name, value)
        yield
    finally:
        for where, name, value in reversed(before):
            if value is MISSING:
                delattr(where, name)
            else:
                setattr(where, name, value)


def register(backend: Callable[[Any, Any], Any]) -> None:
    """Make `backend` known to torch.distributed under the name of this package."""
    if NAME.upper() in dist.Backend._plugins:
        plugin = dist.Backend._plugins[NAME.upper()]
        dist.Backend._plugins[NAME.upper()] = plugin._replace(creator_fn=backend)
    else:
        dist.Backend.register_backend(NAME, backend, extended_api=True, devices=["cpu", "cuda"])
