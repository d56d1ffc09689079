"""From a collective, a candidate and NCCL's layout to the numbers the formulas take."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

from commsim.collectives.collective import REDUCTIONS, Collective
from commsim.cost.family import clock, generation, host
from commsim.cost.transport import (
    copied,
    efa,
    flushed,
    injected,
    latency,
    matched_in_software,
    socket_threads,
)
from commsim.libraries.library import Candidate
from commsim.libraries.nccl.buffers import RING_CHUNK, SLICES, SMALLEST_SLICE
from commsim.libraries.nccl.constants import NEWEST, tree_bandwidth_per_channel
from commsim.libraries.nccl.facts import NcclFacts
from commsim.libraries.nccl.graph import Communicator, Graph, PathType
from commsim.libraries.nccl.point_to_point import CONCURRENT_PEERS
from commsim.libraries.nccl.system import nvlink_bandwidth
from commsim.libraries.xgmi import LINK_SHARE
from commsim.topology import capacity
from commsim.topology.cluster import Cluster
from commsim.topology.pair_ways import PATTERNS, mesh_share
from commsim.topology.placement import Placement
from commsim.units import KIB, MIB, BytesPerSecond

Tags = tuple[tuple[str, str], ...]

NO_LIMIT = 1e18
"""Stands for a link that is not in the way (bytes/s)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The group's machine as the formulas see it; rates in bytes/s per direction.

    link: what one GPU sends to its neighbours, by NCCL's figures, in a ring; pair_link: in
    messages to any of them. net: usable NICs of the poorest domain together; ring_net: of them,
    those that the ring's channels use; heads_net: that NVLS heads use; one_nic: one GPU's own
    share of them. lanes: channels that carry `link` together, as many as NCCL wants unless told
    otherwise. memory: of one GPU. cut: network rate per domain when every domain talks to all
    others at once. mesh: what of `link` GPUs joined without a switch reach when all pairs talk,
    each to the next, all to one.
    """

    link: BytesPerSecond
    pair_link: BytesPerSecond
    net: BytesPerSecond
    ring_net: BytesPerSecond
    heads_net: BytesPerSecond
    one_nic: BytesPerSecond
    cut: BytesPerSecond
    nics: int
    channels: int
    lanes: int
    memory: BytesPerSecond
    tags: Tags
    link_name: str
    net_name: str
    mesh: tuple[tuple[str, float], ...] = ()


LEAST_CUT = 1e-3
"""Share of a fabric whose halves are not joined: such pairs are refused, others need a rate."""
STAGED = 0.6
"""What staging in host memory, often over two sockets, leaves of PCIe: a guess, not a
measurement, so such a link has a name of its own and the interval widens."""
PCIE_SHARE = 0.76
"""What NCCL counts of a PCIe link's rate: 24 of 31.5 GB/s for Gen4 x16 (src/graph/topo.h)."""
TYPICAL_MEMORY = 1e12
"""Bytes/s, for a GPU whose memory the catalogue does not know."""


def _behind(graph: Graph | None, net: float, rate: float, every: bool) -> float:
    """Of a domain's NICs together, those that this graph's channels use. every: whether PXN brings
    all into play, as between the GPUs of one machine; a rack's rings and heads use as many as they
    have channels, and a lone GPU's those that the search gave it."""
    used = {nic for pair in graph.nets for nic in pair} if graph else set()
    return min(net, len(used) * rate) if used and not every else net


def _through(cluster: Cluster, comm: Communicator, local: tuple[int, ...]) -> BytesPerSecond:
    """What the rings carry together on their way through one machine, from NIC to NIC; 0 where they
    are not known."""
    parts = [node for node in comm.domains[0].nodes if node.ring.nets]
    if not parts or len(parts) < len(comm.domains[0].nodes):
        return 0.0
    channels = range(min(len(part.ring.nets) for part in parts))
    chains = tuple(
        (
            parts[0].ring.nets[c][0],
            tuple(local[part.ranks[at]] for part in parts for at in part.ring.orders[c]),
            parts[-1].ring.nets[c][1],
        )
        for c in channels
    )
    return capacity.chains_bandwidth(cluster.node, chains)


