"""The cables of a fabric as links between its NICs and switches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from commsim.collectives.chunks import Ints
from commsim.engine.network import Floats
from commsim.topology.cluster import Cluster


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cabling:
    """Links of the fabric: cable k from its source is link `first` + 2k, backwards the next.

    ends: the names of each cable's ends. tail, head, capacity, latency: of
    each link; vertices are the `nics`, machine by machine, then the switches as the wiring lists
    them, which are of these `kinds`. cable[node, i], leaf[node, i]: the link from NIC i to its
    switch, and which switch that is; -1 where there is none.
    """

    first: int
    ends: tuple[tuple[str, str], ...]
    tail: Ints
    head: Ints
    capacity: Floats
    latency: Floats
    nics: int
    kinds: tuple[str, ...]
    cable: Ints
    leaf: Ints


def lay_cables(cluster: Cluster, first: int, *, apart: bool = False) -> Cabling:
    """The cables of the cluster's wiring, their links numbered from `first` on.

    apart: between two switches each cable is a link of its own, where flows that are hashed can
    meet or miss each other: as many as make up the bandwidth at a NIC's rate. Else they are one.
    """
    site, wiring = cluster.site, cluster.wiring
    shape = (cluster.nodes, len(site.nics))
    nics = [site.nic(node, i) for node in range(shape[0]) for i in range(shape[1])]
    names = [*nics, *(s.name for s in wiring.switches)]
    number = {name: i for i, name in enumerate(names)}
    width: dict[tuple[str, str], float] = {}
    for cable in wiring.cables:
        pair = (cable.source, cable.target)
        pair = pair[::-1] if pair[::-1] in width else pair
        width[pair] = width.get(pair, 0.0) + cable.bandwidth
    rate = max((n.rate for n in cluster.node.nics), default=0.0)
    between = {s.name for s in wiring.switches}

    def parallel(pair: tuple[str, str]) -> int:
        return max(1, round(width[pair] / rate)) if apart and between.issuperset(pair) else 1

    count = {pair: parallel(pair) for pair in width}
    ends = [pair for pair in width for _ in range(count[pair])]
    capacity = [width[pair] / count[pair] for pair in ends]
    tail = np.array([number[name] for pair in ends for name in pair], dtype=np.int64)
    head = tail.reshape(-1, 2)[:, ::-1].ravel()
    leaving = np.full(len(names), site.latency)
    leaving[: len(nics)] = np.tile([n.latency for n in cluster.node.nics], cluster.nodes)
    alone = np.bincount(tail, minlength=len(names)) == 1
    up = np.flatnonzero((tail < len(nics)) & (head >= len(nics)) & alone[tail])
    link, leaf = np.full(len(nics), -1), np.full(len(nics), -1)
    link[tail[up]], leaf[tail[up]] = first + up, head[up] - len(nics)
    return Cabling(
        first=first,
        ends=tuple(ends),
        kinds=tuple(s.kind for s in wiring.switches),
        nics=len(nics),
        tail=tail,
        head=head,
        capacity=np.repeat(np.array(capacity, dtype=np.float64), 2),
        latency=leaving[tail],
        cable=link.reshape(shape),
        leaf=leaf.reshape(shape),
    )
