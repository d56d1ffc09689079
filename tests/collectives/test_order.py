"""Which op is certain to come before which, against every chain of waits followed one by one."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from commsim.collectives.builder import NONE, Builder
from commsim.collectives.chunks import cut
from commsim.collectives.collective import Collective
from commsim.collectives.order import levels, unordered


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_an_op_comes_before_another_if_a_chain_of_waits_joins_them(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 30), "ops")
    builder = Builder(cut(Collective("barrier"), 2))
    before: list[set[int]] = []
    for op in range(count):
        waits = data.draw(st.lists(st.integers(max(NONE, op - 4), op - 1), max_size=3), "waits")
        builder.append(0, 0, 0, length=0, after=waits)
        real = [w for w in waits if w >= 0]
        before.append(set(real).union(*(before[w] for w in real)))
    schedule = builder.build()
    first, second = (a.ravel() for a in np.indices((count, count)))
    found = unordered(schedule, levels(schedule), first, second)
    expected = [a not in before[b] for a, b in zip(first.tolist(), second.tolist(), strict=True)]
    assert found.tolist() == expected