def _cut_share(cluster: Cluster) -> float:
    """What a node gets of its NICs' rate when every node talks to all others at once.

    Behind leaf switches the up-links bind, which carry nearly everything; without leaves the
    middle binds, which half of the traffic crosses.
    """
    share = max(cluster.bisection_share, LEAST_CUT)
    return min(1.0, 2 * share if cluster.fabric.kind in ("torus", "direct", "dragonfly") else share)


def _attachment(cluster: Cluster) -> str:
    """How NICs reach GPU memory: host (staged), c2c (through a coherent CPU), switch (PCIe switch)
    or root (the CPU's root ports)."""
    node = cluster.node
    nic = node.nics[0]
    if not nic.gpudirect:
        return "host"
    if any(link.kind == "c2c" for link in node.links):
        return "c2c"
    parent = {link.source: link.target for link in node.links if link.kind == "pcie"}
    return "root" if parent.get(nic.card, "") in {c.name for c in node.cpus} else "switch"


def _nvlink_share(cluster: Cluster) -> float:
    """What NCCL counts of an NVLink's data-sheet rate, by the newest release (0.8 on A100, 0.824
    on H100)."""
    gpu = cluster.node.gpus[0]
    link = next(k for k in cluster.node.links if k.kind == "nvlink")
    return min(
        1.0, nvlink_bandwidth(gpu.capability, NEWEST[:2]) * 1e6 * link.width / link.bandwidth
    )


def link_share(cluster: Cluster, m: Machine) -> float:
    """What NCCL counts of the data-sheet rate of the links inside a machine."""
    if m.link_name == "nvlink":
        return _nvlink_share(cluster)
    return 1.0 if m.link_name in ("xgmi", "none") else PCIE_SHARE


@lru_cache(maxsize=4096)
def machine(cluster: Cluster, facts: NcclFacts) -> Machine:
    """The machine of a group, from the topology and from what the graph search found."""
    comm, placement = facts.communicator, facts.placement
    shape = placement.domain_shapes[0][0]
    local = shape[0]
    crossing = comm.nodes > 1
    ring = comm.ring
    gb = 1e9
    vendor = "amd" if comm.max_capability == 0 else "nvidia"
    raw_link, link, link_name, pair_link = NO_LIMIT, NO_LIMIT, "none", NO_LIMIT
    if placement.max_per_domain > 1:
        scale_up = (
            capacity.scale_up_bandwidth(cluster.node, local)
            if len(local) > 1 or cluster.hosts_per_domain > 1
            else 0.0
        )
        over_nvlink = ring.type_intra <= PathType.NVB or (
            cluster.hosts_per_domain > 1 and cluster.node.nvswitch is not None
        )
        if over_nvlink and scale_up:
            link_name = "xgmi" if vendor == "amd" else "nvlink"
            raw_link = scale_up
            # RCCL's rings may leave links of a GPU unused: MI250X has seven or six, in four rings.
            in_rings = ring.channels * ring.bw_intra * gb / LINK_SHARE
            pair_link = scale_up * (_nvlink_share(cluster) if vendor == "nvidia" else 1.0)
            link = pair_link if vendor == "nvidia" else min(scale_up, in_rings)
        else:
            link_name = "pcie"
            raw_link = capacity.pcie_bandwidth(cluster.node, local) or NO_LIMIT
            found = ring.channels * ring.bw_intra * gb
            if found < 0.2 * gb:  # NCCL's last resort where its search finds nothing
                link_name = "pcie-staged"
                found = STAGED * PCIE_SHARE * capacity.host_ring_bandwidth(cluster.node, local)
            elif crossing:  # the search keeps a ring at its NICs' pace; the links have their own
                free = PCIE_SHARE * capacity.host_ring_bandwidth(cluster.node, local)
                found = max(found, free)
                if cluster.hosts_per_domain == 1 < placement.hosts and placement.uniform:
                    found = min(found, _through(cluster, comm, local) or NO_LIMIT)
            link = min(found or NO_LIMIT, raw_link)
            pair_link = PCIE_SHARE * (capacity.host_share(cluster.node, local) or raw_link)
    net = ring_net = heads_net = one_nic = cut = NO_LIMIT
    attach, net_name, nics = "none", "none", 0
    if crossing:
        usable = [
            sum(capacity.network_bandwidth(cluster.node, hosts) for hosts in s)
            for s, _ in placement.domain_shapes
        ]
        net = min(usable)
        per_host = [
            capacity.network_bandwidth(cluster.node, h) / len(h) for h, _ in placement.hosts_by_set
        ]
        nic = cluster.node.nics[0]
        nics = max(1, round(net / nic.rate))
        one_nic = max(min(per_host), min(nic.rate, net))
        every = cluster.hosts_per_domain == 1 and placement.max_per_host > 1
        ring_net = _behind(ring, net, nic.rate, every)
        heads_net = _behind(comm.nvls, net, nic.rate, every)
        cut = net * _cut_share(cluster)
        net_name = cluster.fabric.transport
        attach = _attachment(cluster)
    family = generation(cluster)
    if net_name == "efa":
        net_name = efa(family, cluster.node.nics[0].rate)
    tags = (
        ("generation", family), ("vendor", vendor), ("link", link_name),
        ("transport", net_name), ("attach", attach), ("pair", f"{family}/{net_name}"),
        ("cpu", cluster.node.cpus[0].vendor if crossing and cluster.node.cpus else "none"),
    )  # fmt: skip
    return Machine(
        link=link,
        pair_link=pair_link,
        net=net,
        ring_net=ring_net,
        heads_net=heads_net,
        one_nic=one_nic,
        cut=cut,
        nics=nics,
        channels=max(1, comm.coll_channels),
        lanes=max(1, comm.coll_channels, 2 * ring.channels),
        memory=cluster.gpu.memory_bandwidth or TYPICAL_MEMORY,
        tags=tags,
        link_name=link_name,
        net_name=net_name,
        mesh=()
        if link_name.startswith("pcie")
        else tuple((pattern, mesh_share(cluster.node, local, pattern)) for pattern in PATTERNS),
    )


