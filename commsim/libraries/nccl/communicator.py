"""A communicator's graphs and channels as NCCL would find them on these machines.

`communicator` builds each distinct NVLink domain once, searches each NCCL node in it, aligns the
results over all ranks (minimum of channels and bandwidths, maximum of types) and counts the final
channels (sections 2.6, 4.8 and 4.9 of docs/nccl.md). Equal domains are searched once however many
there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache

from commsim.libraries.nccl import paths as _paths
from commsim.libraries.nccl import searched
from commsim.libraries.nccl import settings as _settings
from commsim.libraries.nccl.graph import (
    Communicator,
    DomainGraphs,
    Graph,
    NodeGraphs,
    PathType,
    Pattern,
)
from commsim.libraries.nccl.machine import Machine
from commsim.libraries.nccl.search import search
from commsim.libraries.nccl.settings import Settings, Version, max_channels
from commsim.libraries.nccl.system import build, keep, nvlink_bandwidth
from commsim.topology.node import NodeTopology

Hosts = tuple[tuple[int, ...], ...]  # per machine of a domain: places in node.gpus, in rank order
Domains = tuple[tuple[Hosts, int], ...]  # (machines of one domain, how many such domains in a row)


def layout(ranks: Iterable[int], gpus_per_node: int, hosts_per_domain: int = 1) -> Domains:
    """How these ranks lie on machines and NVLink domains, equal neighbours counted; rank r is GPU r
    % gpus_per_node of machine r // gpus_per_node, and `hosts_per_domain` consecutive machines form
    a domain.
    """
    domains: dict[int, dict[int, list[int]]] = {}
    for rank in ranks:
        host = rank // gpus_per_node
        domains.setdefault(host // hosts_per_domain, {}).setdefault(host, []).append(
            rank % gpus_per_node
        )
    runs: list[tuple[Hosts, int]] = []
    for hosts in domains.values():
        shape = tuple(tuple(local) for local in hosts.values())
        if runs and runs[-1][0] == shape:
            runs[-1] = (shape, runs[-1][1] + 1)
        else:
            runs.append((shape, 1))
    return tuple(runs)


class _Node:
    """One NCCL node: its machine for searching, its ranks, and what alignment and channel counts
    need.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.ranks = tuple(sorted(g.rank for g in machine.system.gpus))

    @cached_property
    def all_nvlink(self) -> bool:
        return all(p.type <= PathType.NVB for row in self.machine.paths.gpu_gpu for p in row)

    @cached_property
    def all_direct(self) -> bool:
        """Whether every pair reads each other's memory without a GPU in between."""
        m = self.machine
        every = range(m.n)
        return all(
            _paths.peer_to_peer(m.system, m.paths, m.settings, a, b)
            and m.paths.gpu_gpu[a][b].type != PathType.NVB
            for a in every
            for b in every
        )

    @cached_property
    def net_bandwidth(self) -> float:
        """GB/s of the slowest NIC that a rank of this node uses."""
        rows = self.machine.paths.gpu_net
        return min((max((p.bandwidth for p in row), default=0.0) for row in rows), default=0) / 1000

    @cached_property
    def peer_channels(self) -> int:
        """Channels that a pair of this node's GPUs may use for send and receive, the fewest over
        pairs.
        """
        m, fewest = self.machine, 1 << 30
        for g, row in enumerate(m.paths.gpu_gpu):
            capability = m.system.gpus[g].capability
            one = nvlink_bandwidth(capability, m.version)
            for p, path in enumerate(row):
                if p == g:
                    continue
                peer = 2
                if path.type == PathType.NVL and capability:
                    peer = 2 * max(1, int(path.bandwidth / one + 1e-6))
                fewest = min(fewest, peer)
        return fewest

    @cached_property
    def nets_needed(self) -> tuple[int, ...]:
        """Of each GPU: local NICs that together reach its best path to a NIC."""
        return tuple(_nets_for_bandwidth(self.machine, g) for g in range(self.machine.n))

    def graphs(self, collnet: bool) -> dict[str, Graph | None]:
        m = self.machine
        high = max_channels(m.version) // 2
        ring = search(m, Pattern.RING, 1, high)
        assert ring is not None
        tree = search(m, Pattern.BALANCED_TREE, ring.channels, ring.channels)
        found = {"ring": ring, "tree": tree, "nvls": None, "chain": None, "direct": None}
        if m.settings.nvls:
            found["nvls"] = search(m, Pattern.NVLS, 1, max_channels(m.version))
        if collnet:
            found["chain"] = search(m, Pattern.TREE, ring.channels, ring.channels, True)
            found["direct"] = search(m, Pattern.COLLNET_DIRECT, 1, max_channels(m.version), True)
        return found


