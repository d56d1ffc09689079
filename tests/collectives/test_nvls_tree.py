from __future__ import annotations

import pytest

from commsim.collectives.algorithms.nvls import Nvls
from commsim.collectives.algorithms.nvls_tree import NvlsTree
from commsim.collectives.collective import Collective
from commsim.collectives.verify import verify

# NCCL's double binary tree on four nodes: 0 above 2 above 1 and 3; mirrored, 3 above 1 above 2, 0.
EDGES = {(0, 2), (2, 1), (2, 3), (3, 1), (1, 2), (1, 0)}


@pytest.mark.parametrize(
    ("pieces", "nbytes"),
    # S = 1024 on four nodes of 8: twice S + S/8 at the switches, S/8 on each of 4 tree hops; other
    # pieces are as long on the busiest port, S + S/8 + 2 S/8.
    [(1, 2 * 1152 + 4 * 128), (4, (2 * 1152 + 4 * 128 + 3 * (1152 + 2 * 128)) / 4)],
)
def test_rounds_and_bytes_on_four_nodes(pieces: int, nbytes: float) -> None:
    cost = NvlsTree(pieces=pieces).cost(Collective("all_reduce", 1024), 32)
    assert (cost.rounds, cost.nbytes, cost.exact) == (2 + 4, nbytes, False)


def test_what_goes_where_on_four_nodes() -> None:
    collective = Collective("all_reduce", 1024)
    schedule = NvlsTree(pieces=2).schedule(collective, 32, 2)
    verify(schedule, collective)
    assert schedule.switches == 4
    edges = set()
    for op in schedule:
        if max(op.source, op.destination) < 32 and op.source != op.destination:
            assert op.source % 8 == op.destination % 8  # on its rail
            edges.add((op.source // 8, op.destination // 8))
        elif op.source < 32 and op.source != op.destination:
            assert op.destination == 32 + op.source // 8  # the switch of its node
    assert edges == EDGES | {(b, a) for a, b in EDGES}
    # S and S/8 to the switch; over both trees nodes 1 and 2 have two parents and two children,
    # nodes 0 and 3 are a root with one child, and a leaf. Each time an eighth's half.
    trees = [128] * 8 + [256] * 16 + [128] * 8
    assert schedule.sent()[:32].tolist() == [1152 + tree for tree in trees]
    assert schedule.received()[:32].tolist() == [1152 + tree for tree in trees]


def test_one_node_is_nvls() -> None:
    collective = Collective("all_reduce", 1024)
    cost, nvls = (each.cost(collective, 8) for each in (NvlsTree(pieces=4), Nvls(pieces=4)))
    assert (cost.rounds, cost.nbytes) == (nvls.rounds, nvls.nbytes) == (2, 5 / 4 * 1152)
    schedule = NvlsTree(pieces=4).schedule(collective, 8)
    assert schedule.sent().tolist() == Nvls().schedule(collective, 8).sent().tolist()


def test_ranks_alone_on_their_node_form_trees() -> None:
    collective = Collective("all_reduce", 88)
    schedule = NvlsTree(pieces=1).schedule(collective, 11)
    assert (schedule.switches, len(schedule)) == (0, 2 * 2 * 10)  # up and down, both trees
    assert set(schedule.channel) == {0}
    # Tree 0 of 11: 0 above 8 above 4 and 10, 4 above 2 and 6, 2 above 1 and 3; 4 hops deep.
    assert NvlsTree().cost(collective, 11).rounds == 8
