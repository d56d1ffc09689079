from __future__ import annotations

from itertools import pairwise

import pytest

from commsim.collectives.algorithms.chain import Chain
from commsim.collectives.collective import Collective
from commsim.collectives.verify import verify


@pytest.mark.parametrize("operation", ["broadcast", "reduce"])
def test_rounds_and_bytes_on_eight_ranks(operation: str) -> None:
    collective = Collective(operation, 1 << 10, root=3)
    cost = Chain(pieces=16).cost(collective, 8)
    assert (cost.rounds, cost.nbytes) == (7, 22 * 64)  # 7 hops; 16 pieces and 6 more to pass
    schedule = Chain(pieces=16).schedule(collective, 8)
    moved = schedule.sent() if operation == "broadcast" else schedule.received()
    assert sorted(moved) == [0] + [1024] * 7  # every rank but the last passes it all on
    assert int(schedule.sent()[3]) == (1024 if operation == "broadcast" else 0)


@pytest.mark.parametrize("operation", ["broadcast", "reduce"])
def test_a_piece_waits_for_a_slot(operation: str) -> None:
    collective = Collective(operation, 1 << 10, root=1)
    chain = Chain(pieces=5, slots=2)
    schedule = chain.schedule(collective, 4)
    verify(schedule, collective)
    assert not chain.cost(collective, 4).exact
    hop = {(op.source, op.pieces[0].source_place): op for op in schedule}
    onward = (1, 2, 3, 0) if operation == "broadcast" else (0, 3, 2, 1)
    for near, far in pairwise(onward[:3]):  # the last rank keeps its pieces
        for piece in range(2, 5):
            assert hop[far, piece - 2].index in hop[near, piece].waits
