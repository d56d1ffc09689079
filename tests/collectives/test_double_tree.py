"""The double binary tree against NCCL's own, and the law that makes it worth having."""

from __future__ import annotations

import pytest

from commsim.collectives.double_tree import double_tree
from tests.libraries.nccl.machines import computed


def test_double_trees_are_nccls() -> None:
    for row in computed("nccl_double_trees.csv"):
        nodes = int(row["nodes"])
        for node, text in enumerate(row["places"].split()):
            numbers = list(map(int, text.split(":")))
            for tree, expected in zip(
                double_tree(nodes, node), (numbers[:4], numbers[4:]), strict=True
            ):
                kind = int(tree.second) if tree.up >= 0 else -1
                assert [tree.up, *tree.down, kind] == expected, (nodes, node)


@pytest.mark.parametrize("nodes", [1, 2, 3, 5, 8, 13, 100])
def test_every_node_is_a_leaf_in_one_of_the_two_trees(nodes: int) -> None:
    for node in range(nodes):
        first, second = double_tree(nodes, node)
        inner = [max(t.down) >= 0 and t.up >= 0 for t in (first, second)]
        assert sum(inner) <= 1
    for side in (0, 1):
        places = [double_tree(nodes, n)[side] for n in range(nodes)]
        assert sum(p.up < 0 for p in places) == 1
        for node, place in enumerate(places):
            for child in place.down:
                assert child < 0 or places[child].up == node
