"""Shape mode: tensors that have a shape and a type, and no data.

A script then takes the memory of its Python objects only, whatever the size of its model. Values
are not there: `.item()` gives 1. What torch does in C++ with values is replaced: DDP's check and
broadcast of the parameters, and the order of its buckets, which is then that of the parameters.
"""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

import contextlib
import copyreg
import functools
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist

from commsim.torch_backend import private
from commsim.torch_backend.errors import UnsupportedCallError
from commsim.torch_backend.group import SimulatedGroup

# .mode: the rank's; .limits: bytes of DDP's buckets; .converted: parameters by id
HERE = threading.local()
ALL = "_all_of_them"  # an attribute of what torch.all gives: checks that must hold do
OBJECTS = (
    "all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list",
    "send_object_list", "recv_object_list",
)  # fmt: skip
UNBOUNDED = [sys.maxsize]


def mode() -> Any:
    """A mode in which every new tensor of the calling rank is without data."""
    HERE.mode = private.FakeTensorMode(allow_non_fake_inputs=True)
    return HERE.mode


def default_of(tensor: torch.Tensor) -> bool | int | float | complex:
    """What `.item()` gives: of "all of them" True, of other truths False, of numbers 1."""
    if tensor.dtype == torch.bool:
        return getattr(tensor, ALL, False)
    if tensor.dtype.is_complex:
        return 1 + 0j
    return 1.0 if tensor.dtype.is_floating_point else 1


def run(function: Any, name: str, args: Any, kwargs: Any) -> Any:
    """An op without data. Raises UnsupportedCallError where its result's shape lies in values."""
    try:
        out = function(*args, **kwargs)
    except private.NEEDS_VALUES as error:
        raise UnsupportedCallError(
            f"{name.removeprefix('aten::')}: what it gives depends on values, of which --fake has "
            "none; run the script without --fake"
        ) from error
    if name.startswith(("aten::all", "aten::_is_all_true")) and isinstance(out, private.FakeTensor):
        setattr(out, ALL, True)
    return out


@contextlib.contextmanager
def patched() -> Iterator[None]:
    """torch, so that it does not look at data that is not there."""
    changes: list[tuple[Any, str, Any]] = [
        (*private.BEFORE_BUCKETS, _noting_limits(getattr(*private.BEFORE_BUCKETS))),
        (*private.BUCKETS, _in_order_of_gradients(getattr(*private.BUCKETS))),
        (*private.CONVERT, _apply),
        (dist, "Reducer", _Reducer),
        (*private.sharding(), Shards),
        (private.FakeTensor, "__deepcopy__", _copied),
    ]
    changes += [(where, name, _nothing) for where, name in private.READING_DATA]
    needing = private.needing_data()
    needing += [(module, name) for module in (dist, dist.distributed_c10d) for name in OBJECTS]
    changes += [(where, name, _with_data(getattr(where, name))) for where, name in needing]
    changes += [(where, name, _refused(name)) for where, name in private.keeping_values()]
    copyreg.dispatch_table[private.FakeTensor] = _packed
    try:
        with private.replaced(changes), torch.serialization.safe_globals([_unpacked]):
            yield
    finally:
        del copyreg.dispatch_table[private.FakeTensor]


