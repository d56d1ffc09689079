"""Rings over a mesh of xGMI links: the channels of RCCL on AMD machines, GB/s per ring.

RCCL knows common machines by heart instead of searching. Here the rings are found: directed cycles
through all GPUs of a group, no link used in one direction by more cycles than it has wires. Eight
fully meshed GPUs hold seven of them, which then use every link both ways. Over several machines a
ring leaves each after the last GPU, so that eight chains fit on the same links, one from each GPU.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from commsim.topology.node import NodeTopology

# RCCL counts 36 GB/s for a 50 GB/s link of MI200 and 48 for a 64 GB/s link of MI300
# (https://github.com/ROCm/rccl, src/graph/topo.h): about three quarters.
LINK_SHARE: Final = 0.75
_BUDGET: Final = 20_000  # steps of the search

Wires = dict[tuple[int, int], int]


def wires(node: NodeTopology, gpus: tuple[int, ...]) -> tuple[Wires, float]:
    """Links between each ordered pair of these GPUs (by place in the group), and GB/s of one."""
    place = {node.gpus[g].name: i for i, g in enumerate(gpus)}
    found: Wires = {}
    rate = 0.0
    for link in node.links:
        if link.kind in ("xgmi", "nvlink") and link.source in place and link.target in place:
            a, b = place[link.source], place[link.target]
            for pair in ((a, b), (b, a)):
                found[pair] = found.get(pair, 0) + link.width
            rate = max(rate, link.bandwidth / link.width / 1e9)
    return found, rate


@lru_cache(maxsize=256)
def rings(node: NodeTopology, gpus: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Edge-disjoint directed rings through places 0 .. n-1 of the group; one in order of number
    where links do not close any."""
    n = len(gpus)
    if n == 1:
        return ((0,),)
    free, _ = wires(node, gpus)
    if n == 2:
        return ((0, 1),) * max(1, free.get((0, 1), 0))
    best = _disjoint(n, free)
    return best or (tuple(range(n)),)


@lru_cache(maxsize=256)
def chains(
    node: NodeTopology, gpus: tuple[int, ...], starts: tuple[int, ...]
) -> tuple[tuple[int, ...], ...]:
    """A chain through all places of the group from each of `starts`, no link used in one direction
    by more of them than it has wires; none where a bounded search does not find all.

    Tried first is the zigzag s, s + 1, s - 1, s + 2, ... by which a full mesh of an even number of
    GPUs falls into chains (Walecki; Alspach, "The wonderful Walecki construction", Bulletin of the
    ICA 52, 2008).
    """
    n = len(gpus)
    free, _ = wires(node, gpus)
    steps = 0
    found: list[tuple[int, ...]] = []

    def extend(path: list[int]) -> bool:
        nonlocal steps
        steps += 1
        if steps > _BUDGET:
            return False
        if len(path) == n:
            found.append(tuple(path))
            if len(found) == len(starts) or extend([starts[len(found)]]):
                return True
            found.pop()
            return False
        here, turn = path[-1], (len(path) + 1) // 2 * (1 if len(path) % 2 else -1)
        first = (path[0] + turn) % n
        for v in sorted(set(range(n)) - set(path), key=lambda v: (v != first, v)):
            if free.get((here, v)):
                free[here, v] -= 1
                if extend([*path, v]):
                    return True
                free[here, v] += 1
        return False

    return tuple(found) if extend([starts[0]]) else ()


def _disjoint(n: int, free: Wires) -> tuple[tuple[int, ...], ...]:
    """As many arc-disjoint Hamiltonian cycles as a bounded search finds, in a fixed order."""
    most = min((sum(w for (a, _), w in free.items() if a == v) for v in range(n)), default=0)
    steps = 0
    best: tuple[tuple[int, ...], ...] = ()

    def extend(path: list[int], done: tuple[tuple[int, ...], ...]) -> bool:
        nonlocal steps, best
        steps += 1
        if steps > _BUDGET:
            return True
        here = path[-1]
        if len(path) == n:
            if not free.get((here, path[0])):
                return False
            free[here, path[0]] -= 1
            ring = (*done, tuple(path))
            if len(ring) > len(best):
                best = ring
            if len(best) == most or extend([0], ring):
                return True
            free[here, path[0]] += 1
            return False
        choices = [v for v in range(n) if v not in path and free.get((here, v))]
        for v in sorted(choices, key=lambda v: (-free[here, v], v)):
            free[here, v] -= 1
            if extend([*path, v], done):
                return True
            free[here, v] += 1
        return False

    extend([0], ())
    return best
