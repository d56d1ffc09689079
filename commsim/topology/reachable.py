"""Whether the ranks of a group can reach each other at all."""

from __future__ import annotations

from functools import lru_cache

from commsim.errors import UnreachableError
from commsim.topology.capacity import network_bandwidth, scale_up_islands
from commsim.topology.cluster import Cluster
from commsim.topology.node_paths import peer_path
from commsim.topology.placement import place


@lru_cache(maxsize=4096)
def check_reachable(cluster: Cluster, ranks: tuple[int, ...] | None) -> None:
    """None; raises UnreachableError naming two GPUs of a machine, or GPUs and NICs, without a path.

    Inside a machine a path is NVLink or xGMI between members, or PCIe and sockets; between machines
    that no NVLink domain joins, some member must reach a NIC.
    """
    placement, node = place(cluster, ranks), cluster.node
    for local, _ in placement.hosts_by_set:
        first, *others = scale_up_islands(node, local)
        here = node.gpus[first[0]].name
        for island in others:
            there = node.gpus[island[0]].name
            if not peer_path(node, here, there):
                raise UnreachableError(
                    f"{cluster.name}: no path from {here} to {there}; add a [[link]] between"
                    " them, or from each of them to a CPU"
                )
        if placement.domains > 1 and not network_bandwidth(node, local):
            raise UnreachableError(
                f"{cluster.name}: no path from {here} to a NIC; add a [[link]] from the"
                " NIC's card to a switch or CPU above the GPU"
            )
