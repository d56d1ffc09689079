from __future__ import annotations

import pytest

from commsim.collectives.algorithms.binomial_tree import BinomialTree
from commsim.collectives.collective import Collective


@pytest.mark.parametrize(
    ("operation", "n", "rounds", "nbytes"),
    # lg n buffers of 720 B one after the other, or all blocks but the root's own (Thakur et al.
    # 2005). Of 9 ranks the ninth is the root's fourth child, but nobody is more than 3 hops away.
    [
        ("broadcast", 8, 3, 3 * 720),
        ("broadcast", 9, 3, 4 * 720),
        ("reduce", 8, 3, 3 * 720),
        ("reduce", 9, 4, 4 * 720),
        ("all_reduce", 9, 7, 8 * 720),
        ("gather", 8, 3, 7 * 90),
        ("scatter", 9, 3, 8 * 80),
        ("gather", 9, 4, 8 * 80),
    ],
)
def test_rounds_and_bytes(operation: str, n: int, rounds: int, nbytes: int) -> None:
    collective = Collective(operation, 720, dtype="uint8")
    cost = BinomialTree().cost(collective, n)
    assert (cost.rounds, cost.nbytes) == (rounds, nbytes)


@pytest.mark.parametrize(("operation", "blocks"), [("broadcast", 3 * 8), ("scatter", 7)])
def test_what_leaves_the_root_and_what_moves_in_all(operation: str, blocks: int) -> None:
    for root in range(8):
        schedule = BinomialTree().schedule(Collective(operation, 1024, root=root), 8)
        assert schedule.sent()[root] == blocks * 128
        # A broadcast reaches 7 ranks; a block crosses as many links as its rank has one bits, which
        # is 12 for the numbers from 0 to 7.
        assert schedule.sent().sum() == (7 * 1024 if operation == "broadcast" else 12 * 128)


def test_the_tree_of_six_ranks_from_root_two() -> None:
    schedule = BinomialTree().schedule(Collective("gather", 6, dtype="uint8", root=2), 6)
    # Counted from the root the ranks are 2 3 4 5 0 1, and their parents - 0 0 2 0 4.
    assert [(op.source, op.destination, op.nbytes) for op in schedule] == [
        (3, 2, 1),
        (5, 4, 1),
        (1, 0, 1),
        (4, 2, 2),
        (0, 2, 2),
    ]
