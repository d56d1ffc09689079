"""Trees of any shape, one per channel, and the places in which a connection holds pieces."""

from __future__ import annotations

import numpy as np
import pytest

from commsim.collectives.chunks import cut
from commsim.collectives.collective import Collective
from commsim.collectives.trees import depths, tree_schedule
from commsim.collectives.verify import verify
from commsim.engine import compiled
from commsim.engine.ideal import Pairs
from commsim.engine.network import lay
from commsim.engine.plan import make_plan, punctual
from commsim.errors import ScheduleError

STAR = (-1, 0, 0, 0, 0, 0)
CHAIN = (1, 2, 3, 4, 5, -1)
# Two nodes of three as NCCL has them: the first rank of a node holds all links out of it.
NODES = (-1, 0, 1, 0, 3, 4)


@pytest.mark.parametrize("slots", [None, 1, 2, 3])
@pytest.mark.parametrize("operation", ["all_reduce", "barrier"])
def test_each_channel_has_its_own_tree(operation: str, slots: int | None) -> None:
    collective = Collective(operation, 1000)
    parents = np.array([STAR, CHAIN, NODES])
    schedule = tree_schedule(cut(collective, 6, 3 * 4), parents, slots)
    verify(schedule, collective)
    for op in schedule:
        up, down = parents[op.channel, op.source], parents[op.channel, op.destination]
        assert (up == op.destination) if op.reduces else (down == op.source)
        assert all(schedule[w].round < op.round for w in op.waits)
    assert len(schedule) == 3 * 4 * 2 * 5  # channels, pieces, up and down, edges


@pytest.mark.parametrize("operation", ["broadcast", "reduce"])
def test_one_way_only(operation: str) -> None:
    collective = Collective(operation, 1000, root=5)
    schedule = tree_schedule(cut(collective, 6, 4), np.array([CHAIN]), 2)
    verify(schedule, collective)
    assert len(schedule) == 4 * 5


def test_copies_go_down_while_later_pieces_are_summed() -> None:
    schedule = tree_schedule(cut(Collective("all_reduce", 8), 3, 2), np.array([[1, -1, 1]]))
    sums, copies = ([op for op in schedule if op.reduces is up] for up in (True, False))
    first = [op.index for op in sums if op.pieces[0].source_place == 0]
    assert [op.waits for op in copies[:2]] == [tuple(first)] * 2
    # The sums of the second piece wait for no copy, only for their ranks' own first sums.
    assert [op.waits for op in sums[2:]] == [(i,) for i in first]


@pytest.mark.parametrize(
    ("slots", "pieces_sent", "latencies"),
    # 0 to 1 to 2 in two pieces. Alone, the second follows at once: 3 pieces pass one after the
    # other. With one slot it sets out when the first has reached rank 2: 4 pieces, 4 latencies.
    [(None, 3, 2), (2, 3, 2), (1, 4, 4)],
)
def test_slots_hold_a_sender_back(slots: int | None, pieces_sent: int, latencies: int) -> None:
    collective = Collective("broadcast", 2000)
    schedule = tree_schedule(cut(collective, 3, 2), np.array([[-1, 0, 1]]), slots)
    network = Pairs(vertices=3, bandwidth=1e9, latency=3e-6)
    times = compiled.play(make_plan([punctual(lay(schedule, network))], network.capacity))
    assert times.arrived.max() == pytest.approx(pieces_sent * 1e-6 + latencies * 3e-6, rel=1e-9)


def test_depths_and_what_is_no_tree() -> None:
    assert depths(np.array([STAR, CHAIN, NODES])).tolist() == [
        [0, 1, 1, 1, 1, 1],
        [5, 4, 3, 2, 1, 0],
        [0, 1, 2, 1, 2, 3],
    ]
    with pytest.raises(ScheduleError, match="channel 1"):
        depths(np.array([[-1, 0, 1], [-1, 2, 1]]))  # a circle
    with pytest.raises(ScheduleError, match="one root"):
        depths(np.array([[-1, -1, 1]]))
    with pytest.raises(ScheduleError, match="3 pieces, 2 channels"):
        tree_schedule(cut(Collective("barrier"), 3, 3), np.array([[-1, 0, 1]] * 2))