@lru_cache(maxsize=64)
def _domain(
    node: NodeTopology, hosts: Hosts, version: Version, settings: Settings, alone: bool
) -> tuple[_Node, ...]:
    """The NCCL nodes of one domain. alone: no other domain belongs to the communicator."""
    system = build(node, hosts, version, _visible_nics(node, settings))
    paths = _paths.compute(system, settings)
    groups = _paths.islands(system, paths, settings)
    nodes = []
    for group in groups:
        part, routes = system, paths
        if len(group) < len(system.gpus):
            part = keep(system, group)
            routes = _paths.compute(part, settings)
        inter = not alone or len(groups) > 1
        nodes.append(_Node(Machine(part, routes, settings, inter)))
    return tuple(sorted(nodes, key=lambda each: each.ranks[0]))


@lru_cache(maxsize=64)
def _domain_graphs(
    node: NodeTopology,
    hosts: Hosts,
    version: Version,
    settings: Settings,
    alone: bool,
    collnet: bool,
) -> tuple[dict[str, Graph | None], ...]:
    known = searched.recall(searched.key(node, hosts, version, settings, alone, collnet))
    if known is not None:
        return known
    return fresh_graphs(node, hosts, version, settings, alone, collnet)


def fresh_graphs(
    node: NodeTopology,
    hosts: Hosts,
    version: Version,
    settings: Settings,
    alone: bool,
    collnet: bool,
) -> tuple[dict[str, Graph | None], ...]:
    """The graphs of each NCCL node of a domain, searched now."""
    return tuple(each.graphs(collnet) for each in _domain(node, hosts, version, settings, alone))


def _visible_nics(node: NodeTopology, settings: Settings) -> tuple[int, ...]:
    """The NICs that NCCL_IB_HCA leaves. Where it names devices this machine does not know, their
    number counts.
    """
    text = settings.nic_filter
    everything = tuple(range(len(node.nics)))
    if not text:
        return everything
    exclude = text.startswith("^")
    exact = "=" in text[:2]
    names = [each.split(":")[0] for each in text.lstrip("^=").split(",") if each]

    def matches(nic: str) -> bool:
        return any(nic == n if exact else nic.startswith(n) for n in names)

    hit = [i for i in everything if matches(node.nics[i].name)]
    if exclude:
        return tuple(i for i in everything if i not in hit) or everything
    return tuple(hit) or everything[: len(names)] or everything


def _aligned(graphs: Sequence[Graph]) -> Graph:
    return replace(
        graphs[0],
        channels=min(g.channels for g in graphs),
        bw_intra=min(g.bw_intra for g in graphs),
        bw_inter=min(g.bw_inter for g in graphs),
        type_intra=max(g.type_intra for g in graphs),
        type_inter=max(g.type_inter for g in graphs),
        same_channels=all(g.same_channels for g in graphs),
        cross_nic=max(g.cross_nic for g in graphs),
    )


def communicator(
    node: NodeTopology,
    *,
    domains: Domains,
    version: tuple[int, ...],
    env: tuple[tuple[str, str], ...] = (),
    collnet: bool = False,
    multicast: bool | None = None,
) -> Communicator:
    """Graphs, channel counts and tuner inputs of one communicator.

    domains: ((hosts, count), ...) in rank order, where hosts lists for every machine of one NVLink
    domain the places in node.gpus that its ranks use and count says how many such domains follow
    each other; see `layout`. 2,048 equal machines are ((((0, ..., 7),), 2048),) and cost as much as
    one. multicast: whether NVLink multicast (NVLS) works; None: on compute capability 9.0 and later
    with an NVSwitch. Versions outside 2.18 to 2.30 are taken as the nearest.
    """
    return _communicator(node, domains, _settings.modelled(version), env, collnet, multicast)


