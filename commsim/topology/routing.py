"""The ways data takes between two ranks, as vertex names of the cluster's graph.

NVLink (or xGMI) where two GPUs are joined by it directly, through a switch, or by one GPU that has
links to both; else PCIe inside a machine; else the network, from the sender's nearest NICs to the
receiver's. Otherwise GPUs pass nothing on for others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice, pairwise
from typing import TYPE_CHECKING

from commsim.errors import CollectiveError, UnreachableError
from commsim.topology.capacity import nearest_nics, scale_up_links
from commsim.topology.graph import nvswitch_vertex
from commsim.topology.node import NodeTopology
from commsim.topology.node_paths import cpu_names, ends, host_links
from commsim.topology.pair_ways import relayed

if TYPE_CHECKING:
    from commsim.topology.cluster import Cluster

Route = tuple[str, ...]
MOST_ROUTES = 1024
"""Equal routes that are listed: through machines with several cables each their number doubles from
one to the next."""


def find_routes(cluster: Cluster, source: int, target: int) -> tuple[Route, ...]:
    """Equal-cost shortest routes: those with the fewest links, the first MOST_ROUTES of them."""
    a, b = locate(cluster, source), locate(cluster, target)
    if a == b:
        return ((_vertex(cluster, *a),),)
    found = (
        _over_scale_up(cluster, a, b)
        or (a[0] == b[0] and _inside(cluster, a, b))
        or _over_network(cluster, a, b)
    )
    if not found:
        raise UnreachableError(_why_not(cluster, source, target))
    return found


def locate(cluster: Cluster, rank: int) -> tuple[int, int]:
    """The machine of a rank and its GPU there; CollectiveError on a rank that does not exist."""
    if not 0 <= rank < cluster.n_ranks:
        raise CollectiveError(
            f"{cluster.name}: rank {rank} does not exist, expected 0 .. {cluster.n_ranks - 1} "
            f"({cluster.nodes} nodes x {cluster.gpus_per_node} GPUs)"
        )
    return divmod(rank, cluster.gpus_per_node)


def _vertex(cluster: Cluster, host: int, local: int) -> str:
    return f"node{host}/{cluster.node.gpus[local].name}"


def _over_scale_up(cluster: Cluster, a: tuple[int, int], b: tuple[int, int]) -> tuple[Route, ...]:
    node = cluster.node
    links = scale_up_links(node)
    ours, theirs = node.gpus[a[1]].name, node.gpus[b[1]].name
    first, last = _vertex(cluster, *a), _vertex(cluster, *b)
    if a[0] == b[0] and theirs in links.get(ours, {}):
        return ((first, last),)
    if a[0] == b[0] and node.nvswitch is None:
        way = relayed(node, ours, theirs)
        return (_in_host(a[0], way),) if way else ()
    hosts = cluster.hosts_per_domain
    if node.nvswitch is None or a[0] // hosts != b[0] // hosts:
        return ()
    if not all(node.nvswitch.name in links.get(name, {}) for name in (ours, theirs)):
        return ()
    return ((first, nvswitch_vertex(cluster, a[0]), last),)


def _inside(cluster: Cluster, a: tuple[int, int], b: tuple[int, int]) -> tuple[Route, ...]:
    node = cluster.node
    ours, theirs = node.gpus[a[1]].name, node.gpus[b[1]].name
    peers = node.gpu_peer_access is not False
    return tuple(_in_host(a[0], way) for way in _host_ways(node, ours, theirs, direct=peers))


def _in_host(host: int, way: Route) -> Route:
    return tuple(f"node{host}/{name}" for name in way)


def _host_ways(node: NodeTopology, source: str, target: str, *, direct: bool) -> list[Route]:
    """Shortest ways through the host; unless `direct`, those that stop in a CPU's memory."""
    links, closed, cpus = host_links(node), ends(node), cpu_names(node)

    def after(name: str) -> Iterable[str]:
        return links.get(name, {}) if name not in closed or name == source else ()

    ways = list(shortest_ways(after, source, {target}))
    if direct or not ways or all(cpus.intersection(way) for way in ways):
        return ways
    stops = [
        up + down[1:]
        for cpu in sorted(cpus)
        for up in shortest_ways(after, source, {cpu})
        for down in shortest_ways(lambda n: after(n) if n != source else (), cpu, {target})
    ]
    least = min(map(len, stops), default=0)
    return [way for way in stops if len(way) == least]


