"""Which parameters' gradients travel together: the buckets of frameworks, and who is in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from commsim.collectives.collective import DTYPES
from commsim.errors import ScheduleError
from commsim.units import MIB, Bytes
from commsim.workload.overlap import Parameter

FIRST_BUCKET = 1 * MIB  # PyTorch: torch.distributed._DEFAULT_FIRST_BUCKET_BYTES
BUCKET_CAP = 25 * MIB  # PyTorch: DistributedDataParallel(bucket_cap_mb=25)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Parameters of one dtype whose gradients lie in one buffer."""

    parameters: tuple[Parameter, ...]

    @property
    def dtype(self) -> str:
        """The dtype that all have."""
        return self.parameters[0].dtype

    @property
    def numel(self) -> int:
        """Elements of all."""
        return sum(p.numel for p in self.parameters)

    @property
    def nbytes(self) -> Bytes:
        """Bytes of all."""
        return self.numel * DTYPES[self.dtype]


def fill(parameters: Iterable[Parameter], caps: Sequence[float]) -> list[Bucket]:
    """Buckets of the parameters as they come, one dtype each, in the order in which they fill.

    A bucket is full once it holds its cap (bytes) or more; each dtype's first bucket has the first
    cap, its next one the second, and so on, the last cap for all the rest. What is not full at the
    end comes last, by its first parameter. PyTorch's compute_bucket_assignment_by_size
    (torch/csrc/distributed/c10d/reducer.cpp).
    """
    if not caps or not all(cap > 0 for cap in caps):
        raise ScheduleError(f"buckets: expected caps of more than 0 bytes, got {tuple(caps)}")
    full: list[Bucket] = []
    open_: dict[str, list[Parameter]] = {}
    size: dict[str, Bytes] = {}
    closed: dict[str, int] = {}
    for parameter in parameters:
        dtype = parameter.dtype
        open_.setdefault(dtype, []).append(parameter)
        size[dtype] = size.get(dtype, 0) + parameter.nbytes
        if size[dtype] >= caps[min(closed.get(dtype, 0), len(caps) - 1)]:
            full.append(Bucket(parameters=tuple(open_.pop(dtype))))
            size[dtype] = 0
            closed[dtype] = closed.get(dtype, 0) + 1
    return full + [Bucket(parameters=tuple(rest)) for rest in open_.values()]


def torch_buckets(
    parameters: Sequence[Parameter],
    cap: float = BUCKET_CAP,
    first: float = FIRST_BUCKET,
    rebuilt: bool = True,
    find_unused: bool = False,
) -> list[Bucket]:
    """DDP's buckets in the order in which they are reduced.

    parameters: in order of registration. Once rebuilt, after the first iteration, they are filled
    in the order in which gradients come (here: the reverse), the first up to `first` bytes. Before
    that one bucket holds all; with find_unused they are never rebuilt: filled in order of
    registration, reduced from the last to the first.
    """
    if find_unused:
        found = fill(parameters, (first, cap))
        place = {p.name: i for i, p in enumerate(parameters)}
        return sorted(found, key=lambda b: place[b.parameters[0].name], reverse=True)
    if not rebuilt:
        return fill(parameters, (float("inf"),))
    return fill(reversed(parameters), (first, cap))


def megatron_buckets(parameters: Sequence[Parameter], numel: float) -> list[Bucket]:
    """Megatron's buckets in the order in which they are reduced: from the last parameter on, full
    with `numel` elements or more (megatron/core/distributed/param_and_grad_buffer.py)."""
    size = max((DTYPES[p.dtype] for p in parameters), default=1)
    return fill(reversed(parameters), (numel * size,))
