"""By which NICs two ranks are joined whose own are not: cabled to other machines, or to nothing."""

from __future__ import annotations

import numpy as np

from commsim.collectives.chunks import Ints
from commsim.engine.group import Group
from commsim.engine.shortest_ways import Toward, Web
from commsim.topology.capacity import nearest_nics

NONE = 1 << 30
"""The length of a way that is not there."""


def find_detours(
    group: Group, web: Web, source: Ints, target: Ints, channel: Ints
) -> tuple[Ints, Ints, Toward, Ints]:
    """The NICs at both ends with the shortest way from GPU to GPU; the ways to them, and which of
    their goals each is. UnreachableError, as the router says it, where nothing leads.

    Where machines do not pass data on, a GPU's nearest NICs come first. Of equally short pairs the
    ranks' own are taken, else each in turn by GPU and channel.
    """
    node, size = group.cluster.node, np.diff(group.machine.legs.start)
    nics = np.arange(len(node.nics))
    a, b = group.exits(source, channel), group.exits(target, channel)
    hosts, place = np.unique(b.host, return_inverse=True)
    toward = Toward(web, [(h * len(nics) + i,) for h in hosts.tolist() for i in nics.tolist()])
    out, into = size[group.machine.out[a.gpu]], size[group.machine.into[b.gpu]]
    at, goal = (first[:, np.newaxis] * len(nics) + nics for first in (a.host, place))
    between = toward.distance[goal[:, np.newaxis, :], at[:, :, np.newaxis]]
    led = (out > 0)[:, :, np.newaxis] & (into > 0)[:, np.newaxis, :] & (between >= 0)
    if not group.cluster.wiring.forwarding:
        near = np.array([np.isin(nics, nearest_nics(node, g)) for g in range(len(node.gpus))])
        nearest = led & near[a.gpu][:, :, np.newaxis] & near[b.gpu][:, np.newaxis, :]
        led = np.where(nearest.any(axis=(1, 2), keepdims=True), nearest, led)
    length = out[:, :, np.newaxis] + between + into[:, np.newaxis, :]
    flat = np.where(led, length, NONE).reshape(len(source), -1)
    least = flat.min(axis=1, initial=NONE)
    for i in np.flatnonzero(least == NONE)[:1].tolist():
        known = group.cluster.routes(int(group.rank[source[i]]), int(group.rank[target[i]]))
        raise AssertionError(f"no links for {known[0]}")  # the router raises before
    ties = flat == least[:, np.newaxis]
    turn = (a.gpu + channel) % ties.sum(axis=1)
    drawn = np.argmax(np.cumsum(ties, axis=1) > turn[:, np.newaxis], axis=1)
    own = a.nic * len(nics) + b.nic
    kept = (a.nic >= 0) & (b.nic >= 0) & ties[np.arange(len(own)), own]
    nic_a, nic_b = np.divmod(np.where(kept, own, drawn), len(nics))
    return nic_a, nic_b, toward, place * len(nics) + nic_b
