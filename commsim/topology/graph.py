"""The whole cluster as one directed graph: every device, switch and cable of every machine.

For looking at and for general questions (networkx's algorithms); predictions work on the machine
and the fabric alone and never build it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import networkx as nx

    from commsim.topology.cluster import Cluster

Attributes = dict[str, Any]


def nvswitch_vertex(cluster: Cluster, host: int) -> str:
    """The NVSwitch of a machine: its own, or that of the domain it shares with other machines."""
    assert cluster.node.nvswitch is not None
    name = cluster.node.nvswitch.name
    hosts = cluster.hosts_per_domain
    return f"node{host}/{name}" if hosts == 1 else f"domain{host // hosts}/{name}"


def build_graph(cluster: Cluster) -> nx.DiGraph:
    """Vertices with `kind` and `node` (machine or None); edges with `kind`, `bandwidth` in bytes/s
    of that direction and `latency` in s.

    Vertex kinds: gpu, nic, card, pcie-switch, cpu, nvswitch, leaf, spine, core, router. Edge kinds:
    nvlink, xgmi, pcie, c2c, socket, port (a NIC and its card), network. Of PCIe and C2C between the
    same two devices the faster is kept; NVLinks add up. A switch's latency lies on the edges that
    leave it.
    """
    # Here and not above: importing networkx takes 0.15 s, and predictions do without it.
    import networkx as nx

    graph = nx.DiGraph(name=cluster.name)
    vertices, edges = _of_one_machine(cluster)
    shared = cluster.node.nvswitch.name if cluster.node.nvswitch is not None else None
    for host in range(cluster.nodes):
        names = {name: f"node{host}/{name}" for name, _ in vertices}
        if shared is not None:
            names[shared] = nvswitch_vertex(cluster, host)
            graph.add_node(
                names[shared], kind="nvswitch", node=host if cluster.hosts_per_domain == 1 else None
            )
        graph.add_nodes_from(
            (names[name], {**attributes, "node": host}) for name, attributes in vertices
        )
        graph.add_edges_from(
            (names[a], names[b], attributes.copy()) for (a, b), attributes in edges.items()
        )
    _add_fabric(cluster, graph)
    return graph


def _of_one_machine(
    cluster: Cluster,
) -> tuple[list[tuple[str, Attributes]], dict[tuple[str, str], Attributes]]:
    node = cluster.node
    vertices: list[tuple[str, Attributes]] = [
        (g.name, {"kind": "gpu", "part": g.part}) for g in node.gpus
    ]
    vertices += [(n.name, {"kind": "nic", "part": n.part}) for n in node.nics]
    cards = {n.card for n in node.nics} - {n.name for n in node.nics}
    vertices += [(card, {"kind": "card"}) for card in sorted(cards)]
    vertices += [(s.name, {"kind": "pcie-switch"}) for s in node.switches]
    vertices += [(c.name, {"kind": "cpu", "part": c.part}) for c in node.cpus]
    edges: dict[tuple[str, str], Attributes] = {}

    def join(a: str, b: str, kind: str, bandwidth: float, latency: float) -> None:
        for pair in ((a, b), (b, a)):
            known = edges.get(pair)
            if known is None:
                edges[pair] = {"bandwidth": bandwidth, "latency": latency, "kind": kind}
            elif kind in ("nvlink", "xgmi"):
                known["bandwidth"] += bandwidth
            elif bandwidth > known["bandwidth"]:
                known.update(bandwidth=bandwidth, latency=latency, kind=kind)

    for link in node.links:
        join(link.source, link.target, link.kind, link.bandwidth, link.latency)
    for nic in node.nics:
        if nic.card != nic.name:
            join(nic.name, nic.card, "port", nic.rate, 0.0)
    return vertices, edges


def _add_fabric(cluster: Cluster, graph: nx.DiGraph) -> None:
    switches = {s.name for s in cluster.wiring.switches}
    leaving = cluster.site.latency
    of_nic = {
        cluster.site.nic(host, i): nic.latency
        for host in range(cluster.nodes)
        for i, nic in enumerate(cluster.node.nics)
    }
    graph.add_nodes_from((s.name, {"kind": s.kind, "node": None}) for s in cluster.wiring.switches)
    for cable in cluster.wiring.cables:
        for a, b in ((cable.source, cable.target), (cable.target, cable.source)):
            if graph.has_edge(a, b):  # two cables side by side, as in a torus of length 2
                graph.edges[a, b]["bandwidth"] += cable.bandwidth
                continue
            latency = leaving if a in switches else of_nic[a]
            graph.add_edge(a, b, bandwidth=cable.bandwidth, latency=latency, kind="network")
