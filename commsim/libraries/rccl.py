"""AMD's RCCL as a Library: NCCL's rings and trees on xGMI, chosen by size.

RCCL is a fork of NCCL (releases 2.18 to 2.27) without NVLS, and picks by tables of its own that
are tuned per GPU. Those tables are not modelled: the sizes at which it changes protocol are a guess
that fits the published runs (four logs of MI300X, MI355X and MI250X), so there is no estimate, and
every choice says so in its notes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Final

from commsim.collectives.collective import Collective
from commsim.errors import LibraryError
from commsim.libraries.library import Candidate, Choice, Library
from commsim.libraries.nccl import point_to_point
from commsim.libraries.nccl.constants import PROTOCOLS, Version, modelled, parse_version
from commsim.libraries.nccl.environment import OFF, Environment, Settings, freeze, read
from commsim.libraries.nccl.facts import NcclFacts
from commsim.libraries.nccl.graph import (
    Communicator,
    DomainGraphs,
    Graph,
    NodeGraphs,
    PathType,
    Pattern,
)
from commsim.libraries.nccl.launch import launch
from commsim.libraries.nccl.rules import DISPLAY
from commsim.libraries.nccl.selection import (
    Group,
    asked_for,
    check_launch,
    check_root,
    counted,
    domains,
    messages,
    stand_in,
)
from commsim.libraries.nccl.settings import read as channel_settings
from commsim.libraries.xgmi import LINK_SHARE, chains, rings, wires
from commsim.topology.cluster import Cluster
from commsim.topology.placement import place
from commsim.units import KIB, MIB, Bytes, format_size

OLDEST: Final[Version] = (2, 18, 1)
NEWEST: Final[Version] = (2, 27, 7)
LOW_LATENCY_UP_TO: Final[Bytes] = 256 * KIB
RING_FROM: Final[Bytes] = 8 * MIB
"""Where Ring Simple takes over on one machine, and on MI200 (published MI250X run, 4 nodes: four
times slower there)."""
RING_FROM_NETWORK: Final[Bytes] = 64 * MIB
"""The same over the network from MI300 on (published MI355X run, 2 nodes: one smooth curve up to
there)."""
PUBLISHED_NODES: Final = 4
"""Machines up to which runs show where Ring takes over. Its steps grow with the ranks, so over more
machines Ring is taken to start, and all_gather and reduce_scatter to leave LL and LL128, in
proportion later: at the same bytes for each rank."""
_COPIES: Final = 8  # channels per ring on one machine: 56 on the seven rings of eight MI300X
_PER_NIC: Final = 4  # channels per NIC over several machines
_MOST: Final = 64
_GUESS: Final = (
    f"RCCL's own tables are not modelled: LL up to {format_size(LOW_LATENCY_UP_TO)}, LL128 up to "
    f"{format_size(RING_FROM)} ({format_size(RING_FROM_NETWORK)} over the network from MI300 "
    "on, none over that of MI200) and then Ring Simple are a guess that fits published runs"
)
_COUNT_GUESS: Final = "RCCL's channel count is nominal, not from its own search"


@dataclass(frozen=True)
class Rccl(Library):
    """RCCL of a version, named by the NCCL release it is based on, with its environment (NCCL_...,
    as in RCCL). launch: as for NCCL."""

    version: str = "2.27.7"
    env: Mapping[str, str] | Environment | None = ()
    launch: str | None = "processes"
    name = "rccl"

    def __post_init__(self) -> None:
        parse_version(self.version)
        object.__setattr__(self, "env", freeze(self.env))
        object.__setattr__(self, "launch", check_launch(self.launch))

    @property
    def variables(self) -> dict[str, str]:
        """The environment as a dict."""
        return dict(freeze(self.env))

    def choose(self, collective: Collective, cluster: Cluster) -> Choice:
        """Tree or Ring and the protocol by size; no estimate."""
        group = _group(self, cluster, collective.ranks)
        check_root(collective, cluster)
        if collective.operation in point_to_point.OPERATIONS:
            return messages(group, collective)
        operation, nbytes, _, _ = counted(collective, group.c.n)
        return _pick(group, operation, nbytes, collective.itemsize, cluster.gpu.name)


def wanted(operation: str, nbytes: Bytes, nodes: int, part: str = "") -> tuple[str, str]:
    """Algorithm and protocol for a size (bytes) on GPUs named `part`, where nothing is forced."""
    later = max(1, nodes // PUBLISHED_NODES)
    ring_from = RING_FROM
    if operation == "all_reduce" and nodes > 1 and not _old(part):
        ring_from = RING_FROM_NETWORK
    tree = operation == "all_reduce" and nodes > 1 and nbytes < ring_from * later
    grown = 1 if operation == "all_reduce" else later  # a ring's steps grow with the ranks
    if nbytes <= LOW_LATENCY_UP_TO * grown:
        protocol = "LL"
    elif nodes > 1 and _old(part):  # LL128's ordered stores are kept from MI200's network
        protocol = "Simple"
    else:
        protocol = "LL128" if nbytes < ring_from * grown else "Simple"
    return ("tree" if tree else "ring"), protocol


def _old(part: str) -> bool:
    return part.upper().startswith("MI2")


def _pick(group: Group, operation: str, nbytes: Bytes, itemsize: int, part: str) -> Choice:
    algorithm, protocol = wanted(operation, nbytes, group.c.nodes, part)
    algorithms = ("tree", "ring") if operation == "all_reduce" else ("ring",)
    candidates, best, rank = [], None, math.inf
    for a in algorithms:
        for p in PROTOCOLS:
            reason = _reason(group, operation, a, p)
            on = launch(group.c, group.version, group.settings, operation, a, p, nbytes, itemsize)
            candidate = Candidate(
                algorithm=a,
                protocol=p,
                channels=0 if reason else on.channels,
                estimate=math.inf if reason else math.nan,
                available=not reason,
                reason=reason,
            )
            candidates.append(candidate)
            # Forced away from its first wish it keeps the algorithm and takes the next protocol.
            distance = 10 * (a != algorithm) + abs(PROTOCOLS.index(p) - PROTOCOLS.index(protocol))
            if not reason and distance < rank:
                best, rank = candidate, distance
    if best is None:
        told = asked_for(group.settings)
        raise LibraryError(
            f"{told}: nothing is left for {operation} with RCCL, which has Ring and (for "
            f"all_reduce) Tree; name one of them or unset the variable"
        )
    why = (
        f"RCCL runs {DISPLAY[best.algorithm]} {best.protocol} at {format_size(nbytes)}"
        f"{f' because of {asked_for(group.settings)}' if rank else ''}"
    )
    return Choice(
        chosen=best,
        candidates=tuple(candidates),
        reasons=(why,),
        notes=(*group.notes, _GUESS),
        facts=group.facts,
    )


def _reason(group: Group, operation: str, algorithm: str, protocol: str) -> str:
    settings, version = group.settings, group.version
    if settings.algorithm_state(operation, algorithm) == OFF and not _ring_anyway(
        settings, version, operation, algorithm
    ):
        return f"NCCL_ALGO={settings.algorithm_text} leaves {DISPLAY[algorithm]} out"
    if settings.protocol_state(operation, protocol) == OFF:
        return f"NCCL_PROTO={settings.protocol_text} leaves {protocol} out"
    return ""


def _ring_anyway(settings: Settings, version: Version, operation: str, algorithm: str) -> bool:
    """Up to 2.23, Ring runs where a list leaves nothing for an operation."""
    exist = ("tree", "ring") if operation == "all_reduce" else ("ring",)
    none_left = not any(settings.algorithm_state(operation, a) for a in exist)
    return none_left and algorithm == "ring" and version < (2, 24, 0)


@lru_cache(maxsize=256)
def _group(library: Rccl, cluster: Cluster, ranks: tuple[int, ...] | None) -> Group:
    asked = parse_version(library.version)
    version = min(modelled(asked), NEWEST)
    env = freeze(library.env)
    settings = read(env, version)
    if cluster.gpu.vendor != "amd":
        other = "nccl" if cluster.gpu.vendor == "nvidia" else "gloo or mpi"
        raise LibraryError(
            f"{cluster.name}: RCCL needs AMD GPUs, and {cluster.gpu.name} is not one; use {other}"
        )
    c = communicator(cluster, ranks, env)
    notes = [*settings.notes, _COUNT_GUESS]
    if asked != version:
        notes.append(stand_in("RCCL", asked, version, OLDEST, NEWEST))
    facts = NcclFacts(
        placement=place(cluster, ranks), communicator=c, version=version,
        launch=check_launch(library.launch), env=env,
    )  # fmt: skip
    return Group(
        name="RCCL", version=version, settings=settings, c=c, facts=facts, notes=tuple(notes)
    )


def communicator(cluster: Cluster, ranks: tuple[int, ...] | None, env: Environment) -> Communicator:
    """Rings over the xGMI mesh of each machine, joined over all NICs of the machines."""
    placement = place(cluster, ranks)
    hosts = placement.hosts
    shapes: list[DomainGraphs] = []
    for machines, count in domains(cluster, ranks):
        nodes, first = [], 0
        for gpus in machines:
            ring = _graph(cluster, gpus, hosts, Pattern.RING)
            tree = _graph(cluster, gpus, hosts, Pattern.BALANCED_TREE)
            local = tuple(range(first, first + len(gpus)))
            nodes.append(NodeGraphs(ranks=local, ring=ring, tree=tree))
            first += len(gpus)
        shapes.append(DomainGraphs(count=count, ranks=first, nodes=tuple(nodes)))
    narrow = min((n for s in shapes for n in s.nodes), key=lambda n: n.ring.channels)
    ring, tree = narrow.ring, narrow.tree
    limits = channel_settings(env, NEWEST[:2], False)
    total = max(min(_channels(ring, hosts), limits.max_channels), limits.min_channels, 1)
    p2p = 1 << (total - 1).bit_length()
    cpu = cluster.node.cpus[0] if cluster.node.cpus else None
    speed = ring.bw_intra * ring.channels
    return Communicator(
        n=placement.n, nodes=hosts,
        max_local_ranks=placement.max_per_host, min_local_ranks=placement.min_per_host,
        min_capability=0, max_capability=0,
        cpu_arch=cpu.arch if cpu else "x86_64", cpu_vendor=cpu.vendor if cpu else "amd",
        cpu_model="", nvswitch=False, ring=ring, tree=tree, channels=total, coll_channels=total,
        p2p_channels=p2p, p2p_channels_per_peer=min(p2p, 2 if hosts == 1 else 4),
        min_net_bandwidth=min((n.rate for n in cluster.node.nics), default=0.0) / 1e9,
        all_nvlink=ring.type_intra == PathType.NVL, all_direct_p2p=ring.type_intra <= PathType.NVL,
        max_bw=speed, total_bw=speed, nic_count=len(cluster.node.nics), domains=tuple(shapes),
    )  # fmt: skip


def _channels(ring: Graph, hosts: int) -> int:
    return min(_MOST, ring.channels * (_COPIES if hosts == 1 else _PER_NIC))


def _graph(cluster: Cluster, gpus: tuple[int, ...], hosts: int, pattern: Pattern) -> Graph:
    """One machine's channels: a ring each on one machine, a NIC each over several."""
    node = cluster.node
    orders = rings(node, gpus)
    links, rate = wires(node, gpus)
    hops = [(a, b) for order in orders for a, b in pairwise((*order, order[0]))]
    closed = all(links.get(hop) for hop in hops if hop[0] != hop[1])
    intra = PathType.LOC if len(gpus) == 1 else PathType.NVL if links and closed else PathType.SYS
    near = cluster.nic_placement in ("per-gpu", "per-pcie-switch")
    inter = PathType.PIX if near or hosts == 1 else PathType.PHB
    if intra == PathType.SYS or not rate:
        rate = min((k.bandwidth for k in node.links if k.kind == "pcie"), default=0.0) / 1e9
    speed = rate * LINK_SHARE
    nets: tuple[tuple[int, int], ...] = ()
    outside = speed
    if hosts > 1:
        count = max(1, min(len(node.nics), max(len(orders), len(gpus))))
        starts = tuple(channel * len(gpus) // count % len(gpus) for channel in range(count))
        fit = chains(node, gpus, starts) if count > len(orders) else ()
        orders = fit or tuple(_from(orders[i % len(orders)], s) for i, s in enumerate(starts))
        nearest = {first: nic for nic, first in reversed(list(enumerate(starts)))}
        nets = tuple((i, nearest.get(fit[i][-1], i) if fit else i) for i in range(count))
        nets = nets if node.nics else ()
        outside = min((n.rate for n in node.nics), default=0.0) / 1e9
    return Graph(
        pattern=pattern, channels=len(orders), bw_intra=speed, bw_inter=outside, type_intra=intra,
        type_inter=inter, same_channels=len(set(orders)) == 1, orders=orders, nets=nets,
    )  # fmt: skip


def _from(order: tuple[int, ...], first: int) -> tuple[int, ...]:
    """The ring from a GPU on; that which lies nearest to the channel's NIC, both being in order."""
    start = order.index(first)
    return order[start:] + order[:start]
