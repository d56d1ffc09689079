"""Scripts written for CUDA and NCCL on a build of torch that has neither.

Tensors stay on the CPU: where a script says "cuda", it gets the CPU, and `torch.cuda` answers as
the cluster's GPU would, its streams and events in virtual time. What shows: `tensor.device` is
"cpu", `tensor.is_cuda` is False, mixed precision follows the CPU's rules. CUDA and Triton kernels,
CUDA graphs and `torch.Generator(device="cuda")` cannot run.
"""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
import torch.utils.data
from torch.distributed import device_mesh
from torch.nn.parallel import DistributedDataParallel

from commsim.topology import parts
from commsim.topology.cluster import Cluster
from commsim.torch_backend import private, streams

DEVICE = "cuda"


def on_cpu(value: Any) -> Any:
    """A device, or what names one, as the CPU if it is CUDA's."""
    if isinstance(value, torch.device) and value.type == DEVICE:
        return torch.device("cpu")
    if isinstance(value, str) and (value == DEVICE or value.startswith(f"{DEVICE}:")):
        return "cpu"
    return value


class OnCpu(private.FunctionMode):
    """Turns the devices in calls of torch's functions, of the calling thread, into the CPU."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if function in (torch.Tensor.cuda, torch.Tensor.pin_memory):
            return args[0]
        if function is torch.device and args and on_cpu(args[0]) != args[0]:
            return torch.device("cpu")  # torch.device("cuda", 1): no number
        if function is torch.Tensor.to and len(args) > 1 and type(args[1]) is int:
            args = (args[0], "cpu", *args[2:])  # tensor.to(local_rank)
        if type(kwargs.get("device")) is int:
            kwargs["device"] = "cpu"
        args = tuple(map(on_cpu, args))
        kwargs = {name: on_cpu(value) for name, value in kwargs.items()}
        kwargs.pop("non_blocking", None) if function is torch.Tensor.to else None
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        return function(*args, **kwargs)


@contextlib.contextmanager
def patched(cluster: Cluster, gpus: int) -> Iterator[None]:
    """`torch.cuda` and its like, as with `gpus` GPUs of the cluster's kind."""
    part = parts.gpu(cluster.node.gpus[0].part)
    properties = SimpleNamespace(
        name=part.name, total_memory=part.memory, multi_processor_count=part.sms,
        major=part.capability // 10, minor=part.capability % 10, warp_size=32, is_integrated=False,
    )  # fmt: skip
    answers: dict[str, Any] = {
        "is_available": True, "is_initialized": True, "device_count": gpus,
        "get_device_name": part.name, "get_device_properties": properties,
        "get_device_capability": (properties.major, properties.minor),
        "is_bf16_supported": part.capability >= 80, "mem_get_info": (part.memory, part.memory),
    }  # fmt: skip
    answers |= dict.fromkeys(
        ("init", "empty_cache", "reset_peak_memory_stats", "manual_seed", "manual_seed_all", "seed",
         "seed_all", "ipc_collect", "set_per_process_memory_fraction")
    )  # fmt: skip
    answers |= dict.fromkeys(
        ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"), 0
    )
    changes: list[tuple[Any, str, Any]] = [
        (torch.cuda, name, _answering(value)) for name, value in answers.items()
    ]
    changes += [
        (torch.cuda, "is_current_stream_capturing", _answering(False)),
        (torch.cuda, "current_device", _current_device),
        (torch.cuda, "set_device", _set_device),
        (torch.cuda, "device", _Device),
        (torch.cuda, "Stream", streams.Stream),
        (torch.cuda, "Event", streams.Event),
        (torch.cuda, "stream", streams.stream),
        (torch.cuda, "current_stream", streams.current_stream),
        (torch.cuda, "default_stream", streams.default_stream),
        (torch.cuda, "synchronize", streams.synchronize),
        (torch.Tensor, "record_stream", _answering(None)),
        (torch, "Stream", streams.Stream),
        (torch, "Event", streams.Event),
        (torch.version, "cuda", "12.8"),
        (torch.accelerator, "is_available", _answering(True)),
        (torch.accelerator, "current_accelerator", _answering(torch.device(DEVICE))),
        (torch.accelerator, "device_count", _answering(gpus)),
        (torch.accelerator, "set_device_index", _set_device),
        (torch.accelerator, "current_device_index", _current_device),
        (torch.accelerator, "synchronize", streams.synchronize),
        (torch.accelerator, "current_stream", streams.current_stream),
        (torch, "set_default_device", _answering(None)),
        (torch.nn.Module, "cuda", lambda module, device=None: module),
        (torch.autocast, "__init__", _device_first(torch.autocast.__init__)),
        (torch.amp.GradScaler, "__init__", _device_first(torch.amp.GradScaler.__init__)),
        (DistributedDataParallel, "__init__", _without_devices(DistributedDataParallel.__init__)),
        (device_mesh, "init_device_mesh", _device_first(device_mesh.init_device_mesh, 0)),
        (dist, "init_device_mesh", _device_first(device_mesh.init_device_mesh, 0)),
        (device_mesh.DeviceMesh, "__init__", _device_first(device_mesh.DeviceMesh.__init__)),
        (torch.utils.data.DataLoader, "__init__", _unpinned(torch.utils.data.DataLoader.__init__)),
    ]
    changes += [(module, "split_group", _split_group) for module in (dist, dist.distributed_c10d)]
    changes += private.pretending_nccl()
    with private.replaced(changes):
        yield


