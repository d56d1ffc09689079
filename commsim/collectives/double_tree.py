"""NCCL's double binary tree: two trees over the same nodes, each node inner in at most one of them.

Data cut in two halves, one per tree, so leaves no node idle. Sources: Sanders, Speck and Träff,
"Two-tree algorithms for full bandwidth broadcast, reduction and scan", Parallel Computing 35(12),
2009, doi:10.1016/j.parco.2009.09.001; Jeaugey, "Massively scale your deep learning training with
NCCL 2.4", NVIDIA developer blog, 2019, whose shapes these are.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True, kw_only=True)
class BinaryNode:
    """A node's place in a binary tree over nodes. second: it is its parent's second child."""

    up: int
    down: tuple[int, int]
    second: bool


@lru_cache(maxsize=4096)
def binary_tree(nodes: int, node: int) -> BinaryNode:
    """A node's parent and children (-1: none) in the first tree."""
    bit = 1
    while bit < nodes and not node & bit:
        bit <<= 1
    if node == 0:
        return BinaryNode(up=-1, down=(-1, bit >> 1 if nodes > 1 else -1), second=False)
    up = (node ^ bit) | (bit << 1)
    if up >= nodes:
        up = node ^ bit
    second = node > up
    low = bit >> 1
    first = node - low if low else -1
    while low and node + low >= nodes:
        low >>= 1
    return BinaryNode(up=up, down=(first, node + low if low else -1), second=second)


def double_tree(nodes: int, node: int) -> tuple[BinaryNode, BinaryNode]:
    """A node's places in both trees: the second is the first mirrored (even) or shifted by one
    (odd).
    """
    first = binary_tree(nodes, node)
    if nodes % 2 == 0:
        other = binary_tree(nodes, nodes - 1 - node)

        def back(v: int) -> int:
            return -1 if v < 0 else nodes - 1 - v
    else:
        other = binary_tree(nodes, (node - 1) % nodes)

        def back(v: int) -> int:
            return -1 if v < 0 else (v + 1) % nodes

    down = (back(other.down[0]), back(other.down[1]))
    return first, BinaryNode(up=back(other.up), down=down, second=other.second)
