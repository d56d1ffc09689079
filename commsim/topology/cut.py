"""What can flow at once from one group of ranks to another.

The links that their routes use count: NVLink between GPUs it joins, PCIe and network between the
others. The largest flow is taken on a small graph that stands for the whole: machines and switches
in the same situation are one vertex each class, with their capacities added. Situations are found
by colour refinement, and the largest flow is the same on such a quotient (Grohe, Kersting, Mladenov
and Selman, "Dimension reduction via colour refinement", ESA 2014, doi 10.1007/978-3-662-44777-2_42:
linear programs shrink this way).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from commsim.errors import CollectiveError
from commsim.topology.capacity import scale_up_links
from commsim.topology.flow import INFINITE, Edge, maximum_flow
from commsim.topology.node import NodeTopology
from commsim.topology.node_paths import cpu_names, ends, host_links, kept
from commsim.topology.routing import locate
from commsim.units import BytesPerSecond

if TYPE_CHECKING:
    from commsim.topology.cluster import Cluster

Side = tuple[int, ...]
Pattern = tuple[Side, Side]  # the sending and the receiving GPUs of one machine
NOBODY: Pattern = ((), ())


def find_cut(
    cluster: Cluster, sources: tuple[int, ...], targets: tuple[int, ...]
) -> BytesPerSecond:
    """bytes/s from `sources` to `targets`, which have no rank in common.

    Largest flow over NVLink + largest flow over PCIe and network of those that some peer does not
    reach over NVLink. GPUs outside the groups pass nothing on; a machine without targets takes
    nothing in. Where the driver refuses peer-to-peer, traffic inside one machine goes up to a CPU
    first.
    """
    both = set(sources).intersection(targets)
    if both:
        raise CollectiveError(
            f"{cluster.name}: rank {min(both)} is on both sides of the cut; name each rank once"
        )
    senders = [locate(cluster, r) for r in dict.fromkeys(sources)]
    receivers = [locate(cluster, r) for r in dict.fromkeys(targets)]
    if not senders or not receivers:
        return 0.0
    over_nvlink = _scale_up_cut(cluster, senders, receivers)
    patterns = _patterns(
        _not_joined(cluster, senders, receivers), _not_joined(cluster, receivers, senders)
    )
    if not patterns:
        return over_nvlink
    if len(patterns) == 1:
        return over_nvlink + inside_cut(cluster.node, next(iter(patterns.values())))
    return over_nvlink + _network_cut(cluster, patterns)


def _scale_up_cut(
    cluster: Cluster, senders: list[tuple[int, int]], receivers: list[tuple[int, int]]
) -> BytesPerSecond:
    """Per NVSwitch min(what senders, what receivers can) + every direct link between the groups."""
    links, gpus = scale_up_links(cluster.node), cluster.node.gpus
    switch = cluster.node.nvswitch.name if cluster.node.nvswitch is not None else ""
    total = 0.0
    here: dict[int, set[str]] = defaultdict(set)
    for host, local in receivers:
        here[host].add(gpus[local].name)
    out: Counter[int] = Counter()
    into: Counter[int] = Counter()
    for side, ends_of in ((out, senders), (into, receivers)):
        for host, local in ends_of:
            bandwidth = links.get(gpus[local].name, {}).get(switch, 0.0)
            side[host // cluster.hosts_per_domain] += bandwidth  # type: ignore[assignment]
    for domain, bandwidth in out.items():
        total += min(bandwidth, into[domain])
    for host, local in senders:
        near = links.get(gpus[local].name, {})
        total += sum(b for other, b in near.items() if other in here[host])
    return total


def _not_joined(
    cluster: Cluster, group: list[tuple[int, int]], others: list[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Members of a group that some of the others cannot be reached from over NVLink."""
    links, gpus = scale_up_links(cluster.node), cluster.node.gpus
    switch = cluster.node.nvswitch.name if cluster.node.nvswitch is not None else ""
    on_switch: dict[int, int] = defaultdict(int)
    names: dict[int, set[str]] = defaultdict(set)
    for host, local in others:
        on_switch[host // cluster.hosts_per_domain] += switch in links.get(gpus[local].name, {})
        names[host].add(gpus[local].name)
    apart = []
    for host, local in group:
        near = links.get(gpus[local].name, {})
        reached = on_switch[host // cluster.hosts_per_domain] if switch in near else 0
        reached += sum(
            other in names[host] and not (switch in near and switch in links[other])
            for other in near
        )
        if reached < len(others):
            apart.append((host, local))
    return apart


def _patterns(
    senders: list[tuple[int, int]], receivers: list[tuple[int, int]]
) -> dict[int, Pattern]:
    sides: dict[int, tuple[list[int], list[int]]] = {}
    for side, group in enumerate((senders, receivers)):
        for host, local in group:
            sides.setdefault(host, ([], []))[side].append(local)
    return {host: (tuple(sorted(s)), tuple(sorted(t))) for host, (s, t) in sorted(sides.items())}


# ---- one machine ----


def inside_cut(node: NodeTopology, pattern: Pattern) -> BytesPerSecond:
    """bytes/s between GPUs of one machine over PCIe, C2C and sockets."""
    edges = host_edges(node, pattern, split=node.gpu_peer_access is False, nics=False)
    return maximum_flow(edges, "source", "target")


def host_edges(
    node: NodeTopology, pattern: Pattern, *, split: bool, nics: bool, transit: bool = False
) -> list[Edge]:
    """The host's links on which a cut's traffic may go, `source` and `target` joined to GPUs.

    split: traffic climbs to a CPU before it comes down, so a switch is two vertices. nics: with the
    NICs, which a machine without senders does not feed and one without receivers does not listen
    to. transit: the machine also passes on what is for others.
    """
    senders = {node.gpus[i].name for i in pattern[0]}
    receivers = {node.gpus[i].name for i in pattern[1]}
    cards = {n.name for n in node.nics} if nics else set()
    cpus, closed = cpu_names(node), ends(node)
    edges: list[Edge] = []
    for a, others in host_links(node).items():
        for b, bandwidth in others.items():
            may_leave = a not in closed or a in senders or (a in cards and (transit or receivers))
            may_enter = b not in closed or b in receivers or (b in cards and (transit or senders))
            if not (may_leave and may_enter):
                continue
            if not split:
                edges.append((a, b, bandwidth))
                continue
            if b not in closed and a not in cpus:
                edges.append((_up(a, cpus, closed), _up(b, cpus, closed), bandwidth))
            if a not in closed and b not in cpus:
                edges.append((_down(a, cpus, closed), _down(b, cpus, closed), bandwidth))
            if a in cpus and b in cpus:
                edges.append((a, b, bandwidth))
    edges += [("source", name, INFINITE) for name in senders]
    edges += [(name, "target", INFINITE) for name in receivers]
    return edges


def _up(name: str, cpus: frozenset[str], closed: frozenset[str]) -> str:
    return name if name in cpus or name in closed else f"{name} up"


def _down(name: str, cpus: frozenset[str], closed: frozenset[str]) -> str:
    return name if name in cpus or name in closed else f"{name} down"


# ---- the network ----


def _network_cut(cluster: Cluster, patterns: dict[int, Pattern]) -> BytesPerSecond:
    forwarding = cluster.wiring.forwarding
    neighbours = _fabric_of(cluster, patterns, everyone=forwarding)
    colours = refine(neighbours, {v: patterns.get(_host(v), _kind(v)) for v in neighbours})
    count = Counter(colours.values())
    edges: list[Edge] = []
    done: set[int] = set()
    for vertex, colour in colours.items():
        if colour in done:
            continue
        done.add(colour)
        times, host = count[colour], _host(vertex)
        if host >= 0:
            pattern = patterns.get(host, NOBODY)
            inner = _machine_edges(cluster.node, pattern, neighbours[vertex], forwarding)
            edges += [
                (_inner(colour, a), _inner(colour, b), bandwidth * times)
                for a, b, bandwidth in inner
            ]
        for (mine, yours, bandwidth), other in neighbours[vertex]:
            a = _inner(colour, cluster.site.nics[mine]) if mine >= 0 else str(colour)
            b = colours[other]
            there = _inner(b, cluster.site.nics[yours]) if yours >= 0 else str(b)
            edges.append((a, there, bandwidth * times))
    return maximum_flow(edges, "source", "target")


Port = tuple[int, int, BytesPerSecond]  # NIC at this end and at the other (-1: a switch), bandwidth
Neighbours = dict[str, list[tuple[Port, str]]]


def _fabric_of(cluster: Cluster, patterns: dict[int, Pattern], *, everyone: bool) -> Neighbours:
    """Machines (node3) and switches with their cables; machines that take no part left out."""
    place = {
        cluster.site.nic(host, i): (f"node{host}", i)
        for host in (range(cluster.nodes) if everyone else patterns)
        for i in range(len(cluster.site.nics))
    }
    place |= {s.name: (s.name, -1) for s in cluster.wiring.switches}
    neighbours: Neighbours = {vertex: [] for vertex, _ in place.values()}
    for cable in cluster.wiring.cables:
        if cable.source in place and cable.target in place:
            (a, i), (b, j) = place[cable.source], place[cable.target]
            neighbours[a].append(((i, j, cable.bandwidth), b))
            neighbours[b].append(((j, i, cable.bandwidth), a))
    return neighbours


def _host(vertex: str) -> int:
    return int(vertex[4:]) if vertex.startswith("node") else -1


def _kind(vertex: str) -> str:
    return vertex.rstrip("0123456789")


def _inner(colour: int, name: str) -> str:
    return name if name in ("source", "target") else f"{colour}/{name}"


def refine(neighbours: Neighbours, first: dict[str, object]) -> dict[str, int]:
    """Colours such that equal ones have as many neighbours of each colour at each kind of port."""
    numbers: dict[object, int] = {}
    colours = {v: numbers.setdefault(first[v], len(numbers)) for v in neighbours}
    while True:
        known: dict[object, int] = {}
        finer = {
            v: known.setdefault(
                (colours[v], frozenset(Counter((p, colours[o]) for p, o in near).items())),
                len(known),
            )
            for v, near in neighbours.items()
        }
        if len(known) == len(set(colours.values())):
            return finer
        colours = finer


def _machine_edges(
    node: NodeTopology, pattern: Pattern, near: list[tuple[Port, str]], forwarding: bool
) -> list[Edge]:
    """One machine's inside up to its NICs, in as few edges as tell the same."""
    if forwarding:
        return host_edges(node, pattern, split=False, nics=True, transit=True)
    if not (pattern[0] and pattern[1]):
        nics = tuple(sorted({port[0] for port, _ in near}))
        total = _through_nics(node, pattern, nics)
        if total >= sum(node.nics[i].rate for i in nics) * (1 - 1e-9):
            return _pooled(node, pattern, nics, INFINITE)  # every NIC can run full, all at once
        if len({other for _, other in near}) == 1:
            return _pooled(node, pattern, nics, total)  # only the sum matters to the one switch
    return host_edges(node, pattern, split=_climbs(node, pattern), nics=True)


def _climbs(node: NodeTopology, pattern: Pattern) -> bool:
    """Whether all of this traffic stops in host memory: without GPUDirect, without peer-to-peer."""
    direct = any(n.gpudirect for n in node.nics) and any(g.gpudirect for g in node.gpus)
    return not direct and (not (pattern[0] and pattern[1]) or node.gpu_peer_access is False)


def _pooled(node: NodeTopology, pattern: Pattern, nics: Side, total: BytesPerSecond) -> list[Edge]:
    names = [node.nics[i].name for i in nics]
    if pattern[0]:
        return [("source", "all", total), *(("all", name, INFINITE) for name in names)]
    return [("all", "target", total), *((name, "all", INFINITE) for name in names)]


@kept
def _through_nics(node: NodeTopology, pattern: Pattern, nics: Side) -> BytesPerSecond:
    """What a machine's senders can put into these NICs, or its receivers take out, bytes/s."""
    edges = host_edges(node, pattern, split=_climbs(node, pattern), nics=True)
    for nic in (node.nics[i] for i in nics):
        edges.append(
            (nic.name, "target", nic.rate) if pattern[0] else ("source", nic.name, nic.rate)
        )
    return maximum_flow(edges, "source", "target")
