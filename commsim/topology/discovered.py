"""A cluster on the cables that a network's own tools list, instead of a fabric by its kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from commsim.errors import SpecError
from commsim.topology.cluster import Cluster
from commsim.topology.subnet import Host, Subnet
from commsim.units import format_rate

_TOLD_BY_CABLES = ("fabric.kind:", "fabric.oversubscription:")


def on_subnet(cluster: Cluster, subnet: Subnet, nodes: int | None = None) -> Cluster:
    """The cluster with its machines at the hosts of `subnet` that have a port for each of its NICs.

    nodes: how many machines; None takes every such host. The fabric's oversubscription is then one
    over the share of the NICs' bandwidth that crosses it. Raises SpecError for too few hosts.
    """
    each = len(cluster.node.nics)
    hosts = subnet.with_ports(each) if each else ()
    wanted = len(hosts) if nodes is None else nodes
    if not 1 <= wanted <= len(hosts):
        found = Counter(len(host.ports) for host in subnet.hosts)
        shown = ", ".join(f"{count} with {ports}" for ports, count in sorted(found.items()))
        raise SpecError(
            [
                f"fabric.cabling: {subnet.file}: expected {max(1, wanted)} hosts with {each}"
                f" connected ports, one a NIC, found {len(hosts)} (hosts: {shown or 'none'});"
                " change nodes or node.nics.count"
            ]
        )
    fabric = replace(cluster.fabric, kind="cabled", oversubscription=1.0, subnet=subnet)
    cabled = replace(cluster, nodes=wanted, fabric=fabric)
    told = tuple(note for note in cluster.notes if not note.startswith(_TOLD_BY_CABLES))
    return replace(
        cabled,
        fabric=replace(fabric, oversubscription=round(1 / max(cabled.bisection_share, 1e-6), 3)),
        notes=(*told, *_notes(cluster, subnet, hosts[:wanted])),
    )


def _notes(cluster: Cluster, subnet: Subnet, hosts: tuple[Host, ...]) -> Iterator[str]:
    yield from subnet.notes
    yield (
        f"fabric.cabling: {subnet.file}: {len(subnet.switches)} switches; nodes 0 to"
        f" {len(hosts) - 1} are {hosts[0].name} to {hosts[-1].name}"
    )
    others = len(subnet.hosts) - len(subnet.with_ports(len(cluster.node.nics)))
    if others:
        yield (
            f"fabric.cabling: {others} hosts with other than {len(cluster.node.nics)}"
            " connected ports are left out"
        )
    slow = [
        f"adapter {port.number} of {host.name} at {format_rate(port.rate)}"
        for host in hosts
        for port, nic in zip(host.ports, cluster.node.nics, strict=True)
        if port.rate < 0.99 * nic.rate
    ]
    if slow:
        yield (
            f"fabric.cabling: {len(slow)} cables carry less than their NIC ({slow[0]}"
            f"{', ...' if len(slow) > 1 else ''});"
            " predict takes the NICs' rate, simulate the cables'"
        )
