"""NCCL's own tuning constants by version: latencies in us, bandwidths in GB/s.

Source: NVIDIA NCCL, src/graph/tuning.cc of releases v2.18.1-1 to v2.30.7-1
(https://github.com/NVIDIA/nccl); figures only. Each table lists the first release in which a value
holds. These are the numbers NCCL chooses by, not what a collective takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias, TypeVar

from commsim.errors import LibraryError

Version: TypeAlias = tuple[int, int, int]
Triple: TypeAlias = tuple[float, float, float]
T = TypeVar("T")

ALGORITHMS: Final = (
    "tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat",
)  # fmt: skip
PROTOCOLS: Final = ("LL", "LL128", "Simple")
LL, LL128, SIMPLE = range(3)
NVLINK, PCI, NET = range(3)
VOLTA, AMPERE, HOPPER, BLACKWELL = range(4)

# Last patch of every minor release modelled: what "2.27" stands for.
LATEST: Final[dict[int, int]] = {
    18: 6, 19: 4, 20: 5, 21: 5, 22: 3, 23: 4, 24: 3, 25: 1, 26: 6, 27: 7, 28: 9, 29: 7, 30: 7,
}  # fmt: skip
OLDEST: Final[Version] = (2, 18, 1)
NEWEST: Final[Version] = (2, 30, 7)

LOCAL_RANKS_NVLS = 32  # most ranks of a node that all_gather and reduce_scatter on NVLS take
LOCAL_RANKS_DIRECT = 8  # most ranks of a node that CollNetDirect takes
STEPS = 8  # slots of a connection's buffer

# How Tree (and NVLSTree on Blackwell) falls short at middle sizes: one factor a power of two, from
# 64 B.
TREE_CORRECTION: Final = (
    (1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1, 1),
    (1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1, 1),
    (.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9,
     .9),
)  # fmt: skip


def parse_version(text: str) -> Version:
    """(2, 27, 7) from "2.27.7", "2.27" (its last patch) or "2.27.7-1"; else LibraryError."""
    parts = text.strip().removeprefix("v").split("-")[0].split("+")[0].split(".")
    if not 2 <= len(parts) <= 3 or not all(p.isdecimal() for p in parts):
        raise LibraryError(f'library version: expected e.g. "2.27.7", got {text!r}')
    numbers = [int(p) for p in parts]
    if len(numbers) == 2:
        numbers.append(LATEST.get(numbers[1], 0) if numbers[0] == 2 else 0)
    return numbers[0], numbers[1], numbers[2]


def modelled(version: Version) -> Version:
    """The nearest version that the tables cover."""
    return min(max(version, OLDEST), NEWEST)


def since(version: Version, table: tuple[tuple[Version, T], ...]) -> T:
    """The value of the last row whose version is not newer than `version`."""
    return next(value for first, value in reversed(table) if version >= first)


def _flat(value: float) -> Triple:
    return value, value, value


_OLD: Final[Version] = (0, 0, 0)

# {LL, LL128, Simple} in us, paid once.
_BASE_LATENCY: Final[dict[str, tuple[tuple[Version, Triple], ...]]] = {
    "tree": ((_OLD, (6.8, 14.0, 0.0)), ((2, 23, 0), (6.8, 14.0, 8.4))),
    "ring": ((_OLD, (6.6, 14.0, 8.4)),),
    "collnet_direct": ((_OLD, (6.8, 14.0, 0.0)), ((2, 19, 0), _flat(0.0))),
    "collnet_chain": ((_OLD, (6.8, 14.0, 0.0)), ((2, 19, 0), _flat(0.0))),
    "nvls": ((_OLD, (0.0, 0.0, 23.0)), ((2, 19, 0), _flat(0.0))),
    "nvls_tree": ((_OLD, (0.0, 0.0, 23.0)), ((2, 19, 0), _flat(0.0))),
    "pat": ((_OLD, (0.0, 0.0, 8.0)),),
}


def _simple(nvlink: float, pci: float, net: float) -> tuple[Triple, Triple, Triple]:
    return (0.0, 0.0, nvlink), (0.0, 0.0, pci), (0.0, 0.0, net)


def _tree(nvlink: float, pci: float, net: float) -> tuple[Triple, Triple, Triple]:
    return (0.6, 1.25, nvlink), (1.0, 1.9, pci), (5.0, 8.5, net)


# us per hop: [NVLINK, PCI, NET][LL, LL128, Simple].
_HOP_LATENCY: Final[dict[str, tuple[tuple[Version, tuple[Triple, Triple, Triple]], ...]]] = {
    "tree": (
        (_OLD, _tree(28, 28, 28)), ((2, 18, 2), _tree(4, 6, 14)),
        ((2, 19, 0), _tree(28, 28, 28)), ((2, 23, 0), _tree(4, 4, 14)),
    ),
    "ring": ((_OLD, ((0.6, 1.9, 3.4), (1.0, 2.5, 5.7), (2.7, 4.0, 14.0))),),
    "collnet_direct": ((_OLD, _simple(8.0, 8.0, 10.7)), ((2, 19, 0), _simple(3.7, 3.7, 31))),
    "collnet_chain": ((_OLD, _simple(4.75, 8.0, 14)), ((2, 19, 0), _simple(2.8, 2.8, 30))),
    "nvls": (
        (_OLD, _simple(0, 0, 18)), ((2, 19, 0), _simple(23, 0, 18)),
        ((2, 21, 0), _simple(25, 0, 18)),
    ),
    "nvls_tree": (
        (_OLD, _simple(0, 0, 19)), ((2, 19, 0), _simple(23, 0, 14)),
        ((2, 21, 0), _simple(25, 0, 14)), ((2, 28, 8), _simple(25, 0, 20.9)),
    ),
    "pat": ((_OLD, _simple(0, 0, 0)), ((2, 28, 0), _simple(4, 4, 14))),
}  # fmt: skip

# Ceilings by GPU class (rows V, A, H, B) and by one, two or more nodes (columns), GB/s.
_V_LL: Final = (39.0, 39.0, 20.4)
_A_LL: Final = (87.7, 22.5, 19.0)
_H_LL: Final = (141.0, 45.0, 35.0)
_LL_MAX: Final[tuple[tuple[Version, tuple[Triple, Triple, Triple, Triple]], ...]] = (
    (_OLD, (_V_LL, _A_LL, _A_LL, _A_LL)),
    ((2, 21, 0), (_V_LL, _A_LL, _H_LL, _H_LL)),
    ((2, 25, 0), (_V_LL, _A_LL, _H_LL, (282.0, 90.0, 70.0))),
)  # fmt: skip
_EACH_20: Final = _flat(20.0)
_RING_LL128: Final[tuple[tuple[Version, tuple[Triple, Triple, Triple, Triple]], ...]] = (
    (_OLD, (_EACH_20, _EACH_20, _flat(36.7), _flat(36.7))),
    ((2, 25, 0), (_EACH_20, _EACH_20, _flat(36.7), _flat(73.4))),
    ((2, 28, 4), (_EACH_20, _EACH_20, _flat(36.7), (73.4, 34.6, 73.4))),
    ((2, 29, 0), (_EACH_20, _EACH_20, _flat(36.7), (34.5, 34.6, 34.5))),
    ((2, 29, 4), (_EACH_20, _EACH_20, _flat(36.7), _flat(40.0))),
)
_H_TREE_LL128: Final = (36.7, 36.7, 29.0)
_TREE_LL128: Final[tuple[tuple[Version, tuple[Triple, Triple, Triple, Triple]], ...]] = (
    (_OLD, (_EACH_20, _EACH_20, _flat(36.7), _flat(36.7))),
    ((2, 18, 2), (_EACH_20, _EACH_20, _H_TREE_LL128, _H_TREE_LL128)),
    ((2, 25, 0), (_EACH_20, _EACH_20, _H_TREE_LL128, (73.4, 73.4, 58.0))),
    ((2, 28, 0), (_EACH_20, _EACH_20, _H_TREE_LL128, (55.6, 31.67, 20.0))),
)
_V_TREE: Final = (26.5, 18.5, 10.0)
_A_TREE: Final = (24.0, 23.6, 17.8)
_H_TREE: Final = (38.7, 41.4, 36.0)
_TREE: Final[tuple[tuple[Version, tuple[Triple, Triple, Triple, Triple]], ...]] = (
    (_OLD, (_V_TREE, _A_TREE, (38.7, 41.4, 33.0), (38.7, 41.4, 33.0))),
    ((2, 18, 2), (_V_TREE, _A_TREE, _H_TREE, _H_TREE)),
    ((2, 25, 0), (_V_TREE, _A_TREE, _H_TREE, (77.4, 82.8, 72.0))),
    ((2, 28, 0), (_V_TREE, _A_TREE, _H_TREE, (70.0, 42.8, 24.0))),
)
_H_NVLS_TREE: Final = (0.0, 57.7, 45.5)
_NVLS_TREE: Final[tuple[tuple[Version, tuple[Triple, Triple, Triple, Triple]], ...]] = (
    (_OLD, (_V_TREE, _A_TREE, _H_NVLS_TREE, (0.0, 96.0, 43.1))),
    ((2, 28, 8), (_V_TREE, _A_TREE, _H_NVLS_TREE, (0.0, 96.0, 43.8))),
    ((2, 30, 0), (_V_TREE, _A_TREE, _H_NVLS_TREE, (0.0, 96.0, 80.0))),
)
NVLS_EFFICIENCY: Final = (0.0, 0.0, 0.85, 0.74)  # 2.28+, by GPU class


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """The tables of one version; see the module's tables for shapes and units."""

    base_latency: dict[str, Triple]
    hop_latency: dict[str, tuple[Triple, Triple, Triple]]
    ll_max: tuple[Triple, Triple, Triple, Triple]
    ring_ll128: tuple[Triple, Triple, Triple, Triple]
    tree_ll128: tuple[Triple, Triple, Triple, Triple]
    tree: tuple[Triple, Triple, Triple, Triple]
    nvls_tree: tuple[Triple, Triple, Triple, Triple]


@lru_cache(maxsize=64)
def constants(version: Version) -> Constants:
    """Every constant of one release."""
    return Constants(
        base_latency={a: since(version, t) for a, t in _BASE_LATENCY.items()},
        hop_latency={a: since(version, t) for a, t in _HOP_LATENCY.items()},
        ll_max=since(version, _LL_MAX),
        ring_ll128=since(version, _RING_LL128),
        tree_ll128=since(version, _TREE_LL128),
        tree=since(version, _TREE),
        nvls_tree=since(version, _NVLS_TREE),
    )


def tree_bandwidth_per_channel(capability: int, nodes: int, version: Version = NEWEST) -> float:
    """GB/s that NCCL grants one searched channel of a tree."""
    return constants(version).tree[gpu_class(capability, version)][min(nodes, 3) - 1]


def gpu_class(capability: int, version: Version) -> int:
    """Row of the tables for a compute capability x 10; Blackwell counts as Hopper before 2.25."""
    if capability >= 100 and version >= (2, 25, 0):
        return BLACKWELL
    return HOPPER if capability >= 90 else AMPERE if capability >= 80 else VOLTA
