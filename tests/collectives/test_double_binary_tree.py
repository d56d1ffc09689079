from __future__ import annotations

import pytest

from commsim.collectives.algorithms.double_binary_tree import DoubleBinaryTree
from commsim.collectives.collective import Collective
from commsim.collectives.verify import verify
from commsim.engine import compiled
from commsim.engine.ideal import Pairs
from commsim.engine.network import lay
from commsim.engine.plan import make_plan, punctual


def test_every_rank_sends_and_receives_twice_the_buffer() -> None:
    # Half of it down to each of two children, a half up; and a half up as the other tree's leaf.
    # The two roots, 0 and 7, have one child and no parent.
    schedule = DoubleBinaryTree().schedule(Collective("all_reduce", 1024), 8, 2)
    once_twice = [1024] + [2048] * 6 + [1024]
    assert schedule.sent().tolist() == schedule.received().tolist() == once_twice


def test_the_first_tree_is_nccls() -> None:
    schedule = DoubleBinaryTree(pieces=1).schedule(Collective("all_reduce", 1024), 8)
    up = {(op.source, op.destination) for op in schedule if op.reduces}
    assert up == {(4, 0), (2, 4), (6, 4), (1, 2), (3, 2), (5, 6), (7, 6)}


@pytest.mark.parametrize(
    ("operation", "rounds", "eighths"),
    # Trees of 3 hops, each with half of the buffer in 4 pieces: up and down 6 pieces deep and 3
    # more behind. A root stands a hop above trees of 7 ranks: 4 pieces deep, and 3 behind.
    [("all_reduce", 6, 9), ("broadcast", 4, 7), ("reduce", 4, 7)],
)
def test_rounds_and_bytes_on_eight_ranks(operation: str, rounds: int, eighths: int) -> None:
    collective = Collective(operation, 1024)
    cost = DoubleBinaryTree().cost(collective, 8, 2)
    assert (cost.rounds, cost.nbytes) == (rounds, eighths * 128)
    # In all_reduce the copies into a leaf start when its sums have left, so nothing meets.
    schedule = DoubleBinaryTree().schedule(collective, 8, 2)
    network = Pairs(vertices=8, bandwidth=1e9, latency=1e-6)
    times = compiled.play(make_plan([punctual(lay(schedule, network))], network.capacity))
    assert times.arrived.max() == pytest.approx(cost.duration(1e-6, 1e9), rel=1e-9)


@pytest.mark.parametrize("root", range(5))
def test_a_root_feeds_both_trees_with_half_the_buffer(root: int) -> None:
    collective = Collective("broadcast", 1024, root=root)
    schedule = DoubleBinaryTree().schedule(collective, 5, 2)
    assert schedule.sent()[root] == 1024
    assert schedule.received().tolist() == [0 if rank == root else 1024 for rank in range(5)]
    assert max(schedule.sent()) == 1024  # two children of one tree, none of the other


@pytest.mark.parametrize("operation", ["all_reduce", "broadcast", "reduce"])
@pytest.mark.parametrize("slots", [1, 2, 8])
def test_slots(operation: str, slots: int) -> None:
    tree = DoubleBinaryTree(pieces=9, slots=slots)
    collective = Collective(operation, 1000)
    verify(tree.schedule(collective, 11, 2), collective)
    assert not tree.cost(collective, 11, 2).exact