def _nvls_chunk(nbytes: float, lanes: float, nodes: int) -> float:
    """Bytes of one NVLS chunk, smoothed. NCCL takes 16 KiB below 64 KiB a lane, 32 KiB to 512 KiB,
    64 KiB to 8 MiB, 128 KiB above (src/enqueue.cc); between the middles of these ranges we
    interpolate, so that more bytes never take less time."""
    most = 128 * KIB if nodes < 4 else 64 * KIB
    per_lane = nbytes / lanes
    points = (
        (45 * KIB, 16 * KIB),
        (181 * KIB, 32 * KIB),
        (2 * MIB, 64 * KIB),
        (16 * MIB, 128 * KIB),
    )
    if per_lane <= points[0][0]:
        return min(most, points[0][1])
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        if per_lane <= x1:
            t = math.log(per_lane / x0) / math.log(x1 / x0)
            return float(min(most, y0 * (y1 / y0) ** t))
    return min(most, points[-1][1])


SMALLEST_PART, LARGEST_PART = 64.0 * KIB, 16.0 * MIB
"""Bytes of a message on one channel between which NCCL splits it further, on one node
(src/enqueue.cc: step/8 and 32 steps of 512 KiB); on several nodes the network binds."""

NET_CHUNK = 128.0 * KIB
"""Bytes of a message that move over the network at once (NCCL_P2P_NET_CHUNKSIZE)."""

THREADS = {"LL": 512, "LL128": 640, "Simple": 512}
THRESHOLD = {"LL": 8, "LL128": 8, "Simple": 64}