def _over_network(cluster: Cluster, a: tuple[int, int], b: tuple[int, int]) -> tuple[Route, ...]:
    nearest = [nearest_nics(cluster.node, a[1]), nearest_nics(cluster.node, b[1])]
    every = tuple(range(len(cluster.node.nics)))
    # Without a switch only some NICs lead to the other machine, and those are then the ones to use.
    pairs = [(every, every)]
    if not cluster.wiring.forwarding:
        pairs.insert(0, (nearest[0], nearest[1]))
    for from_nics, to_nics in pairs:
        starts = _legs(cluster, a, from_nics)
        goals = _legs(cluster, b, to_nics)
        own = {f"node{a[0]}", f"node{b[0]}"}
        routes = list(islice(_through_fabric(cluster, starts, goals, own), MOST_ROUTES))
        if routes:
            least = min(map(len, routes))
            return tuple(route for route in routes if len(route) == least)
    return ()


def _legs(cluster: Cluster, end: tuple[int, int], nics: tuple[int, ...]) -> dict[str, list[Route]]:
    """For each NIC vertex, the ways to it from the GPU: through a CPU without GPUDirect."""
    node, gpu = cluster.node, cluster.node.gpus[end[1]]
    return {
        cluster.site.nic(end[0], i): [
            _in_host(end[0], way)
            for way in _host_ways(
                node, gpu.name, node.nics[i].name, direct=gpu.gpudirect and node.nics[i].gpudirect
            )
        ]
        for i in nics
    }


def _through_fabric(
    cluster: Cluster,
    starts: dict[str, list[Route]],
    goals: dict[str, list[Route]],
    own: set[str],
) -> Iterator[Route]:
    """The ways from NIC to NIC with the legs at both ends; machines but the `own` pass data on."""
    neighbours, known = cluster.fabric_neighbours, dict[tuple[str, str], Route]()
    switches = {s.name for s in cluster.wiring.switches}
    wanted = {nic for nic, legs in goals.items() if legs}

    def after(name: str) -> Iterable[str]:
        near = neighbours.get(name, ())
        host = name.partition("/")[0]
        if name not in switches and cluster.wiring.forwarding and host not in own:
            near = (*near, *(f"{host}/{nic}" for nic in cluster.site.nics))
        return (n for n in near if n in switches or n in wanted or cluster.wiring.forwarding)

    for nic, legs in starts.items():
        if not legs:
            continue
        for middle in shortest_ways(after, nic, wanted):
            whole = _expand(cluster, middle, known)
            for leg in legs:
                for last in goals[middle[-1]]:
                    yield leg[:-1] + whole + tuple(reversed(last))[1:]


def _expand(cluster: Cluster, way: Route, known: dict[tuple[str, str], Route]) -> Route:
    """The way with the inside of each machine that passes data on written out. known: the insides
    found so far, between two of a machine's devices.
    """
    whole: list[str] = [way[0]]
    for a, b in pairwise(way):
        host = a.partition("/")[0]
        if host == b.partition("/")[0] and "/" in a:
            ends = (a.partition("/")[2], b.partition("/")[2])
            first, last = sorted(ends)
            if (first, last) not in known:
                inner = _host_ways(cluster.node, first, last, direct=True)
                known[first, last] = inner[0] if inner else ()
            step = 1 if ends[0] == first else -1  # one way, the same in both directions
            whole += [f"{host}/{name}" for name in known[first, last][::step][1:-1]]
        whole.append(b)
    return tuple(whole)


def shortest_ways(
    after: Callable[[str], Iterable[str]], source: str, targets: set[str]
) -> Iterator[Route]:
    """Every way with the fewest links from source to each of the targets, in a fixed order."""
    distance = {source: 0}
    before: dict[str, list[str]] = {source: []}
    frontier, left = [source], set(targets) - {source}
    while frontier and left:
        reached: list[str] = []
        for name in frontier:
            for other in after(name):
                if other not in distance:
                    distance[other] = distance[name] + 1
                    before[other] = []
                    reached.append(other)
                if distance[other] == distance[name] + 1:
                    before[other].append(name)
        left.difference_update(reached)
        frontier = reached

    def back(name: str) -> Iterator[Route]:
        if name == source:
            yield (source,)
        for earlier in before[name]:
            for way in back(earlier):
                yield (*way, name)

    for target in sorted(targets):
        if target in before:
            yield from back(target)


def _why_not(cluster: Cluster, source: int, target: int) -> str:
    a, b = locate(cluster, source), locate(cluster, target)
    where = (
        f"{cluster.name}: rank {source} ({_vertex(cluster, *a)}) cannot reach rank {target} "
        f"({_vertex(cluster, *b)})"
    )
    if a[0] == b[0] and not cluster.node.nics:
        return f"{where}: no link leads from one to the other; add links between their devices"
    if not cluster.node.nics:
        return f"{where}: the nodes have no NICs; add [node.nics], or raise fabric.scale_up_domain"
    for end in (a, b):
        if not nearest_nics(cluster.node, end[1]):
            gpu = cluster.node.gpus[end[1]].name
            return f"{where}: no path leads from {gpu} to a NIC; link it to a CPU or PCIe switch"
    return f"{where}: no cable or switch joins their NICs; check fabric.kind"
