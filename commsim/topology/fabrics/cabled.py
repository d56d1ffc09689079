"""A network that exists, cable by cable, as its own tools list it (`fabric.cabling`).

Machine n is the n-th host, in the natural order of their names, of those with as many connected
ports as the machine has NICs; NIC i is its i-th port. What joins other hosts only is left out. A
switch with NICs on it is a leaf, one cabled to leaves a spine, what is further up a core.
"""

from __future__ import annotations

import networkx as nx

from commsim.topology.subnet import Subnet
from commsim.topology.wiring import Cable, Site, Switch, Wiring


def wire(site: Site) -> Wiring:
    """Every switch, and every cable between switches or from one to a machine's NIC."""
    subnet = _subnet(site)
    vertex = {
        port.vertex: site.nic(node, i)
        for node, host in enumerate(subnet.with_ports(len(site.nics))[: site.nodes])
        for i, port in enumerate(host.ports)
    }
    vertex |= {name: name for name in subnet.switches}
    cables = tuple(
        Cable(source=vertex[run.source], target=vertex[run.target], bandwidth=run.rate)
        for run in subnet.runs
        if run.source in vertex and run.target in vertex
    )
    tier = _tiers(cables, set(subnet.switches))
    return Wiring(
        switches=tuple(
            Switch(name=name, kind=("leaf", "spine", "core")[min(2, tier.get(name, 2))])
            for name in subnet.switches
        ),
        cables=cables,
    )


def bisection(site: Site) -> float:
    """The least of two halvings, by the machines' order and by their leaves, as largest flows.

    The worst of all halvings is hard to find; in trees it parts leaf from leaf, as the second.
    """
    if site.nodes < 2:
        return 1.0
    wiring = wire(site)
    switches = {s.name for s in wiring.switches}
    below: dict[str, dict[str, float]] = {}  # NIC bandwidth of each machine by leaf
    for cable in wiring.cables:
        for end, far in ((cable.source, cable.target), (cable.target, cable.source)):
            if end not in switches:
                at = below.setdefault(end.partition("/")[0], {})
                at[far] = at.get(far, 0.0) + cable.bandwidth
    machines = sorted(below, key=lambda m: int(m.removeprefix("node")))
    by_leaf = sorted(machines, key=lambda m: sorted(below[m]))
    return min(1.0, *(_share(wiring, switches, below, order) for order in (machines, by_leaf)))


def _share(
    wiring: Wiring, switches: set[str], below: dict[str, dict[str, float]], order: list[str]
) -> float:
    """What one half can send to the other, over the NICs of the smaller."""
    graph = nx.DiGraph()

    def add(a: str, b: str, rate: float) -> None:
        known = graph.edges[a, b]["capacity"] if graph.has_edge(a, b) else 0.0
        graph.add_edge(a, b, capacity=known + rate)

    for cable in wiring.cables:
        if cable.source in switches and cable.target in switches:
            add(cable.source, cable.target, cable.bandwidth)
            add(cable.target, cable.source, cable.bandwidth)
    half, total = len(order) // 2, [0.0, 0.0]
    for at, machine in enumerate(order):
        for leaf, rate in below[machine].items():
            total[at >= half] += rate
            ends = ("half", leaf) if at < half else (leaf, "other half")
            add(*ends, rate)
    return float(nx.maximum_flow_value(graph, "half", "other half")) / min(total)


def _tiers(cables: tuple[Cable, ...], switches: set[str]) -> dict[str, int]:
    """How far every switch is above the NICs: 0 for leaves."""
    graph = nx.Graph((cable.source, cable.target) for cable in cables)
    nics = [v for v in graph if v not in switches]
    if not nics:
        return {}
    far = nx.multi_source_dijkstra_path_length(graph, set(nics), weight=None)
    return {name: int(far[name]) - 1 for name in switches if name in far}


def _subnet(site: Site) -> Subnet:
    assert site.subnet is not None, "a cabled fabric comes with its cables"
    return site.subnet