@lru_cache(maxsize=256)
def _communicator(
    node: NodeTopology,
    domains: Domains,
    version: Version,
    env: tuple[tuple[str, str], ...],
    collnet: bool,
    multicast: bool | None,
) -> Communicator:
    settings = _settings.read(env, version, collnet)
    alone = sum(count for _, count in domains) == 1
    rack = any(len(hosts) > 1 for hosts, _ in domains)
    if rack and version <= (2, 20):  # a machine is a node of its own even inside a rack
        domains = tuple(((h,), 1) for hosts, count in domains for _ in range(count) for h in hosts)
        alone = len(domains) == 1
    parts = [_domain(node, hosts, version, settings, alone) for hosts, _ in domains]
    found = [
        _domain_graphs(node, hosts, version, settings, alone, settings.collnet)
        for hosts, _ in domains
    ]
    nodes = [each for part in parts for each in part]
    graphs = [each for part in found for each in part]
    shapes = tuple(
        DomainGraphs(
            count=count,
            ranks=sum(len(local) for local in hosts),
            nodes=tuple(_node_graphs(n, g) for n, g in zip(part, group, strict=True)),
        )
        for (hosts, count), part, group in zip(domains, parts, found, strict=True)
    )

    def align(name: str) -> Graph | None:
        each = [g[name] for g in graphs]
        present = [g for g in each if g is not None]
        return _aligned(present) if present and len(present) == len(each) else None

    ring, tree, nvls = align("ring"), align("tree"), align("nvls")
    assert ring is not None
    assert tree is not None
    channels = min(ring.channels, tree.channels)
    ring, tree = replace(ring, channels=channels), replace(tree, channels=channels)
    count = sum(s.count * len(s.nodes) for s in shapes)
    ranks = sum(s.count * s.ranks for s in shapes)
    capabilities = [g.capability for n in nodes for g in n.machine.system.gpus]
    low, high = min(capabilities), max(capabilities)
    chain = align("chain")
    switched = all(n.machine.system.nvswitch >= 0 for n in nodes)
    if multicast is None:
        multicast = low >= 90 and switched
    smallest = min(len(n.ranks) for n in nodes)
    largest = max(len(n.ranks) for n in nodes)
    support = (
        multicast
        and settings.nvls
        and nvls is not None
        and nvls.channels > 0
        and smallest >= (2 if version >= (2, 28) else 3)
        and not (version <= (2, 20) and rack)
    )
    slowest_net = min(n.net_bandwidth for n in nodes)
    nvls_channels, chunk, tree_chunk = 0, 0, 0
    if support and nvls is not None:
        nvls_channels, chunk, tree_chunk = _nvls(
            version, settings, low, count, slowest_net, smallest, nvls
        )
    total = _coll_channels(version, settings, channels, ring, chain, low, count, ranks)
    coll = total
    if support and (2, 20) <= version <= (2, 27) and version != (2, 21):
        total = max(total, nvls_channels)
    first = nodes[0].machine
    cpu = first.system.vertices[first.system.cpus[0]].cpu
    assert cpu is not None
    p2p, per_peer = _p2p_channels(version, settings, total, nodes, ranks, count)
    return Communicator(
        n=ranks,
        nodes=count,
        max_local_ranks=largest,
        min_local_ranks=smallest,
        min_capability=low,
        max_capability=high,
        cpu_arch=cpu.arch,
        cpu_vendor=cpu.vendor,
        cpu_model=_cpu_model(cpu.arch, cpu.vendor, cpu.family, cpu.model),
        nvswitch=switched,
        ring=ring,
        tree=tree,
        nvls=nvls,
        collnet_chain=chain,
        collnet_direct=align("direct"),
        nvls_support=support,
        nvls_channels=nvls_channels,
        channels=total,
        coll_channels=coll,
        p2p_channels=p2p,
        p2p_channels_per_peer=per_peer,
        mnnvl=rack and version >= (2, 20),
        min_net_bandwidth=slowest_net,
        all_nvlink=all(n.all_nvlink for n in nodes),
        all_direct_p2p=all(n.all_direct for n in nodes),
        max_bw=first.max_bw / 1000,
        total_bw=first.total_bw / 1000,
        nic_count=len(first.system.nets),
        collnet=settings.collnet,
        nvls_chunk=chunk,
        nvls_tree_max_chunk=tree_chunk,
        domains=shapes,
    )


def _node_graphs(node: _Node, graphs: dict[str, Graph | None]) -> NodeGraphs:
    ring, tree = graphs["ring"], graphs["tree"]
    assert ring is not None
    assert tree is not None
    return NodeGraphs(ranks=node.ranks, ring=ring, tree=tree, nvls=graphs["nvls"])