def _copied(tensor: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
    """copy.deepcopy of a tensor: torch's own copies its storage."""
    if id(tensor) not in memo:
        new = tensor.detach().clone().requires_grad_(tensor.requires_grad)
        if isinstance(tensor, torch.nn.Parameter):
            new = torch.nn.Parameter(new, tensor.requires_grad)
        memo[id(tensor)] = new
    found: torch.Tensor = memo[id(tensor)]
    return found


def _packed(tensor: torch.Tensor) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """How a tensor in an object that is sent is pickled: what it is like."""
    return _unpacked, (
        tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device, tensor.requires_grad,
    )  # fmt: skip


def _unpacked(
    shape: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype, device: torch.device,
    requires_grad: bool,
) -> torch.Tensor:  # fmt: skip
    with HERE.mode:
        return torch.empty_strided(
            shape, stride, dtype=dtype, device=device, requires_grad=requires_grad
        )


def _with_data(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, on tensors that do have data."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            with private.no_modes():
                return function(*args, **kwargs)
        except private.NEEDS_VALUES as error:
            raise UnsupportedCallError(
                f"{function.__qualname__}: it looks at values of a tensor, of which --fake has "
                "none; give it numbers, or run the script without --fake"
            ) from error

    return call


class Shards:
    """The parts of a tensor as `torch.chunk` cuts it, each made when it is asked for.

    FSDP2 looks at two of them, of as many as there are ranks.
    """

    def __init__(self, tensor: torch.Tensor, n: int, dim: int) -> None:
        self._tensor, self._n, self._dim = tensor, n, dim

    def __getitem__(self, i: int) -> torch.Tensor:
        length = self._tensor.shape[self._dim]
        most = -(-length // self._n)
        if i * most >= length:
            return self._tensor.new_empty(0)
        return self._tensor.narrow(self._dim, i * most, min(most, length - i * most))


def _nothing(*_: Any, **__: Any) -> None:
    """In place of what reads parameters."""


def _refused(name: str) -> Callable[..., Any]:
    """In place of what reads or writes values."""

    def call(*_: Any, **__: Any) -> Any:
        raise UnsupportedCallError(
            f"torch.distributed.checkpoint.{name} needs values, of which --fake has none; leave it "
            "out, or run the script without --fake"
        )

    return call


def _noting_limits(helper: Callable[..., Any]) -> Callable[..., Any]:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        HERE.limits = private.bucket_limits(self)
        return helper(self, *args, **kwargs)

    return call


def _in_order_of_gradients(assign: Callable[..., Any]) -> Callable[..., Any]:
    """Buckets as they are once DDP has rebuilt them: from the last parameter to the first."""

    def call(tensors: Any, limits: list[int], sparse: Any = ()) -> Any:
        if limits != UNBOUNDED:
            return assign(tensors, limits, sparse)
        last_first = list(reversed(range(len(tensors))))
        buckets, caps = assign(
            [tensors[i] for i in last_first], HERE.limits, [sparse[i] for i in last_first],
            last_first,
        )  # fmt: skip
        return buckets[::-1], caps[::-1]  # DDP turns them round

    return call


class _Reducer(private.Reducer):
    """DDP's, which does not rebuild its buckets: that broadcasts their order as data."""

    def _rebuild_buckets(self) -> bool:
        return False


def _apply(self: Any, convert: Callable[[Any], Any], recurse: bool = True) -> Any:
    """Module.to and its like: new parameters in place of the old ones, tied ones still tied."""
    outermost = not hasattr(HERE, "converted")
    if outermost:
        HERE.converted = {}
    try:
        if recurse:
            for child in self.children():
                child._apply(convert)
        for table in (self._parameters, self._buffers):
            for name, old in table.items():
                if old is not None:
                    table[name] = _converted(old, convert)
    finally:
        if outermost:
            del HERE.converted
    return self


def _converted(old: torch.Tensor, convert: Callable[[Any], Any]) -> torch.Tensor:
    if id(old) not in HERE.converted:
        with torch.no_grad():
            new = convert(old)
        if isinstance(old, torch.nn.Parameter) and new is not old:
            new = torch.nn.Parameter(new, old.requires_grad)
        HERE.converted[id(old)] = new, old
    found: torch.Tensor = HERE.converted[id(old)][0]
    return found


class Functional:
    """Functional collectives, which under a fake mode give a shape and reach no group."""

    def __init__(self) -> None:
        self._under_way: dict[int, tuple[Any, Any]] = {}

    def call(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Carry one out: the fake result, and the operation of the group."""
        name = private.schema(func).name.partition("::")[2]
        if name == "wait_tensor":
            work, _ = self._under_way.pop(id(args[0]), (None, None))
            if work is not None:
                work.wait()
            return args[0]
        out = func(*args, **kwargs)
        group = private.resolve(args[-1])
        if isinstance(group, SimulatedGroup):
            work = _post(name.rstrip("_"), group, args, out)
            for tensor in out if isinstance(out, (list, tuple)) else (out,):
                self._under_way[id(tensor)] = work, tensor
        return out


def _post(name: str, group: SimulatedGroup, args: Any, out: Any) -> Any:
    given, *more = args
    if name in ("all_reduce", "all_reduce_coalesced"):
        return group.allreduce(out, more[0])
    if name == "broadcast":
        return group.broadcast(out, more[0])
    if name == "all_gather_into_tensor":
        return group.all_gather_single(out, given)
    if name == "all_gather_into_tensor_coalesced":
        return group.all_gather_single_coalesced(out, given)
    if name == "reduce_scatter_tensor":
        return group.reduce_scatter_single(out, given, more[0])
    if name == "reduce_scatter_tensor_coalesced":
        return group.reduce_scatter_single_coalesced(out, given, more[0])
    return group.all_to_all_single(out, given, more[0], more[1])
