"""What conditions mean on a cluster: NICs left out, links of slow devices, other traffic."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from commsim.collectives.algorithms.send_recv import SendRecv
from commsim.collectives.collective import Collective
from commsim.engine.conditions import Conditions, LinkFault, Traffic
from commsim.engine.network import Floats, Network, lay
from commsim.engine.plan import Change, Part
from commsim.errors import ConditionError
from commsim.topology.cluster import Cluster
from commsim.topology.node import without_nics


def without_dead_nics(
    cluster: Cluster, conditions: Conditions
) -> tuple[Cluster, Conditions, tuple[str, ...]]:
    """The cluster without NICs that are dead from the beginning, the other conditions, and notes.

    A library finds out when it starts, and then does without: channels are the same on every
    machine, so a NIC that one machine lacks is left idle on all. A fault that means other devices
    of a machine too remains for these.
    """
    site, wiring = cluster.site, cluster.wiring
    leaf = {cable.source: cable.target for cable in wiring.cables}
    dead: dict[int, str] = {}
    others = []
    node = cluster.node
    devices = [device.name for kind in (node.gpus, node.switches, node.cpus) for device in kind]
    devices += [] if node.nvswitch is None else [node.nvswitch.name]
    inside = [f"node{host}/{name}" for host in range(cluster.nodes) for name in devices]

    def cuts_off(fault: LinkFault, nic: str) -> bool:
        there = leaf.get(nic, "")
        return any(map(fault.means, (nic, there, f"{nic} -> {there}", f"{there} -> {nic}")))

    for fault in conditions.faults:
        found = [
            i
            for host in range(cluster.nodes if fault.dead else 0)
            for i in range(len(site.nics))
            if cuts_off(fault, site.nic(host, i))
        ]
        dead |= dict.fromkeys(found, fault.link)
        if not found or any(map(fault.means, inside)):
            others.append(fault)
    if not dead:
        return cluster, conditions, ()
    left = without_nics(node, dead)
    notes = tuple(
        f"{why} is dead from the beginning: {site.nics[i]} is not used on any machine"
        for i, why in dead.items()
    )
    return replace(cluster, node=left), replace(conditions, faults=tuple(others)), notes


def check_ranks(conditions: Conditions, cluster: Cluster) -> None:
    """Raise ConditionError for a condition on a rank that the cluster does not have."""
    named = [(what, rank) for what in ("late", "slow", "deaths") for rank in
             getattr(conditions, what)]  # fmt: skip
    named += [("traffic", end) for t in conditions.traffic for end in (t.source, t.destination)]
    for what, rank in named:
        if not 0 <= rank < cluster.n_ranks:
            raise ConditionError(
                f"{what}: rank {rank} does not exist on {cluster.name}; expected 0 .. "
                f"{cluster.n_ranks - 1}"
            )


def links_left(
    conditions: Conditions, cluster: Cluster, network: Network
) -> tuple[Floats, list[Change]]:
    """What slow ranks' devices leave of the bytes/s of each link, and what happens to links."""
    share = np.ones(len(network.capacity))
    for rank, factor in conditions.slow.items():
        if factor > 1:
            host, local = divmod(rank, cluster.gpus_per_node)
            device = LinkFault(link=f"node{host}/{cluster.node.gpus[local].name}")
            share[[change.link for change in device.changes(network)]] /= factor
    changes = [
        replace(change, capacity=change.capacity * share[change.link])
        for fault in conditions.faults
        for change in fault.changes(network)
    ]
    return network.capacity * share, changes


def transfer(traffic: Traffic, network: Network) -> Part:
    """Other traffic as one transfer on the network of its two ranks."""
    ranks = (traffic.source, traffic.destination)
    message = Collective("send_recv", traffic.nbytes, ranks=ranks, root=traffic.source)
    laid = lay(SendRecv().schedule(message, 2), network)
    limited = replace(laid.ways, limit=np.full(len(laid.ways), traffic.rate))
    return Part(
        laid=replace(laid, ways=limited),
        start=np.full(2, traffic.start),
        death=np.full(2, np.inf),
    )