def features(collective: Collective, candidate: Candidate, facts: NcclFacts, m: Machine) -> Any:
    """What FORMULAS[candidate.algorithm] needs, as a namespace of numbers."""
    placement, comm = facts.placement, facts.communicator
    n, nodes = placement.n, comm.nodes
    op, algorithm, protocol = collective.operation, candidate.algorithm, candidate.protocol
    nbytes = float(max(collective.nbytes, 1)) if op != "barrier" else float(collective.itemsize)
    local_ranks = placement.max_per_domain
    crosses = 1.0 if nodes > 1 else 0.0
    f = SimpleNamespace(
        n=float(n), nodes=float(nodes), local_ranks=float(local_ranks), nbytes=nbytes,
        crosses=crosses, link=m.link, net=_allowed(m, m.ring_net),
        channels=float(m.channels), lanes=float(m.lanes),
        protocol_name=protocol.lower(), algorithm_name=algorithm,
        channel_share=1.0, rendezvous=0.0, narrow_reduction=0.0, reduces=0.0,
        sockets=m.nics * socket_threads(facts.env) if m.net_name == "tcp" else NO_LIMIT,
        clock=clock(m.tags[0][1]), host=host(m.tags[0][1]), latency=latency(m.net_name),
        software=matched_in_software(m.net_name, facts.env), threads=1.0, injected=0.0,
        flushes=flushed(m.net_name, m.tags[0][1]) if protocol == "Simple" else 0.0,
    )  # fmt: skip
    if collective.itemsize == 1 and op in REDUCTIONS:
        f.narrow_reduction = 0.5 if op == "all_reduce" else 1.0
    depth = math.log2(nodes) if nodes > 1 else 0.0
    if algorithm == "ring":
        _ring(f, op, n, nodes, protocol, m)
        if protocol == "LL":
            f.rendezvous = copied(
                m.net_name, m.tags[1][1], 2 * f.message_bytes, f.messages_each, facts.env
            )
    elif algorithm == "tree":
        f.hops_local = 2.0 * (local_ranks - 1)
        f.hops_net = 2.0 * math.ceil(depth)
        f.net_passes = 1.0 if nodes <= 2 else 2.0
        f.tree_cap = NO_LIMIT
        if comm.max_capability:
            f.tree_cap = _tree_cap(comm.max_capability, nodes, comm.tree.channels)
        used = _channels_used(f, m, 1, protocol)
        f.queued = (1.0 if nodes <= 2 else 3.0) * max(0.0, used / _cards(f, m) - 1)
        if protocol == "LL":
            whole = nbytes / used
            message, each = min(whole, RING_CHUNK["LL"]), max(1.0, whole / RING_CHUNK["LL"])
            f.rendezvous = copied(m.net_name, m.tags[1][1], 2 * message, each, facts.env)
        f.fill_bytes = min(nbytes / used, 512 * KIB if protocol == "Simple" else 32 * KIB)
    elif algorithm in ("nvls", "nvls_tree"):
        blocks = float(max(1, comm.nvls_channels or 16))
        heads = float(max(1, comm.nvls.channels if comm.nvls else local_ranks))
        f.blocks = blocks
        f.chunk = _nvls_chunk(nbytes, blocks * heads, nodes)
        f.hops_net = 2.0 * math.ceil(depth) if algorithm == "nvls_tree" else 2.0 * crosses
        f.both_ways = 1.0 if op in ("all_reduce", "barrier") else 0.0
        f.net_passes = (1.0 if nodes <= 2 else 2 * (n - 1) / n) if algorithm == "nvls_tree" else 1.0
        if op in ("all_gather", "reduce_scatter"):
            f.net_passes = (nodes - 1) / nodes
        f.net = _allowed(m, m.heads_net)
    elif algorithm.startswith("collnet"):
        f.hops_local = 2.0 if algorithm == "collnet_direct" else 2.0 * (local_ranks - 1)
        f.hops_net = 2.0
        f.net_passes = 1.0 if op == "all_reduce" else (nodes - 1) / nodes
        f.net = m.net
    elif algorithm == "pat":
        f.hops_net, f.steps = max(1.0, depth), float(n - 1)
    else:
        f.memory = m.memory
        _point_to_point(f, collective, placement, comm, m)
    return f


def _ring(f: Any, op: str, n: int, nodes: int, protocol: str, m: Machine) -> None:
    reduce_and_gather = op in ("all_reduce", "barrier")
    if op in ("broadcast", "reduce"):
        hops, f.steps, f.copies = n - 1, float(n), 0.0
        f.hops_net = float(max(0, nodes - 1))
    else:
        hops = 2 * (n - 1) if reduce_and_gather else n - 1
        f.steps, f.copies = float(hops), 1.0
        f.reduces = 1.0 if op == "reduce_scatter" else 0.0
        f.hops_net = float((2 * nodes if reduce_and_gather else nodes) if nodes > 1 else 0)
    f.hops_net = min(f.hops_net, float(hops))
    f.hops_local = float(hops) - f.hops_net
    used = _channels_used(f, m, n if protocol == "LL" else 1, protocol)
    chunk = RING_CHUNK[protocol]
    f.piece_per_channel = min(f.nbytes / (n * used), chunk)
    f.round_bytes = f.piece_per_channel * used
    rounds, pieces = (1.0, 1) if op in ("broadcast", "reduce") else (f.steps, n)
    whole = f.nbytes / (pieces * used)
    f.message_bytes = min(whole, chunk)
    f.messages_each = rounds * max(1.0, whole / chunk)
    f.messages = f.messages_each * max(1.0, used / _cards(f, m))
    if protocol == "Simple":
        f.messages *= min(float(SLICES), max(1.0, whole / SMALLEST_SLICE))
    if m.link_name.startswith("pcie") and protocol == "Simple":
        f.copies = 0.0


