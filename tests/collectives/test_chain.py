from __future__ import annotations

import pytest

from commsim.collectives.algorithms.chain import Chain
from commsim.collectives.collective import Collective


@pytest.mark.parametrize("operation", ["broadcast", "reduce"])
def test_rounds_and_bytes_on_eight_ranks(operation: str) -> None:
    collective = Collective(operation, 1 << 10, root=3)
    cost = Chain(pieces=16).cost(collective, 8)
    assert (cost.rounds, cost.nbytes) == (22, 22 * 64)  # n - 2 + k rounds of 1/k of the buffer
    schedule = Chain(pieces=16).schedule(collective, 8)
    moved = schedule.sent() if operation == "broadcast" else schedule.received()
    assert sorted(moved) == [0] + [1024] * 7  # every rank but the last passes it all on
    assert int(schedule.sent()[3]) == (1024 if operation == "broadcast" else 0)
