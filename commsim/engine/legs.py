"""Legs, the stretches of links that many ways have in common, and ways put together from them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from commsim.collectives.chunks import Ints
from commsim.engine.network import Flags, Floats, Ways

Shorts = NDArray[np.int32]
BLOCK = 1 << 16
"""Ways put together at once: what they need meanwhile stays small."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Legs:
    """Leg i crosses links `links[start[i] : start[i + 1]]`, which carry `weight` bytes for each of
    its own. latency: s along the leg; back: s along the same links the other way.
    """

    start: Ints
    links: Shorts
    weight: Floats
    latency: Floats
    back: Floats

    def __len__(self) -> int:
        return len(self.latency)


def make_legs(size: Ints, links: Ints, weight: Floats, latency: Floats, back: Floats) -> Legs:
    """Legs that cross `size` links each; latency and back are each link's, s."""
    owner = np.repeat(np.arange(len(size)), size)

    def total(each: Floats) -> Floats:
        return np.bincount(owner, weights=weight * each, minlength=len(size)).astype(np.float64)

    return Legs(
        start=np.concatenate([[0], np.cumsum(size)]).astype(np.int64),
        links=links.astype(np.int32),
        weight=weight,
        latency=total(latency),
        back=total(back),
    )


def join(*parts: Legs) -> Legs:
    """The legs of all parts, numbered through."""
    ends = np.cumsum([0, *(len(p.links) for p in parts)])
    starts = [p.start[:-1] + end for p, end in zip(parts, ends, strict=False)]
    return Legs(
        start=np.concatenate([*starts, ends[-1:]]),
        links=np.concatenate([p.links for p in parts]),
        weight=np.concatenate([p.weight for p in parts]),
        latency=np.concatenate([p.latency for p in parts]),
        back=np.concatenate([p.back for p in parts]),
    )


def compose(legs: Legs, chosen: Shorts, shift: Shorts, halved: Flags) -> Ways:
    """Ways of the legs `chosen[way, k]`, one after another; `shift` is added to each leg's links.

    halved: the way's latency is half of that there and back, as it ends in the middle.
    """
    size = np.diff(legs.start)
    length = np.zeros(len(chosen), dtype=np.int64)
    latency, back = np.zeros(len(chosen)), np.zeros(len(chosen))
    for column in chosen.T:
        length += size[column]
        latency += legs.latency[column]
        back += np.where(halved, legs.back[column], 0.0)
    start = np.concatenate([[0], np.cumsum(length)])
    crossing = np.empty(start[-1], dtype=np.int32)
    weight = np.empty(start[-1])
    for first in range(0, len(chosen), BLOCK):
        last = min(first + BLOCK, len(chosen))
        leg, to = chosen[first:last].ravel(), slice(start[first], start[last])
        index = spans(legs.start[leg], size[leg])
        crossing[to] = legs.links[index] + np.repeat(shift[first:last].ravel(), size[leg])
        weight[to] = legs.weight[index]
    return Ways(
        start=start,
        crossing=crossing,
        weight=weight,
        latency=np.where(halved, (latency + back) / 2, latency),
        overhead=np.zeros(len(chosen)),
        limit=np.full(len(chosen), np.inf),
    )


def spans(start: Ints, size: Ints) -> Ints:
    """start[0], start[0] + 1, ... (size[0] of them), start[1], ...: slices as one index."""
    before = np.cumsum(size) - size
    return np.asarray(np.arange(int(size.sum())) + np.repeat(start - before, size))


def distinct(keys: Ints, span: int) -> tuple[Ints, Ints]:
    """The keys that occur, ascending, and for each key its place among them; all below `span`."""
    if span > 8 * len(keys) + 1024:
        found, place = np.unique(keys, return_inverse=True)
        return found, place
    seen = np.zeros(span, dtype=np.bool_)  # a table is faster than sorting
    seen[keys] = True
    return np.flatnonzero(seen), (np.cumsum(seen) - 1)[keys]