def _cards(f: Any, m: Machine) -> float:
    """NICs that the channels of one machine use together, at least 1."""
    return max(1.0, min(float(m.nics), float(f.local_ranks)))


def _channels_used(f: Any, m: Machine, ranks: int, protocol: str) -> float:
    """Channels in use, not rounded so that more bytes never take less time: one for every
    threads x threshold bytes (NCCL, src/enqueue.cc); sets f.channel_share."""
    used = min(m.channels, max(1.0, f.nbytes / (THREADS[protocol] * THRESHOLD[protocol] * ranks)))
    f.channel_share = used / m.lanes
    return float(used)


def _allowed(m: Machine, net: BytesPerSecond) -> BytesPerSecond:
    """Of `net`, what channels reach where NCCL_MAX_NCHANNELS keeps them below the graph's own."""
    return net * min(1.0, 2 * m.channels / m.lanes)


def _tree_cap(capability: int, nodes: int, channels: int) -> float:
    return tree_bandwidth_per_channel(capability, nodes) * 1e9 * channels * 0.5


def _point_to_point(
    f: Any, c: Collective, placement: Placement, comm: Communicator, m: Machine
) -> None:
    n, p, nodes = placement.n, placement.max_per_domain, comm.nodes
    op = c.operation
    f.self_bytes = 0.0
    f.shift = (
        1.0 if op == "send_recv" and p > 1 else 0.0
    )  # from the last GPU to the first: two rails
    f.link = max(m.link, m.pair_link) if op == "send_recv" else m.pair_link
    f.mesh = dict(m.mesh).get({"all_to_all": "all", "send_recv": "shift"}.get(op, "root"), 1.0)
    message = f.nbytes / n if op in ("all_to_all", "gather", "scatter") else f.nbytes
    f.p2p_channels = float(max(1, comm.p2p_channels))
    f.injected = injected(m.net_name, m.tags[1][1], dict(m.tags)["attach"], message)
    most = float(
        max(1, min(comm.p2p_channels_per_peer, comm.p2p_channels // min(n, comm.p2p_channels)))
    )
    f.p2p_channels = min(f.p2p_channels, max(1.0, (n - 1) * most))
    f.p2p_lanes = max(f.p2p_channels, min(float(m.lanes), max(1.0, (n - 1) * most)))
    parts = min(max(1.0, message / SMALLEST_PART), most)
    parts = min(max(parts, message / LARGEST_PART), float(max(1, comm.p2p_channels_per_peer)))
    f.largest_part = message / parts if p > 1 else 0.0
    far = n - p if op in ("all_to_all", "gather", "scatter") else 1
    f.block_bytes = min(far, CONCURRENT_PEERS) * min(message, NET_CHUNK) * f.crosses
    if op == "all_to_all":
        each = f.nbytes / n
        f.peers_local, f.peers_remote = float(p - 1), float(n - p)
        f.local_bytes, f.self_bytes = each * (p - 1), each
        f.net_bytes, f.net = each * p * (n - p), min(m.net, m.cut)
    elif op in ("gather", "scatter"):
        each = f.nbytes / n
        f.peers_local, f.peers_remote = float(p - 1), float(n - p)
        f.local_bytes, f.self_bytes = each * (n - 1), each
        # Whoever sends, PXN or not, the root takes and gives through NICs of its own.
        f.net_bytes, f.net = each * (n - p), m.one_nic
    else:
        f.peers_local, f.peers_remote = (1.0, 0.0) if p > 1 else (0.0, 0.0)
        f.local_bytes = f.nbytes if p > 1 else 0.0
        if nodes > 1:
            f.peers_remote = 1.0
        f.net_bytes, f.net = f.nbytes, m.one_nic
    if f.local_bytes == 0.0 and m.link >= NO_LIMIT:
        f.self_bytes = 0.0
