"""The time that no algorithm can beat on a machine: bytes that must cross a cut over its rate."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from commsim.collectives.chunks import cut
from commsim.collectives.collective import Collective
from commsim.topology import capacity
from commsim.topology.cluster import Cluster
from commsim.topology.placement import Placement
from commsim.units import BytesPerSecond, Seconds

WIDE = ("single-switch", "fat-tree", "rail-optimized")
"""Fabrics that carry out of every machine, and between any two halves, what the NICs do, unless
oversubscribed: there only the rate between the halves is less."""
LARGEST_CUT = 64
"""Machines up to which the largest flow out of a group is worked out (a graph of the cluster)."""


def bound(collective: Collective, cluster: Cluster, placement: Placement) -> Seconds:
    """Seconds: the largest of several cuts, at data-sheet rates.

    Around one GPU: S (n-1)/n (S for broadcast, reduce, send_recv) over its fastest way out. Around
    one NVLink domain of D: all_reduce 2 S (D-1)/D (S where switches reduce), all_gather and
    reduce_scatter S (D-1)/D, all_to_all k S (n-k)/n with k ranks in a domain, gather and scatter S
    (n-k)/n, others S, over its NICs. Around one machine and half of the machines: what `crossing`
    says, over what the fabric carries. An uneven all_to_all: the bytes of its own pairs across each
    of these cuts, in the busier direction. Ignores latency. Patarasu and Yuan, J. Parallel Distrib.
    Comput. 69 (2009), doi:10.1016/j.jpdc.2008.09.002.
    """
    op, n, s = collective.operation, placement.n, collective.nbytes
    if op == "barrier":
        return 0.0
    if collective.splits is not None:
        return _uneven(collective, cluster, placement)
    share = 1.0 if op in ("broadcast", "reduce", "send_recv") else (n - 1) / n
    local = placement.domain_shapes[0][0][0]
    fastest = capacity.fastest_exit(cluster.node, local[0])
    least = s * share / fastest if fastest else 0.0
    d = placement.domains
    if d > 1:
        k = placement.max_per_domain
        if op == "all_reduce":
            over = float(s) if cluster.fabric.sharp else 2 * s * (d - 1) / d
        elif op in ("all_gather", "reduce_scatter"):
            over = s * (d - 1) / d
        elif op == "all_to_all":
            over = placement.min_per_domain * s * (n - k) / n
        elif op in ("gather", "scatter"):
            over = s * (n - k) / n
        else:
            over = float(s)
        hosts = max(len(shape) for shape, _ in placement.domain_shapes)
        wire = hosts * sum(nic.rate for nic in cluster.node.nics)
        least = max(least, over / wire if wire else 0.0)
        for inside, rate in fabric_cuts(cluster, collective.ranks):
            least = max(least, crossing(op, s, n, inside) / rate)
    return least


def _uneven(collective: Collective, cluster: Cluster, placement: Placement) -> Seconds:
    """The bound of an all_to_all by what every pair of ranks really exchanges."""
    n = placement.n
    pairs = cut(collective, n).pairs()
    rank = np.arange(n) if collective.ranks is None else np.array(collective.ranks)

    def across(side: NDArray[np.int64]) -> float:
        """The most bytes that leave or enter one of the sides, by the number of each rank's."""
        between = np.zeros((side.max() + 1,) * 2)
        np.add.at(between, (side[:, np.newaxis], side), pairs)
        np.fill_diagonal(between, 0.0)
        return float(max(between.sum(axis=0).max(), between.sum(axis=1).max()))

    local = placement.domain_shapes[0][0][0]
    fastest = capacity.fastest_exit(cluster.node, local[0])
    least = across(np.arange(n)) / fastest if fastest else 0.0
    if placement.domains > 1:
        hosts = max(len(shape) for shape, _ in placement.domain_shapes)
        wire = hosts * sum(nic.rate for nic in cluster.node.nics)
        domain = rank // (cluster.gpus_per_node * cluster.hosts_per_domain)
        least = max(least, across(domain) / wire if wire else 0.0)
        place = np.argsort(np.argsort(rank))
        for inside, rate in fabric_cuts(cluster, collective.ranks):
            least = max(least, across((place >= inside).astype(np.int64)) / rate)
    return least


def crossing(operation: str, nbytes: float, n: int, inside: float) -> float:
    """Bytes that must leave `inside` of n ranks whatever the algorithm: the ranks outside need
    their sum (all_reduce S), their parts (all_gather S inside/n), the sum of the outside's own
    parts (reduce_scatter S outside/n), or a message from each to each (all_to_all)."""
    outside = n - inside
    if operation == "all_to_all":
        return nbytes * inside * outside / n
    if operation == "all_gather":
        return nbytes * inside / n
    if operation in ("reduce_scatter", "gather", "scatter"):
        return nbytes * outside / n
    return float(nbytes)


@lru_cache(maxsize=1024)
def fabric_cuts(
    cluster: Cluster, ranks: tuple[int, ...] | None
) -> tuple[tuple[float, BytesPerSecond], ...]:
    """Ranks inside, and bytes/s that the fabric carries out of them.

    On up to LARGEST_CUT machines: one machine, and half of them, as the largest flow. All ranks of
    a larger cluster: half of them, over bisection share x machines / 2 x NICs of one. Empty where
    the fabric carries all that the NICs do, for other large groups, and where an NVLink domain
    spans machines.
    """
    fabric, each = cluster.fabric, cluster.gpus_per_node
    if (fabric.kind in WIDE and fabric.oversubscription <= 1) or cluster.hosts_per_domain > 1:
        return ()
    if ranks is None and cluster.nodes > LARGEST_CUT:
        share = cluster.bisection_share
        wires = cluster.nodes / 2 * sum(nic.rate for nic in cluster.node.nics)
        return ((cluster.n_ranks / 2, share * wires),) if 0 < share < 1 else ()
    machines: dict[int, list[int]] = {}
    for rank in range(cluster.n_ranks) if ranks is None else sorted(ranks):
        machines.setdefault(rank // each, []).append(rank)
    groups = list(machines.values())
    if len(groups) > LARGEST_CUT:
        return ()
    found = []
    for first in sorted({1, len(groups) // 2}):
        inside = tuple(rank for group in groups[:first] for rank in group)
        outside = tuple(rank for group in groups[first:] for rank in group)
        rate = cluster.cut_bandwidth(inside, outside)
        if rate > 0:
            found.append((float(len(inside)), rate))
    return tuple(found)
