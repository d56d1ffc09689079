"""What is asked: one operation of torch.distributed on a group of ranks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from commsim.errors import CollectiveError, UnknownNameError
from commsim.units import Bytes

OPERATIONS = (
    "all_gather", "all_reduce", "all_to_all", "barrier", "broadcast",
    "gather", "reduce", "reduce_scatter", "scatter", "send_recv",
)  # fmt: skip
REDUCTIONS = frozenset({"all_reduce", "reduce", "reduce_scatter", "barrier"})
ROOTED = frozenset({"broadcast", "reduce", "gather", "scatter"})
SHARED = frozenset({"all_gather", "all_to_all", "gather", "reduce_scatter", "scatter"})
"""Whose size is a total over the ranks: each has a part, a whole number of elements."""
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

    `ranks=None` is every rank of the cluster. `splits`, for an uneven all_to_all only: bytes from
    the rank at position i to the one at j; `uneven` makes one. Raises CollectiveError or
    UnknownNameError.
    """

    operation: str
    nbytes: Bytes = 0
    dtype: str = "float32"
    ranks: tuple[int, ...] | None = None
    root: int | None = None
    reduce_op: str = "sum"
    splits: tuple[tuple[int, ...], ...] | None = None

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
        if self.splits is not None:
            self._set_splits(_square(self.splits))

    def _set_splits(self, splits: tuple[tuple[int, ...], ...]) -> None:
        object.__setattr__(self, "splits", splits)
        if self.operation != "all_to_all":
            raise CollectiveError(f"{self.operation}: splits: only an all_to_all has them")
        self.check_splits(len(splits) if self.ranks is None else len(self.ranks))
        if self.nbytes != (most := _most(splits)):
            raise CollectiveError(
                f"all_to_all: nbytes: expected {most}, the most that one rank sends or receives "
                f"by its splits, got {self.nbytes}; Collective.uneven finds it by itself"
            )

    @classmethod
    def uneven(
        cls,
        splits: Iterable[Iterable[int]],
        *,
        dtype: str = "float32",
        ranks: tuple[int, ...] | None = None,
    ) -> Collective:
        """An all_to_all in which the rank at position i has `splits[i][j]` bytes for the one at j.

        >>> Collective.uneven([[0, 8], [4, 4]]).nbytes  # the second receives 8 + 4
        12
        """
        square = _square(splits)
        return cls("all_to_all", _most(square), dtype, ranks, splits=square)

    def check_splits(self, n: int) -> None:
        """Raise CollectiveError if splits are given, but not for a group of `n` ranks."""
        if self.splits is not None and len(self.splits) != n:
            raise CollectiveError(
                f"all_to_all: splits: expected {n} rows of {n}, one for each rank of the group, "
                f"got {len(self.splits)}"
            )

    @property
    def itemsize(self) -> Bytes:
        """Bytes of one element."""
        return DTYPES[self.dtype]


def _square(splits: Iterable[Iterable[int]]) -> tuple[tuple[int, ...], ...]:
    """The matrix in tuples of int, if it is one."""
    rows = tuple(tuple(row) for row in splits)
    if len(rows) < 2 or any(len(row) != len(rows) for row in rows):
        raise CollectiveError(
            "all_to_all: splits: expected n rows of n sizes for a group of n >= 2 ranks, got rows "
            f"of {[len(row) for row in rows]}"
        )
    for i, row in enumerate(rows):
        for j, nbytes in enumerate(row):
            if isinstance(nbytes, bool) or int(nbytes) != nbytes or nbytes < 0:
                raise CollectiveError(
                    f"all_to_all: splits[{i}][{j}]: expected a whole number of bytes >= 0, "
                    f"got {nbytes!r}"
                )
    return tuple(tuple(int(nbytes) for nbytes in row) for row in rows)


def _most(splits: tuple[tuple[int, ...], ...]) -> Bytes:
    """The largest total that any rank sends or receives, its own share included."""
    columns = zip(*splits, strict=True)
    return max(max(map(sum, splits)), max(map(sum, columns)))


def bus_factor(operation: str, n: int) -> float:
    """Bus bandwidth over algorithm bandwidth, as nccl-tests defines them (PERFORMANCE.md)."""
    if operation == "all_reduce":
        return 2 * (n - 1) / n
    if operation in ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"):
        return (n - 1) / n
    return 1.0