def _split_group(
    parent_pg: Any = None, split_ranks: Any = None, timeout: Any = None, pg_options: Any = None,
    group_desc: str | None = None, backend: Any = None,
) -> Any:  # fmt: skip
    """dist.split_group, as NCCL can: the part of a group in which the calling rank is."""
    if not split_ranks:
        raise ValueError("split_ranks cannot be None or empty")
    world: Any = dist.group.WORLD
    if world.device is None:
        raise RuntimeError(
            "No device associated with the default pg, not safe to split any process groups"
        )
    parent = parent_pg or world
    if any(len(part) != len(set(part)) or not part for part in split_ranks):
        raise ValueError("the split group cannot be empty or have duplicate ranks")
    mine = next((part for part in split_ranks if parent.rank() in part), None)
    if mine is None:
        return private.NOT_IN_SPLIT
    ranks = [parent.simulated.ranks[place] for place in private.as_split(mine)]
    return dist.new_group(
        ranks, timeout=timeout, use_local_synchronization=True, group_desc=group_desc,
        **private.IN_ORDER,
    )  # fmt: skip


def _answering(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value


def _current_device() -> int:
    rank = getattr(streams.HERE, "rank", None)
    return 0 if rank is None else int(rank.state.get("device", 0))


def _set_device(device: Any) -> None:
    index = device if isinstance(device, int) else torch.device(device).index
    streams.HERE.rank.state["device"] = index or 0


class _Device:
    """`with torch.cuda.device(1):`"""

    def __init__(self, device: Any) -> None:
        self._device = device

    def __enter__(self) -> None:
        self._before = _current_device()
        _set_device(self._device)

    def __exit__(self, *_: object) -> None:
        _set_device(self._before)


def _device_first(function: Callable[..., Any], place: int = 1) -> Callable[..., Any]:
    """The function, with the device at that place of its arguments, or so called, on the CPU."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        args = tuple(on_cpu(a) if i == place else a for i, a in enumerate(args))
        for name in ("device_type", "device"):
            if name in kwargs:
                kwargs[name] = on_cpu(kwargs[name])
        return function(*args, **kwargs)

    return call


def _without_devices(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(self: Any, module: Any, *args: Any, **kwargs: Any) -> Any:
        kwargs |= dict(zip(("device_ids", "output_device"), args, strict=False))
        kwargs.update(device_ids=None, output_device=None)
        return function(self, module, **kwargs)

    return call


def _unpinned(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        return function(*args, **kwargs)

    return call
