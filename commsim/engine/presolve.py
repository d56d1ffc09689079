"""Which links of a plan can ever be full: the others need no sharing."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from commsim.collectives.chunks import Ints
from commsim.engine.compilation import compiled, read_only
from commsim.engine.network import Floats
from commsim.engine.plan import Plan

Shorts = NDArray[np.int32]
SLACK = 1 + 1e-9


def binding(plan: Plan) -> NDArray[np.bool_]:
    """Per link, whether the flows over it could ask for more than it carries.

    What enters through a way's first link is at most that link's capacity; so a link whose first
    links (or, likewise, last links) together bring no more than it carries never binds: a spine of
    a fabric that blocks nothing. First links are always kept, and last ones left out only because
    of first ones, so nothing is left out because of another that is left out itself.
    """
    most, least = plan.capacity.copy(), plan.capacity.copy()
    for change in plan.changes:
        most[change.link] = max(most[change.link], change.capacity)
        least[change.link] = min(least[change.link], change.capacity)
    used = np.flatnonzero(np.diff(plan.way_start))
    first, last = plan.way_start[used], plan.way_start[used + 1] - 1
    by_first = _brought(plan, used, first, most)
    by_last = _brought(plan, used, last, most)
    by_last[plan.crossing[last]] = np.inf  # a link says nothing about itself
    by_first[plan.crossing[first]] = by_last[plan.crossing[first]] = np.inf
    return np.asarray((np.minimum(by_first, by_last) > least * SLACK) & np.isfinite(least))


def _brought(plan: Plan, ways: Ints, end: Ints, most: Floats) -> Floats:
    """Per link, the most bytes/s that can come over it, by the first or last links of the ways."""
    order = np.argsort(plan.crossing[end], kind="stable")
    total, share = np.zeros(len(most)), np.zeros(len(most))
    touched = np.empty(len(most), dtype=np.int64)
    _sum_by_end(
        read_only(plan.crossing),
        read_only(plan.weight),
        read_only(plan.way_start),
        ways[order],
        end[order],
        most,
        total,
        share,
        touched,
    )
    return total


@compiled
def _sum_by_end(
    crossing: Shorts,
    weight: Floats,
    way_start: Ints,
    ways: Ints,
    end: Ints,
    most: Floats,
    total: Floats,
    share: Floats,
    touched: Ints,
) -> None:
    count = 0
    for i in range(len(ways)):
        at = crossing[end[i]]
        for j in range(way_start[ways[i]], way_start[ways[i] + 1]):
            link = crossing[j]
            if share[link] == 0.0:
                touched[count] = link
                count += 1
            share[link] = max(share[link], weight[j] / weight[end[i]])
        if i + 1 == len(ways) or crossing[end[i + 1]] != at:
            for k in range(count):
                total[touched[k]] += most[at] * share[touched[k]]
                share[touched[k]] = 0.0
            count = 0
