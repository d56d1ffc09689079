"""The time that no algorithm can beat on a machine: bytes that must cross a cut over its rate."""

from __future__ import annotations

from commsim.collectives.collective import Collective
from commsim.topology import capacity
from commsim.topology.cluster import Cluster
from commsim.topology.placement import Placement
from commsim.units import Seconds


def bound(collective: Collective, cluster: Cluster, placement: Placement) -> Seconds:
    """Seconds: the larger of two cuts, at data-sheet rates.

    Around one GPU: S (n-1)/n (S for broadcast, reduce, send_recv) over its fastest way out. Around
    one NVLink domain of D: all_reduce 2 S (D-1)/D (S where switches reduce), all_gather and
    reduce_scatter S (D-1)/D, all_to_all k S (n-k)/n with k ranks in a domain, gather and scatter S
    (n-k)/n, others S, over its NICs. Ignores latency. Patarasu and Yuan, J. Parallel Distrib.
    Comput. 69 (2009), doi:10.1016/j.jpdc.2008.09.002.
    """
    op, n, s = collective.operation, placement.n, collective.nbytes
    if op == "barrier":
        return 0.0
    share = 1.0 if op in ("broadcast", "reduce", "send_recv") else (n - 1) / n
    local = placement.domain_shapes[0][0][0]
    fastest = capacity.fastest_exit(cluster.node, local[0])
    least = s * share / fastest if fastest else 0.0
    d = placement.domains
    if d > 1:
        k = placement.max_per_domain
        if op == "all_reduce":
            crossing = float(s) if cluster.fabric.sharp else 2 * s * (d - 1) / d
        elif op in ("all_gather", "reduce_scatter"):
            crossing = s * (d - 1) / d
        elif op == "all_to_all":
            crossing = placement.min_per_domain * s * (n - k) / n
        elif op in ("gather", "scatter"):
            crossing = s * (n - k) / n
        else:
            crossing = float(s)
        hosts = max(len(shape) for shape, _ in placement.domain_shapes)
        wire = hosts * sum(nic.rate for nic in cluster.node.nics)
        least = max(least, crossing / wire if wire else 0.0)
    return least
