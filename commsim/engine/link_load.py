"""How full links were over time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from commsim.collectives.chunks import Ints
from commsim.engine.network import Floats
from commsim.engine.timeline import Timeline


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinkLoad:
    """Steps of equal length from `edges[i]` to `edges[i + 1]` (s), and per link and step the share
    of the link's healthy bandwidth that was in use: [link, step].
    """

    links: tuple[str, ...]
    edges: Floats
    share: Floats


def link_load(timeline: Timeline, steps: int = 200, most: int = 50) -> LinkLoad:
    """The load of the `most` hottest links in `steps` steps.

    Each transfer's bytes are spread evenly from `begun` to `sent`. What a link carries in all is
    exact; where rates change within a transfer a step may hold a little too much or too little,
    even more than the link could carry.
    """
    timeline = timeline.whole
    capacity, names = timeline.network.capacity, timeline.network.links
    with np.errstate(divide="ignore", invalid="ignore"):
        heat = np.nan_to_num(timeline.link_bytes / capacity)
    hot = np.argsort(-heat, kind="stable")[:most]
    hot = hot[timeline.link_bytes[hot] > 0]
    row = np.full(len(names), -1)
    row[hot] = np.arange(len(hot))
    start = min(p.asked for p in timeline.played)
    end = max(float(np.nanmax(p.times.sent, initial=start)) for p in timeline.played)
    edges = np.linspace(start, end if end > start else start + 1.0, steps + 1)
    carried = np.zeros(len(hot) * steps)
    for each in timeline.played:
        ways, times = each.laid.ways, each.times
        moves = np.flatnonzero((each.laid.schedule.nbytes > 0) & ~np.isnan(times.sent))
        way = each.laid.way[moves]
        count = np.diff(ways.start)[way]
        op = np.repeat(moves, count)
        # Every crossing of every op: its place is its way's first plus 0, 1, 2, ...
        place = np.arange(len(op)) + np.repeat(ways.start[way] - (np.cumsum(count) - count), count)
        on = row[ways.crossing[place]]
        op, place, on = op[on >= 0], place[on >= 0], on[on >= 0]
        nbytes = each.laid.schedule.nbytes[op] * ways.weight[place]
        carried += _spread(on, nbytes, times.begun[op], times.sent[op], edges, len(carried))
    width = edges[1] - edges[0]
    share = carried.reshape(len(hot), steps) / (capacity[hot, np.newaxis] * width)
    return LinkLoad(links=tuple(names[i] for i in hot), edges=edges, share=share)


def _spread(
    on: Ints, nbytes: Floats, begin: Floats, end: Floats, edges: Floats, size: int
) -> Floats:
    """Bytes per link and step (`size` in all), each amount spread evenly from `begin` to `end`."""
    steps = len(edges) - 1
    width = edges[1] - edges[0]
    first, last = (
        np.clip(((t - edges[0]) / width).astype(np.int64), 0, steps - 1) for t in (begin, end)
    )
    took = end - begin
    rate = np.divide(nbytes, took, out=np.zeros(len(nbytes)), where=took > 0)
    inside = first == last
    head = np.where(inside, nbytes, rate * (edges[first + 1] - begin))
    tail = np.where(inside, 0.0, rate * (end - edges[last]))
    found = np.zeros(size)
    found += np.bincount(on * steps + first, weights=head, minlength=size)
    found += np.bincount(on * steps + last, weights=tail, minlength=size)
    # Whole steps between the two: the rate begins after the first and ends at the last.
    long = last > first + 1
    change = np.bincount((on * steps + first + 1)[long], weights=rate[long], minlength=size)
    change = change - np.bincount((on * steps + last)[long], weights=rate[long], minlength=size)
    found += np.maximum(0.0, np.cumsum(change.reshape(-1, steps), axis=1)).ravel() * width
    return found
