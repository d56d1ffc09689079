"""Which op is certain to come before which, against a clock on the wall."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commsim.collectives import order
from commsim.collectives.builder import NONE, Builder
from commsim.collectives.chunks import cut
from commsim.collectives.collective import Collective
from commsim.collectives.order import levels, unordered
from commsim.collectives.schedule import Op

VERTICES = 3


def connection(op: Op) -> tuple[int, int, int]:
    return op.source, op.destination, op.channel


def times_if_slow(ops: list[Op], slow: int) -> tuple[list[int], list[int], list[int]]:
    """When each op begins, is sent and arrives, if one takes very long, its connection has a long
    latency, and everything else takes hardly any time.

    One latency is longer than all other ops take without any, and the slow one takes longer to be
    sent than they do with a latency each.
    """
    latency = len(ops) + 1
    sending = (latency + 1) * latency
    begun, sent, arrived = [0] * len(ops), [0] * len(ops), [0] * len(ops)
    for i, op in enumerate(ops):
        done = [sent[w] if ops[w].source == op.source else arrived[w] for w in op.waits]
        begun[i] = max(done, default=0)
        sent[i] = arrived[i] = begun[i] + (sending if i == slow else 1)
        if op.source != op.destination and connection(op) == connection(ops[slow]):
            arrived[i] += latency
    return begun, sent, arrived


@pytest.mark.parametrize("cells", [1 << 25, 1])
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_ordered_is_what_no_slowness_can_turn_round(cells: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 24), "ops")
    builder = Builder(cut(Collective("barrier"), VERTICES))
    end = st.integers(0, VERTICES - 1)
    for op in range(count):
        waits = data.draw(st.lists(st.integers(max(NONE, op - 4), op - 1), max_size=3), "waits")
        source, destination, channel = data.draw(st.tuples(end, end, st.integers(0, 1)), "way")
        builder.append(source, destination, 0, length=0, after=waits, channel=channel)
    schedule = builder.build()
    first, second = (a.ravel() for a in np.indices((count, count)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(order, "CELLS", cells)  # 1: a column of the clocks at a time
        maybe_late = unordered(schedule, levels(schedule), first, second)
        maybe_unsent = unordered(schedule, levels(schedule), first, second, sent=True)
    ops, late, unsent = list(schedule), [], []
    for x in range(count):
        begun, sent, arrived = times_if_slow(ops, x)
        for y in range(count):
            same = connection(ops[x]) == connection(ops[y])
            unsent.append(begun[y] < sent[x])
            late.append((arrived[y] if same and x != y else begun[y]) < arrived[x])
    assert maybe_unsent.tolist() == unsent
    assert maybe_late.tolist() == late
