from __future__ import annotations

import pytest

from commsim.collectives.algorithms.collnet import CollNet
from commsim.collectives.collective import Collective
from commsim.collectives.verify import verify


@pytest.mark.parametrize(
    ("operation", "pieces", "rounds", "nbytes"),
    [
        # Three nodes of 8, 3072 B: 7/8 out and 7/8 back in the node; an eighth up and down again.
        ("all_reduce", 1, 3, 2 * 2688 + 2 * 384),
        ("all_reduce", 4, 3, 2 * 2688 + 5 / 4 * 384),
        # Half of that: a rank's own block is a 24th.
        ("reduce_scatter", 4, 2, 2688 + 384 + 128 / 4),
        ("all_gather", 1, 2, 128 + 384 + 2688),
    ],
)
def test_rounds_and_bytes_of_three_nodes(
    operation: str, pieces: int, rounds: int, nbytes: float
) -> None:
    collective = Collective(operation, 3072)
    cost = CollNet(pieces=pieces).cost(collective, 24)
    assert (cost.rounds, cost.nbytes, cost.exact) == (rounds, nbytes, pieces == 1)


def test_the_network_carries_each_share_once_each_way() -> None:
    collective = Collective("all_reduce", 3072)
    schedule = CollNet(pieces=3).schedule(collective, 24, 2)
    verify(schedule, collective)
    assert schedule.switches == 8  # one for each rail
    up, down = [0] * 24, [0] * 24
    for op in schedule:
        if op.source < 24 <= op.destination:
            up[op.source] += op.nbytes
            assert op.destination == 24 + op.source % 8
            assert op.reduces
        elif op.destination < 24 <= op.source:
            down[op.destination] += op.nbytes
        else:
            assert op.source // 8 == op.destination // 8
    assert up == down == [384] * 24


def test_ranks_alone_on_their_node_send_everything_to_the_switch() -> None:
    collective = Collective("all_reduce", 1104)
    schedule = CollNet(pieces=1).schedule(collective, 11)
    assert schedule.sent().tolist() == [1104] * 11 + [11 * 1104]
    cost = CollNet(pieces=2).cost(collective, 11)
    assert (cost.rounds, cost.nbytes, cost.exact) == (1, 1.5 * 1104, True)


def test_one_node_needs_no_switch() -> None:
    collective = Collective("all_reduce", 1024)
    assert CollNet().schedule(collective, 8).switches == 0
    cost = CollNet().cost(collective, 8)
    assert (cost.rounds, cost.nbytes) == (2, 2 * 896)
