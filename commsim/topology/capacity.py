"""What one machine and its network can carry, bytes/s per direction: where cost models start.

`local` names GPUs of a machine by their position in `node.gpus`, in ascending order. Everything
is raw link capacity with no protocol in it, and is kept per machine and set of GPUs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import pairwise

from commsim.topology.flow import INFINITE, Edge, maximum_flow
from commsim.topology.node import NodeTopology
from commsim.topology.node_paths import (
    Path,
    cpu_names,
    ends,
    host_links,
    host_path,
    kept,
    path_bandwidth,
    peer_path,
    to_cpu,
)
from commsim.units import BytesPerSecond

Local = tuple[int, ...]

# ---- NVLink and xGMI ----


@kept
def scale_up_links(node: NodeTopology) -> dict[str, dict[str, BytesPerSecond]]:
    """NVLink and xGMI bandwidth of each GPU to its neighbours (GPUs, the NVSwitch), bytes/s."""
    neighbours: dict[str, dict[str, BytesPerSecond]] = {}
    for link in node.links:
        if link.kind in ("nvlink", "xgmi"):
            for a, b in ((link.source, link.target), (link.target, link.source)):
                of_a = neighbours.setdefault(a, {})
                of_a[b] = of_a.get(b, 0.0) + link.bandwidth
    return neighbours


@kept
def scale_up_islands(node: NodeTopology, local: Local) -> tuple[Local, ...]:
    """The groups of these GPUs that reach each other over NVLink or xGMI, by first member.

    Only members relay: two GPUs joined through a third that takes no part are apart.
    """
    links = scale_up_links(node)
    members = {node.gpus[i].name: i for i in local}
    islands: list[Local] = []
    seen: set[str] = set()
    for start in members:
        if start in seen:
            continue
        island = {start}
        queue = deque(island)
        while queue:
            for other in links.get(queue.popleft(), {}):
                if other not in island and (other in members or _is_nvswitch(node, other)):
                    island.add(other)
                    queue.append(other)
        seen |= island
        islands.append(tuple(sorted(members[name] for name in island if name in members)))
    return tuple(islands)


@kept
def scale_up_bandwidth(node: NodeTopology, local: Local) -> BytesPerSecond:
    """NVLink or xGMI bandwidth of the worst-connected of these GPUs to the others, bytes/s.

    min over g of (g's links to the NVSwitch + g's links to other members); 0 where one has none.
    """
    links = scale_up_links(node)
    members = {node.gpus[i].name for i in local}
    return min(
        sum(
            bandwidth
            for other, bandwidth in links.get(name, {}).items()
            if other in members or _is_nvswitch(node, other)
        )
        for name in members
    )


def _is_nvswitch(node: NodeTopology, name: str) -> bool:
    return node.nvswitch is not None and node.nvswitch.name == name


# ---- PCIe, C2C and sockets ----


@kept
def pcie_bandwidth(node: NodeTopology, local: Local) -> BytesPerSecond:
    """The slowest own host link (PCIe or C2C) of these GPUs, bytes/s; 0 where one has none."""
    links = host_links(node)
    return min(max(links.get(node.gpus[i].name, {}).values(), default=0.0) for i in local)


@kept
def host_share(node: NodeTopology, local: Local) -> BytesPerSecond:
    """What each of these GPUs gets when all copy to their CPU at once, bytes/s.

    min over links of bandwidth / GPUs that use it.
    """
    return _least_share(node, [path for i in local if (path := to_cpu(node, node.gpus[i].name))])


@kept
def host_ring_bandwidth(node: NodeTopology, local: Local) -> BytesPerSecond:
    """What a ring g0 -> g1 -> ... -> g0 carries without NVLink, bytes/s.

    min over directed links of bandwidth / uses. Each hop takes the shortest host path, or stops in
    host memory where the driver refuses peer-to-peer. 0 where two neighbours have no such path.
    """
    names = [node.gpus[i].name for i in local]
    ways = [peer_path(node, a, b) for a, b in zip(names, names[1:] + names[:1], strict=True)]
    return _least_share(node, ways) if len(names) > 1 and all(ways) else 0.0


@kept
def chains_bandwidth(
    node: NodeTopology, chains: tuple[tuple[int, Local, int], ...]
) -> BytesPerSecond:
    """What rings of several machines carry inside this one together, bytes/s: each enters by a NIC,
    passes GPUs and leaves by a NIC (`chains`).

    min over directed links of bandwidth / uses, times rings. NICs themselves and their slots are
    left out: what they carry is the network's. 0 where a way is missing.
    """
    ways: list[Path] = []
    for enter, gpus, leave in chains:
        names = [node.gpus[i].name for i in gpus]
        ways.append(host_path(node, node.nics[enter].name, names[0]))
        ways += [peer_path(node, a, b) for a, b in pairwise(names)]
        ways.append(host_path(node, names[-1], node.nics[leave].name))
    outside = {nic.name for nic in node.nics} | {nic.card for nic in node.nics}
    inside = [tuple(device for device in way if device not in outside) for way in ways]
    return len(chains) * _least_share(node, inside) if chains and all(ways) else 0.0


def _least_share(node: NodeTopology, paths: list[Path]) -> BytesPerSecond:
    links = host_links(node)
    users: dict[tuple[str, str], int] = {}
    for path in paths:
        for pair in pairwise(path):
            users[pair] = users.get(pair, 0) + 1
    return min((links[a][b] / count for (a, b), count in users.items()), default=0.0)


@kept
def fastest_exit(node: NodeTopology, gpu: int) -> BytesPerSecond:
    """The most that can leave one GPU by one kind of link, bytes/s: NVLink (xGMI) or host link."""
    over_nvlink = sum(scale_up_links(node).get(node.gpus[gpu].name, {}).values())
    return max(over_nvlink, pcie_bandwidth(node, (gpu,)))


# ---- NICs ----


@kept
def nic_distance(node: NodeTopology, gpu: int, nic: int) -> tuple[BytesPerSecond, int]:
    """Bandwidth of the way from a GPU to a NIC (bytes/s, 0 if there is none) and how far it is.

    How far, in PCIe words: 1 at most one switch (PIX), 2 several (PXB), 3 a host bridge (PHB),
    4 another socket (SYS).
    """
    path = host_path(node, node.gpus[gpu].name, node.nics[nic].name)
    if not path:
        return 0.0, 5
    cpus = len(cpu_names(node).intersection(path))
    switches = len({s.name for s in node.switches}.intersection(path))
    far = 4 if cpus > 1 else 3 if cpus else 2 if switches > 1 else 1
    return min(path_bandwidth(node, path), node.nics[nic].rate), far


@kept
def nearest_nics(node: NodeTopology, gpu: int) -> Local:
    """NICs that a GPU counts as its own: the widest way, then the nearest; indices of node.nics."""
    return _nearest((n, *nic_distance(node, gpu, n)) for n in range(len(node.nics)))


@kept
def own_nics(node: NodeTopology, gpu: int, local: Local) -> Local:
    """NICs that a GPU really uses when the GPUs `local` take part: its share of its nearest.

    NCCL's rule: with L nearest NICs, and G members nearest to the first of them, channel c uses
    NIC (reverse_bits(CUDA index) + c mod ceil(L / G)) mod L; bits are reversed within log2 L where
    L is a power of two, so that neighbours spread out. The NIC of the first channel comes first.
    """
    near = nearest_nics(node, gpu)
    if not near:
        return ()
    n = len(near)
    sharing = len(_nearest((g, *nic_distance(node, g, near[0])) for g in local))
    start = node.gpus[gpu].index
    if n & (n - 1) == 0:
        bits = n.bit_length() - 1
        start = sum(((start >> i) & 1) << (bits - 1 - i) for i in range(bits))
    return tuple(near[(start + c) % n] for c in range(-(-n // max(1, sharing))))


@kept
def used_nics(node: NodeTopology, local: Local) -> Local:
    """Every NIC that some of these GPUs uses, as indices of node.nics."""
    return tuple(sorted({nic for gpu in local for nic in own_nics(node, gpu, local)}))


@kept
def network_bandwidth(node: NodeTopology, local: Local) -> BytesPerSecond:
    """What these GPUs can send through their own NICs while they receive as much, bytes/s.

    The largest flow from the GPUs to the NICs over PCIe: a NIC gives its rate, capped by its card's
    link, by switch uplinks where data must cross them, and by sockets. Without GPUDirect, data
    stops in host memory: a link with GPU and NIC below it carries each byte twice.
    """
    return _network(node, local, used_nics(node, local))


@kept
def network_cut(node: NodeTopology, local: Local) -> BytesPerSecond:
    """What these GPUs could send through all NICs of the machine, bytes/s: the physical bound."""
    return _network(node, local, tuple(range(len(node.nics))))


def _nearest(candidates: Iterable[tuple[int, BytesPerSecond, int]]) -> Local:
    reachable = [c for c in candidates if c[1] > 0]
    best = max(((bandwidth, -far) for _, bandwidth, far in reachable), default=None)
    return tuple(i for i, bandwidth, far in reachable if (bandwidth, -far) == best)


def _network(node: NodeTopology, local: Local, nics: Local) -> BytesPerSecond:
    gpus = [node.gpus[i].name for i in local]
    direct_gpus = [node.gpus[i].name for i in local if node.gpus[i].gpudirect]
    direct_nics = tuple(n for n in nics if node.nics[n].gpudirect) if direct_gpus else ()
    if len(direct_gpus) == len(gpus) and len(direct_nics) == len(nics):
        return _direct(node, gpus, nics)
    # Machines with both kinds of NIC are rare: the two kinds of traffic are taken as not in each
    # other's way, except on the GPUs' way out.
    staged_nics = tuple(n for n in nics if n not in direct_nics) or nics
    total = _direct(node, direct_gpus, direct_nics) + _staged(node, gpus, staged_nics)
    return min(total, _into_host(node, gpus, cpu_names(node)))


def _direct(node: NodeTopology, gpus: list[str], nics: Local) -> BytesPerSecond:
    """From GPU memory to the NICs, bytes/s; no other GPU or NIC passes data on."""
    names = {node.nics[n].name for n in nics}
    edges: list[Edge] = [
        (a, b, bandwidth)
        for a, others in host_links(node).items()
        if a not in ends(node) or a in gpus
        for b, bandwidth in others.items()
        if b not in ends(node) or b in names
    ]
    edges += [("source", g, INFINITE) for g in gpus]
    edges += [(node.nics[n].name, "target", node.nics[n].rate) for n in nics]
    return maximum_flow(edges, "source", "target")


def _staged(node: NodeTopology, gpus: list[str], nics: Local) -> BytesPerSecond:
    """Through host memory, both directions at once, bytes/s.

    GPU traffic x and NIC traffic y meet on links above both, where x + y must fit (what is sent
    goes up from the GPU and down to the NIC, what is received the other way round). The feasible
    (x, y) form a polymatroid of rank f, so the best min(x, y) is min(f(G), f(N), f(G + N) / 2).
    Sockets: a CPU's NICs get what its own GPUs and its socket links bring, and the reverse.
    """
    names = [node.nics[n].name for n in nics]
    cpus = cpu_names(node)
    sent = received = 0.0
    for cpu in cpus:
        of_gpus = _into_host(node, gpus, frozenset({cpu}))
        of_nics = _into_host(node, names, frozenset({cpu}))
        across = sum(b for other, b in host_links(node).get(cpu, {}).items() if other in cpus)
        sent += min(of_gpus, of_nics + across)
        received += min(of_nics, of_gpus + across)
    return min(sent, received, _into_host(node, gpus + names, cpus) / 2)


def _into_host(node: NodeTopology, devices: list[str], cpus: frozenset[str]) -> BytesPerSecond:
    """What these devices can bring into the memory of these CPUs, no socket crossed, bytes/s."""
    every, closed = cpu_names(node), ends(node)
    rates = {n.name: n.rate for n in node.nics}
    edges: list[Edge] = [
        (a, b, bandwidth)
        for a, others in host_links(node).items()
        if a not in every and (a not in closed or a in devices)
        for b, bandwidth in others.items()
        if b not in closed and (b not in every or b in cpus)
    ]
    edges += [("source", d, rates.get(d, INFINITE)) for d in devices]
    edges += [(c, "target", INFINITE) for c in cpus]
    return maximum_flow(edges, "source", "target")
