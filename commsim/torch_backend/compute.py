"""What the computation of a script takes on the cluster's GPU, op by op, as the script runs.

roofline: duration = max(flops / (peak x MATMUL), bytes / (bandwidth x MEMORY), SHORTEST), with the
flops of matrix products, convolutions and attention as torch counts them, and the bytes of all
tensors that an op reads and writes. It ignores caches, fusion and tile sizes, so small ops come out
about right by SHORTEST and the launch, large ones by their bound. Williams, Waterman and Patterson,
"Roofline: an insightful visual performance model", CACM 2009, 10.1145/1498765.1498785.
"""

# mypy: disallow-subclassing-any=False
from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from commsim.errors import UnknownNameError
from commsim.topology import parts
from commsim.topology.cluster import Cluster
from commsim.torch_backend import cuda_shim, fake, private
from commsim.torch_backend.errors import MissingWaitError
from commsim.torch_backend.tensors import extent
from commsim.torch_backend.world import Rank
from commsim.units import BytesPerSecond, Seconds

MODES = ("roofline", "measured", "none")

# Best published matrix product over the data sheet's peak: 0.80 on H100 (794.5 of 989.4 TFLOP/s),
# 0.87 on A100; topologies/parts has both figures, and a part's own ratio is used where known.
MATMUL = 0.8
# What BabelStream's kernels reach of a GPU's data sheet: Deakin, Price, Martineau, McIntosh-Smith,
# "Evaluating attainable memory bandwidth of parallel programming models via BabelStream", 2018,
# 10.1504/IJCSE.2018.095847.
MEMORY = 0.85
# s for the host to launch one kernel (with PyTorch's share), and for the shortest kernel: Zhang,
# Wahib, Matsuoka, "Understanding the overheads of launching CUDA kernels", ICPP 2019.
LAUNCH = 5e-6
SHORTEST = 2e-6

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


ATEN = torch.ops.aten
FLOPS: dict[Any, Callable[..., int]] = {  # torch's counts, for the attention of CPUs too
    ATEN._scaled_dot_product_flash_attention_for_cpu: flop_registry[
        ATEN._scaled_dot_product_flash_attention
    ],
    ATEN._scaled_dot_product_flash_attention_for_cpu_backward: flop_registry[
        ATEN._scaled_dot_product_flash_attention_backward
    ],
    **flop_registry,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """A GPU's attainable rates. flops: FLOP/s by dtype; bandwidth: bytes/s; times in s."""

    flops: dict[str, float]
    bandwidth: BytesPerSecond
    launch: Seconds = LAUNCH
    shortest: Seconds = SHORTEST
    source: str = ""

    def duration(self, flops: float, nbytes: float, dtype: str) -> Seconds:
        """s of one kernel."""
        rate = self.flops.get(dtype) or self.flops["float32"]
        return max(flops / rate, nbytes / self.bandwidth, self.shortest)


def roofline(cluster: Cluster) -> Roofline:
    """The roofline of the cluster's GPU, from its data sheet and the efficiencies above."""
    part = parts.gpu(cluster.node.gpus[0].part)
    reached = {
        dtype: (part.measured_flops(dtype) or 0.0) / peak
        for dtype, peak in part.flops
        if part.measured_flops(dtype)
    }
    share = reached.get("bfloat16", MATMUL)
    flops = {dtype: peak * reached.get(dtype, share) for dtype, peak in part.flops}
    flops.setdefault("float32", min(flops.values()))
    return Roofline(flops=flops, bandwidth=part.memory_bandwidth * MEMORY, source=part.name)


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
    count_flops: Callable[..., int] | None


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
            count_flops=FLOPS.get(private.overloads(func)),
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
        out = func(*args, **kwargs)
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
        nbytes = sum(t.numel() * t.element_size() for t in tensors)
        flops = 0
        if kind.count_flops is not None:
            flops = kind.count_flops(*args, **kwargs, out_val=out)
        dtype = str(tensors[0].dtype).removeprefix("torch.") if tensors else "float32"
        if dtype == "float32" and torch.get_float32_matmul_precision() != "highest":
            dtype = "tfloat32"
        return self._compute.model.duration(flops, nbytes, dtype)

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
