"""What is asked: one operation of torch.distributed on a group of ranks."""

from __future__ import annotations

from dataclasses import dataclass

from commsim.errors import CollectiveError, UnknownNameError
from commsim.units import Bytes

OPERATIONS = (
    "all_gather", "all_reduce", "all_to_all", "barrier", "broadcast",
    "gather", "reduce", "reduce_scatter", "scatter", "send_recv",
)  # fmt: skip
REDUCTIONS = frozenset({"all_reduce", "reduce", "reduce_scatter", "barrier"})
ROOTED = frozenset({"broadcast", "reduce", "gather", "scatter"})
REDUCE_OPS = ("sum", "prod", "min", "max", "avg")
MAX_BYTES = 1 << 63  # a size must fit a signed 64-bit integer
DTYPES = {
    "int8": 1, "uint8": 1, "float8_e4m3fn": 1, "float8_e5m2": 1, "bool": 1,
    "float16": 2, "bfloat16": 2, "int16": 2, "int32": 4, "uint32": 4, "float32": 4,
    "int64": 8, "uint64": 8, "float64": 8, "complex64": 8,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Collective:
    """One operation; `nbytes` is nccl-tests' size.

    all_reduce, broadcast, reduce: the buffer of one rank; all_gather, gather: the gathered total;
    reduce_scatter, scatter: the total before scattering; all_to_all: the total one rank sends;
    send_recv: one message, every rank sending to the next and receiving from the previous
    (with two ranks and a root: the root sends, the other receives). barrier ignores nbytes.

    `ranks=None` is every rank of the cluster. Raises CollectiveError or UnknownNameError.
    """

    operation: str
    nbytes: Bytes = 0
    dtype: str = "float32"
    ranks: tuple[int, ...] | None = None
    root: int | None = None
    reduce_op: str = "sum"

    def __post_init__(self) -> None:
        if self.operation not in OPERATIONS:
            raise UnknownNameError("operation", str(self.operation), OPERATIONS)
        if self.dtype not in DTYPES:
            raise UnknownNameError("dtype", str(self.dtype), DTYPES)
        if self.reduce_op not in REDUCE_OPS:
            raise UnknownNameError("reduce_op", str(self.reduce_op), REDUCE_OPS)
        if isinstance(self.nbytes, bool) or int(self.nbytes) != self.nbytes or self.nbytes < 0:
            raise CollectiveError(
                f"{self.operation}: nbytes: expected a whole number of bytes >= 0, "
                f"got {self.nbytes!r}"
            )
        if self.nbytes >= MAX_BYTES:
            raise CollectiveError(
                f"{self.operation}: nbytes: expected less than 2^63 bytes, got {self.nbytes:.4g}"
            )
        object.__setattr__(self, "nbytes", int(self.nbytes))
        if self.ranks is not None:
            ranks = tuple(int(r) for r in self.ranks)
            object.__setattr__(self, "ranks", ranks)
            twice = (
                sorted({r for r in ranks if ranks.count(r) > 1})
                if len(set(ranks)) < len(ranks)
                else []
            )
            if twice:
                raise CollectiveError(
                    f"{self.operation}: ranks: {twice[0]} is listed twice; list each rank once"
                )
            if len(ranks) < 2:
                raise CollectiveError(
                    f"{self.operation}: ranks: a group needs at least 2 ranks, got {list(ranks)}"
                )
            if min(ranks) < 0:
                raise CollectiveError(
                    f"{self.operation}: ranks: expected ranks >= 0, got {min(ranks)}"
                )
        if self.root is not None and self.ranks is not None and self.root not in self.ranks:
            raise CollectiveError(
                f"{self.operation}: root: {self.root} is not among the ranks {list(self.ranks)}"
            )

    @property
    def itemsize(self) -> Bytes:
        """Bytes of one element."""
        return DTYPES[self.dtype]


def bus_factor(operation: str, n: int) -> float:
    """Bus bandwidth over algorithm bandwidth, as nccl-tests defines them (PERFORMANCE.md)."""
    if operation == "all_reduce":
        return 2 * (n - 1) / n
    if operation in ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"):
        return (n - 1) / n
    return 1.0
