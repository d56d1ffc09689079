"""In which order a ring should visit the ranks of a group.

Libraries that take the ranks as they come (Gloo, MPI, a ring of one's own) pay for every needless
crossing of a socket, a machine or a spine. NCCL orders its rings itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from commsim.collectives.algorithms.ring import Ring
from commsim.collectives.collective import Collective
from commsim.engine.cluster_network import ClusterNetwork
from commsim.simulation import simulate
from commsim.topology.cluster import Cluster
from commsim.units import Seconds

MOST_RANKS = 256
"""Up to which the shortest ring is searched for: it looks at every pair of ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RingOrder:
    """An order of global ranks, why one would take it, and what the collective takes in it (s)."""

    name: str
    ranks: tuple[int, ...]
    duration: Seconds


def ring_orders(
    collective: Collective, cluster: Cluster, *, channels: int = 1, routing: str = "adaptive"
) -> tuple[RingOrder, ...]:
    """Orders for a ring over the collective's ranks, the fastest first; equal orders once.

    Tried are the order as given, packed (machine by machine), spread (one rank of every machine in
    turn), and up to 256 ranks the shortest ring found by nearest neighbour and 2-opt (Croes 1958,
    doi:10.1287/opre.6.6.791) over what a byte costs between two ranks. Each is simulated.

    >>> from commsim.topology.load import load_cluster
    >>> cluster = load_cluster("dgx-h100", nodes=2)
    >>> ranks = (0, 8, 1, 9, 2, 10, 3, 11)
    >>> best = ring_orders(Collective("all_reduce", 1 << 26, ranks=ranks), cluster)[0]
    >>> best.ranks
    (0, 1, 2, 3, 8, 9, 10, 11)
    """
    given = collective.ranks or tuple(range(cluster.n_ranks))
    host = {rank: rank // cluster.gpus_per_node for rank in given}
    packed = tuple(sorted(given))
    candidates = {
        "as given": given,
        "packed": packed,
        "spread": tuple(sorted(given, key=lambda r: (r % cluster.gpus_per_node, host[r]))),
    }
    if len(given) <= MOST_RANKS:
        candidates["shortest"] = _shortest(packed, cluster)
    found: dict[tuple[int, ...], RingOrder] = {}
    for name, ranks in candidates.items():
        if ranks not in found:
            asked = replace(collective, ranks=ranks)
            timeline = simulate(
                asked, cluster, algorithm=Ring(), channels=channels, routing=routing
            )
            found[ranks] = RingOrder(name=name, ranks=ranks, duration=timeline.duration)
    order = list(candidates)
    return tuple(sorted(found.values(), key=lambda o: (o.duration, order.index(o.name))))


def _shortest(ranks: tuple[int, ...], cluster: Cluster) -> tuple[int, ...]:
    """A short ring: from the first rank to the nearest not yet visited, then crossings undone."""
    far = _costs(ranks, cluster)
    n = len(ranks)
    tour, left = [0], set(range(1, n))
    while left:
        nearest = min(left, key=lambda p: (far[tour[-1], p], p))
        tour.append(nearest)
        left.remove(nearest)
    path = np.array(tour)
    improved = True
    while improved and n > 3:
        improved = False
        for i in range(n - 1):
            # Turn round the part from i + 1 to j for the j that gains most.
            j = np.arange(i + 1, n)
            after = path[(j + 1) % n]
            gain = far[path[i], path[i + 1]] + far[path[j], after]
            gain = gain - far[path[i], path[j]] - far[path[i + 1], after]
            best = int(gain.argmax())
            if gain[best] > 1e-9 * far.max():
                path[i + 1 : j[best] + 1] = path[i + 1 : j[best] + 1][::-1].copy()
                improved = True
    return tuple(ranks[p] for p in path)


def _costs(ranks: tuple[int, ...], cluster: Cluster) -> NDArray[np.float64]:
    """Between every two ranks what a byte costs on all links of the way, both ways alike; to the
    fourth power, as the slowest hop holds up the whole ring.
    """
    network = ClusterNetwork(cluster=cluster, ranks=ranks)
    n = len(ranks)
    schedule = Ring().schedule(Collective("all_gather", 0), n)
    source, target = (a.ravel() for a in np.indices((n, n)))
    zero = np.zeros_like(source)
    ways = network.ways(schedule, source, target, zero, zero)
    each = np.zeros(len(ways))
    owner = np.repeat(np.arange(len(ways)), np.diff(ways.start))
    np.add.at(each, owner, ways.weight / network.capacity[ways.crossing])
    table = each.reshape(n, n)
    costs: NDArray[np.float64] = (table + table.T) ** 4
    return costs
