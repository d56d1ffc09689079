"""From what is asked to the steps of a plan; what the backend cannot do is refused."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

from commsim.collectives.collective import DTYPES, REDUCTIONS, SHARED, Collective
from commsim.errors import CollectiveError, MeasureError
from commsim.measure.backend import offers
from commsim.measure.plan import Gemm, Settings, Step
from commsim.report.nccl_tests import whole
from commsim.units import Bytes

# Squares, and what one layer of a 8B and of a 70B transformer multiplies (hidden 4096 and 8192,
# feed-forward 14336 and 28672: Llama 3, arXiv 2407.21783, table 3) for 4096 tokens.
LARGE: tuple[Gemm, ...] = (
    (1024, 1024, 1024), (2048, 2048, 2048), (4096, 4096, 4096), (8192, 8192, 8192),
    (4096, 4096, 4096), (4096, 14336, 4096), (4096, 4096, 14336), (4096, 8192, 8192),
    (4096, 28672, 8192), (4096, 8192, 28672), (1, 8192, 8192), (16, 8192, 8192), (128, 8192, 8192),
)  # fmt: skip
SMALL: tuple[Gemm, ...] = (
    (128, 128, 128), (256, 256, 256), (512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048),
    (1, 2048, 2048), (128, 2048, 512), (512, 512, 2048),
)  # fmt: skip


def check(
    collective: Collective, n_ranks: int, settings: Settings, groups: Sequence[Sequence[int]] = ()
) -> None:
    """Raises CollectiveError or MeasureError where this cannot be measured."""
    found = offers(settings.backend)
    if settings.cudagraph and settings.backend != "nccl":
        raise MeasureError(f"--cudagraph: expected --backend nccl, got {settings.backend}")
    if settings.cudagraph and collective.operation == "barrier":
        raise MeasureError(
            "--cudagraph: expected an operation other than barrier, whose host waits in each call"
        )
    in_groups = [rank for group in groups for rank in group]
    if settings.cudagraph and len(set(in_groups)) < len(in_groups):
        raise MeasureError(
            "--cudagraph: expected groups without a common rank, whose graphs would run one after "
            "another"
        )
    ranks = [rank for group in (collective.ranks or (), *groups) for rank in group]
    if ranks and max(ranks) >= n_ranks:
        raise CollectiveError(
            f"--ranks: expected ranks below {n_ranks} (--nproc), got {max(ranks)}"
        )
    if collective.ranks is None and collective.root is not None and collective.root >= n_ranks:
        raise CollectiveError(
            f"--root: expected a rank below {n_ranks} (--nproc), got {collective.root}"
        )
    if collective.operation == "send_recv" and n_ranks < 2:
        raise CollectiveError("send_recv: expected 2 ranks or more, got 1; raise --nproc")
    if collective.operation == "send_recv" and collective.root is not None:
        size = n_ranks if collective.ranks is None else len(collective.ranks)
        if size != 2:
            raise CollectiveError(
                f"send_recv: --root sends to one other rank: expected --ranks A,B, got {size} ranks"
            )
    if collective.operation in REDUCTIONS and collective.operation != "barrier":
        if collective.dtype not in found.reduces:
            raise MeasureError(
                f"--dtype: {settings.backend} reduces {', '.join(sorted(found.reduces))}, got "
                f"{collective.dtype}"
            )
        if collective.reduce_op not in found.reduce_ops:
            raise MeasureError(
                f"--redop: {settings.backend} reduces with "
                f"{', '.join(sorted(found.reduce_ops))}, got {collective.reduce_op}"
            )


def forms(operation: str, settings: Settings, wanted: str) -> tuple[bool, ...]:
    """Whether in place, for each record that is to be: those of --place that the library has."""
    has = offers(settings.backend).forms[operation]
    if settings.copies and False not in has:
        has = (False, *has)
    found = tuple(f for f in has if wanted == "both" or f == (wanted == "in"))
    if not found:
        only = "in place" if True in has else "out of place"
        hint = " (--copies adds a copy first)" if only == "in place" else ""
        raise MeasureError(
            f"--place {wanted}: {settings.backend}'s {operation} is {only} only{hint}"
        )
    return found


def sweep(
    asked: Collective, sizes: Sequence[Bytes], n_ranks: int, places: tuple[bool, ...]
) -> tuple[Step, ...]:
    """The operation at each size; CollectiveError where none is as large as an element a rank."""
    n = n_ranks if asked.ranks is None else len(asked.ranks)
    if asked.operation == "barrier":
        return (Step(kind="collective", collective=sized(asked, 0), forms=places),)
    moved = dict.fromkeys(whole(asked.operation, s, DTYPES[asked.dtype], n) for s in sizes)
    kept = [nbytes for nbytes in moved if nbytes]
    if not kept:
        each = f" for each of {n} ranks" if asked.operation in SHARED else ""
        raise CollectiveError(
            f"measure: {sizes[-1]} bytes are less than one {asked.dtype}{each}; raise -e"
        )
    return tuple(
        Step(kind="collective", collective=sized(asked, nbytes), forms=places) for nbytes in kept
    )


def pairs(asked: Collective, sizes: Sequence[Bytes], n_ranks: int) -> tuple[Step, ...]:
    """One message from each rank of the group to each other one, at each size."""
    ranks = range(n_ranks) if asked.ranks is None else asked.ranks
    found: list[Step] = []
    for pair in permutations(ranks, 2):
        one_way = Collective("send_recv", asked.nbytes, asked.dtype, pair, root=pair[0])
        found += sweep(one_way, sizes, n_ranks, (False,))
    return tuple(found)


def together(
    asked: Collective,
    sizes: Sequence[Bytes],
    groups: tuple[tuple[int, ...], ...],
    places: tuple[bool, ...],
) -> tuple[Step, ...]:
    """The operation on all groups at once, at each size."""
    smallest = min(len(group) for group in groups)
    if smallest < 2 or len(groups) < 2:
        raise CollectiveError(
            f"--groups: expected two groups or more of 2 ranks or more, such as 0,1/2,3, got "
            f"{'/'.join(','.join(map(str, g)) for g in groups)}"
        )
    if len({len(group) for group in groups}) > 1 and asked.operation in SHARED:
        raise CollectiveError(
            f"--groups: {asked.operation} shares its size among the ranks: expected groups of one "
            "size"
        )
    alone = sweep(
        Collective(asked.operation, 0, asked.dtype, groups[0], reduce_op=asked.reduce_op),
        sizes, smallest, places,
    )  # fmt: skip
    return tuple(
        Step(kind="together", forms=places, groups=groups, collective=sized(
            Collective(asked.operation, 0, asked.dtype, reduce_op=asked.reduce_op),
            step.collective.nbytes))
        for step in alone if step.collective is not None
    )  # fmt: skip


def interference(steps: Sequence[Step], gemms: Sequence[Gemm], gemm_dtype: str) -> tuple[Step, ...]:
    """Each collective beside each product, in the first of its forms."""
    return tuple(
        Step(kind="interference", collective=step.collective, forms=step.forms[:1], gemm=gemm,
             gemm_dtype=gemm_dtype)
        for gemm in gemms for step in steps
    )  # fmt: skip


def gemms(products: Sequence[Gemm], dtypes: Sequence[str]) -> tuple[Step, ...]:
    """Each product in each dtype."""
    return tuple(
        Step(kind="gemm", gemm=gemm, gemm_dtype=dtype)
        for dtype in dtypes for gemm in dict.fromkeys(products)
    )  # fmt: skip


def sized(asked: Collective, nbytes: Bytes) -> Collective:
    """The same at that size."""
    return Collective(
        asked.operation, nbytes, asked.dtype, asked.ranks, asked.root, asked.reduce_op
    )  # fmt: skip
