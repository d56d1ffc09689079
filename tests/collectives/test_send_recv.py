from __future__ import annotations

from commsim.collectives.algorithms.send_recv import SendRecv
from commsim.collectives.collective import Collective
from commsim.collectives.verify import verify


def test_every_rank_sends_one_message_to_the_next() -> None:
    collective = Collective("send_recv", 1024)
    cost = SendRecv().cost(collective, 5, 2)
    assert (cost.rounds, cost.nbytes) == (1, 1024)
    schedule = SendRecv().schedule(collective, 5, 2)
    assert schedule.sent().tolist() == schedule.received().tolist() == [1024] * 5
    assert {(op.source, op.destination) for op in schedule} == {(p, (p + 1) % 5) for p in range(5)}


def test_with_a_root_only_the_root_sends() -> None:
    collective = Collective("send_recv", 1000, ranks=(7, 4), root=4)
    schedule = SendRecv().schedule(collective, 2, 3)
    verify(schedule, collective)
    assert schedule.sent().tolist() == [0, 1000]  # rank 4 is at position 1
    assert SendRecv().cost(collective, 2, 3).nbytes == 1000
