"""Which ranks work together: the groups of a layout, as Megatron and torchtitan number them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from commsim.errors import UnknownNameError
from commsim.workload.layout import Layout

_DENSE = {"tp": ("tp",), "cp": ("cp",), "pp": ("pp",), "dp": ("cp", "dp"), "batch": ("dp",)}
_EXPERT = {"ep": ("ep",), "etp": ("tp",), "edp": ("dp",)}
_PARTS = {"shard": "dp", "replicate": "dp", "expert_shard": "edp", "expert_replicate": "edp"}
KINDS = (*_DENSE, *_EXPERT, *_PARTS, "embedding", "world")


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups of ranks of a layout.

    Kinds: "tp", "cp", "pp"; "dp", the ranks that reduce the gradient of a dense weight (data x
    context parallel), "batch" those of data parallelism alone; "shard" and "replicate", how "dp"
    is cut by hsdp (of its ranks in order, the first hsdp make the first shard group); "ep", "etp",
    "edp" (that reduce an expert's gradient), "expert_shard", "expert_replicate"; "embedding" (the
    first and the last stage, which share tied weights); "world".

    Rank = sum of its coordinates x the product of the faster dimensions, in the layout's order; for
    experts the dimensions are etp, ep and what is left of a stage, without cp. As Megatron-LM's
    RankGenerator (core/parallel_state.py); torchtitan's mesh (pp, dp_replicate, dp_shard, cp, tp)
    is the same order.
    """

    layout: Layout

    def size(self, kind: str) -> int:
        """Ranks in a group."""
        return prod(n for n, _ in _axes(self.layout, kind)[0])

    def ranks(self, kind: str, rank: int = 0) -> tuple[int, ...]:
        """The group of that kind which a rank is in, in order. Raises UnknownNameError."""
        layout = self.layout
        place = rank if layout.placement is None else layout.placement.index(rank)
        inside, _ = _axes(layout, kind)
        first = place - sum(place // stride % n * stride for n, stride in inside)
        members = [first]
        for n, stride in inside:
            members = [m + stride * i for i in range(n) for m in members]
        if layout.placement is not None:
            return tuple(layout.placement[m] for m in members)
        return tuple(members)

    def all(self, kind: str) -> tuple[tuple[int, ...], ...]:
        """Every group of that kind. Raises UnknownNameError."""
        return tuple(map(tuple, self.array(kind).tolist()))

    def array(self, kind: str) -> NDArray[np.int64]:
        """Every group of that kind, a row each. Raises UnknownNameError."""
        inside, outside = _axes(self.layout, kind)
        rows = _combined(outside)[:, None] + _combined(inside)[None, :]
        if self.layout.placement is None:
            return rows
        placed: NDArray[np.int64] = np.asarray(self.layout.placement, dtype=np.int64)[rows]
        return placed


def groups(layout: Layout) -> Groups:
    """The groups of ranks of a layout.

    >>> groups(Layout(tp=2, dp=4)).ranks("dp", rank=1)
    (1, 3, 5, 7)
    """
    return Groups(layout)


Axes = tuple[tuple[int, int], ...]  # (length, distance between neighbours), the fastest first


def _axes(layout: Layout, kind: str) -> tuple[Axes, Axes]:
    """The dimensions inside a group, and those that tell groups apart."""
    return _cached(
        layout.order, layout.tp, layout.cp, layout.dp, layout.pp,
        layout.ep, layout.expert_tp, layout.hsdp, kind,
    )  # fmt: skip


@lru_cache(maxsize=65536)
def _cached(
    order: str, tp: int, cp: int, dp: int, pp: int, ep: int, etp: int, hsdp: int | None, kind: str
) -> tuple[Axes, Axes]:
    if kind not in KINDS:
        raise UnknownNameError("kind of group", kind, KINDS)
    names = [name for name in order.split("-") if name != "ep"]
    dense = _strides(names, {"tp": tp, "cp": cp, "dp": dp, "pp": pp})
    if kind == "world":
        return tuple(dense.values()), ()
    if kind == "embedding":
        length, stride = dense.pop("pp")
        ends = (min(2, length), stride * max(1, length - 1))
        return (ends,), tuple(dense.values())
    if kind in ("ep", "etp", "edp", "expert_shard", "expert_replicate"):
        rest = tp * cp * dp // (etp * ep)
        names = [name for name in order.split("-") if name != "cp"]
        if "ep" not in names:
            names.insert(names.index("dp"), "ep")
        dense = _strides(names, {"tp": etp, "ep": ep, "dp": rest, "pp": pp})
    whole = _PARTS.get(kind, kind)
    chosen = (_DENSE | _EXPERT)[whole]
    inside = tuple(axis for name, axis in dense.items() if name in chosen)
    outside = tuple(axis for name, axis in dense.items() if name not in chosen)
    if kind == whole:
        return inside, outside
    ranks = prod(n for n, _ in inside)
    length = ranks if hsdp is None else hsdp
    if whole == "edp" and hsdp is not None:
        length = max(1, hsdp * tp // (etp * ep))
    shard, replicate = _cut(inside, length)
    return (shard, replicate + outside) if kind.endswith("shard") else (replicate, shard + outside)


def _strides(order: list[str], sizes: dict[str, int]) -> dict[str, tuple[int, int]]:
    axes, stride = {}, 1
    for name in order:
        axes[name] = (sizes[name], stride)
        stride *= sizes[name]
    return axes


def _cut(axes: Axes, length: int) -> tuple[Axes, Axes]:
    """The first `length` members of a group's axes, and how often they come."""
    inner: list[tuple[int, int]] = []
    outer: list[tuple[int, int]] = []
    for n, stride in axes:
        taken = min(n, length) if n % min(n, length) == 0 else 1
        length = max(1, length // taken)
        inner.append((taken, stride))
        outer.append((n // taken, stride * taken))
    return tuple(inner), tuple(outer)


def _combined(axes: Axes) -> NDArray[np.int64]:
    total = np.zeros(1, dtype=np.int64)
    for n, stride in axes:
        total = (stride * np.arange(n, dtype=np.int64)[:, None] + total[None, :]).ravel()
    return total
