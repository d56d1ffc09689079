"""A PCIe tree from pairwise distances, as `nvidia-smi topo -m` prints them.

Each distance says which box two devices share at the least: one switch (PIX), a tree of switches
(PXB), a host bridge (PHB), a NUMA node (NODE), or only the machine (SYS). "Shares such a box" is
transitive, so the distances form an ultrametric and its balls are the boxes (single-linkage
clustering). NVLink hides the distance of two GPUs; it then follows from the other pairs, or from
their NUMA nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

PIX, PXB, PHB, NODE, SYS = range(1, 6)
WORDS = {PIX: "PIX", PXB: "PXB", PHB: "PHB", NODE: "NODE", SYS: "SYS"}

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """Devices 0 .. n-1 and what they hang from. numa: of each device, an index into the CPUs.

    switches: for each switch, the switch above it (None: the CPU). parent: for each device, its
    switch or None. switch_numa: the CPU of each switch.
    """

    numa: tuple[int, ...]
    parent: tuple[int | None, ...]
    switches: tuple[int | None, ...]
    switch_numa: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contradiction:
    """A pair farther apart than other pairs allow. nearest: what joins the two by way of others."""

    pair: Pair
    found: int
    nearest: int


def contradictions(n: int, known: Mapping[Pair, int]) -> tuple[Contradiction, ...]:
    """Pairs that lie in one box by other pairs but claim to share only a larger one.

    PIX against PXB is let pass: drivers differ on bridges inside a card.
    """
    found = []
    for level in (PXB, PHB, NODE):
        box = boxes(n, known, level)
        for pair, distance in sorted(known.items()):
            if distance > level and box[pair[0]] == box[pair[1]]:
                found.append(Contradiction(pair=pair, found=distance, nearest=level))
    return tuple(found)


def boxes(n: int, known: Mapping[Pair, int], level: int) -> tuple[int, ...]:
    """For each device the first device of its box; a box joins what is at most `level` apart."""
    first = list(range(n))

    def find(i: int) -> int:
        while first[i] != i:
            first[i] = first[first[i]]
            i = first[i]
        return i

    for (a, b), distance in known.items():
        if distance <= level:
            a, b = sorted((find(a), find(b)))
            first[b] = a
    return tuple(find(i) for i in range(n))


def tree(n: int, known: Mapping[Pair, int], same_numa: Callable[[int, int], bool]) -> Tree:
    """The smallest tree with these distances; known ones must not contradict each other.

    same_numa: whether two devices of unknown distance are of one NUMA node. Devices of one NUMA
    node without a switch in common hang from the CPU by themselves. A device PXB away from the rest
    of its box gets a switch of its own, so that two switches lie between.
    """
    numa_box = _numa_boxes(n, known, same_numa)
    cpu_of = {box: i for i, box in enumerate(dict.fromkeys(numa_box))}
    outer, inner = boxes(n, known, PXB), boxes(n, known, PIX)
    parent: list[int | None] = [None] * n
    switches: list[int | None] = []
    switch_numa: list[int] = []

    def add(above: int | None, device: int) -> int:
        switches.append(above)
        switch_numa.append(cpu_of[numa_box[device]])
        return len(switches) - 1

    for box in dict.fromkeys(outer):
        members = [d for d in range(n) if outer[d] == box]
        leaves = dict.fromkeys(inner[d] for d in members)
        if len(members) == 1:
            continue
        root = add(None, box)
        for leaf in leaves:
            switch = root if len(leaves) == 1 else add(root, leaf)
            for device in members:
                if inner[device] == leaf:
                    parent[device] = switch
    return Tree(
        numa=tuple(cpu_of[box] for box in numa_box),
        parent=tuple(parent),
        switches=tuple(switches),
        switch_numa=tuple(switch_numa),
    )


def _numa_boxes(
    n: int, known: Mapping[Pair, int], same_numa: Callable[[int, int], bool]
) -> tuple[int, ...]:
    """Boxes of NUMA nodes: known distances first, then `same_numa`, never across a known SYS."""
    box = list(boxes(n, known, NODE))
    members = {first: [d for d in range(n) if box[d] == first] for first in box}
    apart = {frozenset(pair) for pair, distance in known.items() if distance == SYS}
    for a in range(n):
        for b in range(a + 1, n):
            ours, theirs = box[a], box[b]
            if ours == theirs or (a, b) in known or not same_numa(a, b):
                continue
            if any(frozenset((x, y)) in apart for x in members[ours] for y in members[theirs]):
                continue
            for device in members.pop(theirs):
                box[device] = ours
                members[ours].append(device)
    return tuple(box)
