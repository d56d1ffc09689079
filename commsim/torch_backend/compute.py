"""How the computation of a script is timed, op by op, as the script runs."""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from commsim.errors import UnknownNameError
from commsim.torch_backend import cuda_shim, fake, private
from commsim.torch_backend.counting import Count, counter_of
from commsim.torch_backend.errors import MissingWaitError
from commsim.torch_backend.roofline import Roofline
from commsim.torch_backend.tensors import extent
from commsim.torch_backend.world import Rank
from commsim.units import Seconds
from commsim.workload.operations import Matmul

MODES = ("roofline", "measured", "none")

# They allocate, or change what a tensor says about itself: no kernel.
WITHOUT_KERNEL = frozenset(
    f"aten::{name}"
    for name in (
        "empty.memory_format", "empty_strided", "empty_like", "new_empty", "new_empty_strided",
        "empty_permuted", "resize_", "set_.source_Tensor", "set_.source_Storage",
        "set_.source_Storage_storage_offset", "lift_fresh", "_unsafe_view", "_reshape_alias",
        "record_stream",
    )
)  # fmt: skip
SYNCHRONIZING = frozenset({"aten::_local_scalar_dense", "aten::nonzero", "aten::equal"})
COMMUNICATION = ("c10d", "_c10d_functional", "_dtensor", "symm_mem")


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute:
    """How kernels are timed. mode: one of MODES."""

    mode: str
    model: Roofline
    keep_spans: bool = False
    fake: bool = False
    cuda_shim: bool = False

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise UnknownNameError("compute model", self.mode, MODES)

    @contextlib.contextmanager
    def on(self, rank: Rank) -> Iterator[None]:
        """What the calling thread computes is the rank's."""
        torch.autograd.set_multithreading_enabled(False)
        nothing = contextlib.nullcontext()
        with (
            cuda_shim.OnCpu() if self.cuda_shim else nothing,
            fake.mode() if self.fake else nothing as shapes,
            Kernels(rank, self, shapes),
        ):
            yield


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What is known of an op before it runs. written: positions and names of what it changes."""

    name: str
    kernel: bool
    synchronizes: bool
    looks: bool
    written: frozenset[int | str]
    count: Count | None


def tensors_in(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    """The tensors among an op's arguments, those in lists too."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors_in(value)


KINDS: dict[Any, Kind] = {}
PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})


def kind_of(func: Any) -> Kind:
    """The kind of an op, from its schema."""
    kind = KINDS.get(func)
    if kind is None:
        schema = private.schema(func)
        name = schema.name + (f".{schema.overload_name}" if schema.overload_name else "")
        views = any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns)
        written: set[int | str] = set()
        for i, argument in enumerate(schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                written |= {i, argument.name}
        other = func.namespace in COMMUNICATION or func.namespace == "prim"
        kind = KINDS[func] = Kind(
            name=name, kernel=not (views or other or name in WITHOUT_KERNEL),
            synchronizes=schema.name in SYNCHRONIZING, looks=views or other,
            written=frozenset(written),
            count=counter_of(private.overloads(func), schema),
        )  # fmt: skip
    return kind


class Kernels(private.DispatchMode):
    """Sees every op of a rank's thread: times it, and checks what it reads and writes."""

    def __init__(self, rank: Rank, compute: Compute, shapes: Any) -> None:
        super().__init__()
        self._rank, self._compute, self._shapes = rank, compute, shapes
        self._functional = fake.Functional()

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if not PLAIN.issuperset(types):
            if not all(kind in PLAIN or kind is private.FakeTensor for kind in types):
                return NotImplemented  # a DTensor, say, goes first: what it calls comes here
            if self._shapes is None:
                return func(*args, **kwargs)  # torch asks itself for a shape
        kind = kind_of(func)
        if self._rank.in_flight and not kind.looks and kind.name not in WITHOUT_KERNEL:
            self._check(kind, args, kwargs)
        if self._shapes is not None:
            if func.namespace == "_c10d_functional":
                return self._functional.call(func, args, kwargs)
            if kind.name == "aten::_local_scalar_dense":
                self._rank.clock.synchronize()
                if isinstance(args[0], private.FakeTensor):
                    return fake.default_of(args[0])
                with private.no_modes():
                    return func(*args)
        mode = self._compute.mode
        if mode == "measured":
            return self._measure(kind, func, args, kwargs)
        if self._shapes is None:
            out = func(*args, **kwargs)
        else:
            out = fake.run(func, kind.name, args, kwargs)
        clock = self._rank.clock
        if kind.synchronizes:
            clock.synchronize()
        elif kind.kernel and mode == "roofline":
            model = self._compute.model
            duration = self._duration(kind, args, kwargs, out)
            if duration:
                clock.compute(kind.name, duration, model.launch, self._compute.keep_spans)
        return out

    def _duration(self, kind: Kind, args: Any, kwargs: Any, out: Any) -> Seconds:
        tensors = list(tensors_in((*args, *kwargs.values(), out)))
        if any(t.is_meta for t in tensors):
            return 0.0
        model = self._compute.model
        if kind.count is None:
            return model.moving(sum(t.numel() * t.element_size() for t in tensors))
        work, first = kind.count(args, kwargs, out), tensors[0]
        dtype = str(first.dtype).removeprefix("torch.")
        if dtype == "float32" and torch.get_float32_matmul_precision() != "highest":
            dtype = "tfloat32"
        if isinstance(work, Matmul):
            return model.product(work, dtype, first.element_size()) if work.flops else 0.0
        return model.attention(*work, dtype, first.element_size())

    def _measure(self, kind: Kind, func: Any, args: Any, kwargs: Any) -> Any:
        clock = self._rank.clock
        start = time.perf_counter()
        out = func(*args, **kwargs)
        took = time.perf_counter() - start
        if kind.kernel:
            clock.compute(kind.name, took, 0.0, self._compute.keep_spans)
        clock.synchronize()
        return out

    def _check(self, kind: Kind, args: Any, kwargs: Any) -> None:
        """Does the op touch memory that an operation under way reads or writes?"""
        for key, argument in (*enumerate(args), *kwargs.items()):
            writes = key in kind.written
            for tensor in tensors_in((argument,)):
                low, high = extent(tensor)
                for begin, end, written, post, _ in self._rank.in_flight:
                    if low < end and begin < high and (written or writes):
                        does = "writes to" if writes else "reads"
                        still = "writes" if written else "reads"
                        raise MissingWaitError(
                            f"{kind.name} {does} a tensor that {post.call} of "
                            f"{post.call.where} still {still}: call wait() on its handle first"
                        )