def _cpu_model(arch: str, vendor: str, family: int, model: int) -> str:
    """The Intel generation as NCCL tells them apart; empty elsewhere."""
    if arch != "x86_64" or vendor != "intel":
        return ""
    if family == 6 and model >= 0xCF:
        return "emerald-rapids"
    if family == 6 and model >= 0x8F:
        return "sapphire-rapids"
    return "skylake" if family == 6 and model >= 0x55 else "broadwell"


def _nvls(
    version: Version,
    settings: Settings,
    capability: int,
    nodes: int,
    net: float,
    local_ranks: int,
    graph: Graph,
) -> tuple[int, int, int]:
    """NVLS channels, chunk and NVLSTree chunk limit (bytes)."""
    kib = 1024
    channels, chunk = 16, 128 * kib
    limit = 64 * kib if nodes >= 4 else 128 * kib
    if capability >= 100 and version >= (2, 25):
        channels = 24 if nodes == 1 and version >= (2, 27) else 32
    if capability >= 100 and version >= (2, 30) and nodes > 1:
        near = graph.type_inter <= PathType.PXB
        if nodes == 2 and net >= 48:
            channels, limit = 32, 128 * kib
            if local_ranks <= 4:
                chunk = limit = 256 * kib
            elif local_ranks >= 16 or (local_ranks <= 8 and near and net < 96):
                limit = 64 * kib
        elif net >= 96:
            if local_ranks <= 8:
                channels, limit = 24, 256 * kib
            else:
                channels, limit = 32, 128 * kib if local_ranks < 32 else 64 * kib
        elif net >= 48:
            channels, limit = 24, 64 * kib if near else 128 * kib
    if settings.nvls_channels is not None:
        channels = settings.nvls_channels
    low = max(1, settings.min_channels)
    return max(min(channels, settings.max_channels, max_channels(version)), low), chunk, limit


def _coll_channels(
    version: Version,
    settings: Settings,
    searched: int,
    ring: Graph,
    chain: Graph | None,
    capability: int,
    nodes: int,
    ranks: int,
) -> int:
    most = max_channels(version)
    count = min(2 * searched, most)
    if settings.collnet and chain is not None and chain.bw_intra > chain.bw_inter and ranks > nodes:
        count = min(most, count + count // 2)
    new = capability == 90 or (capability > 90 and version >= (2, 25))
    room = count < 16 if version >= (2, 20) else 2 * count <= most
    if new and nodes > 1 and ring.bw_intra > 45 and room:
        count *= 2
    count = min(count, settings.max_channels)
    return min(max(count, settings.min_channels), most)


def _p2p_channels(
    version: Version,
    settings: Settings,
    channels: int,
    nodes: Sequence[_Node],
    ranks: int,
    count: int,
) -> tuple[int, int]:
    """Channels for send and receive, and how many of them serve one peer."""
    p2p = max(min(channels, settings.max_p2p_channels), settings.min_p2p_channels)
    fewest = min([p2p, *(each.peer_channels for each in nodes)])
    if count > 1:
        fewest = min(
            [fewest, *(_remote_channels(version, settings, each, p2p, ranks) for each in nodes)]
        )
    p2p, per_peer = _power(p2p), _power(fewest)
    if version >= (2, 30) and count > 1:
        while per_peer > 1 and per_peer * -(-ranks // 8) > p2p:
            per_peer //= 2
    return p2p, min(per_peer, p2p)


def _remote_channels(
    version: Version, settings: Settings, node: _Node, p2p: int, ranks: int
) -> int:
    """Channels for a peer on another node, the fewest over this node's GPUs."""
    if settings.channels_per_net_peer is not None:
        return settings.channels_per_net_peer
    if version <= (2, 19):
        return 2
    if version >= (2, 29):
        return max(1, -(-int(node.net_bandwidth * 1000) // 14_000)) if node.net_bandwidth else 2
    share = 2
    while share > 1 and share * ranks > 4 * p2p:
        share //= 2
    return max(min(node.nets_needed), share)


def _nets_for_bandwidth(machine: Machine, gpu: int) -> int:
    """Local NICs needed to reach the best bandwidth of this GPU's path to a NIC."""
    row = machine.paths.gpu_net[gpu]
    best = max((p.bandwidth for p in row), default=0.0)
    sum_bw, count = 0.0, 0
    for place in _paths.local(row):
        sum_bw += 1000 * machine.system.nets[place].speed
        count += 1
        if sum_bw >= best:
            break
    return max(1, count)


def _power(value: int) -> int:
    """The smallest power of two not below value."""
    return 1 << (value - 1).bit_length()
