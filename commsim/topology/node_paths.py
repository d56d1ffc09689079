"""Ways through one machine without NVLink: over PCIe, C2C and CPU sockets, by device names.

Answers are kept per machine, so that asking again costs a dictionary look-up.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from itertools import pairwise
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from commsim.topology.flow import INFINITE
from commsim.topology.node import NodeTopology
from commsim.units import BytesPerSecond

P = ParamSpec("P")
R = TypeVar("R")

Path = tuple[str, ...]


class _Same:
    """A machine as a key by identity: hashing its hundred records takes longer than an answer."""

    __slots__ = ("node",)

    def __init__(self, node: NodeTopology) -> None:
        self.node = node

    def __hash__(self) -> int:
        return id(self.node)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.node is self.node


def kept(
    function: Callable[Concatenate[NodeTopology, P], R],
) -> Callable[Concatenate[NodeTopology, P], R]:
    """The same function with its answers kept per machine (by identity) and other arguments."""
    plain = cast("Callable[..., R]", function)

    @lru_cache(maxsize=4096)
    def by_key(key: _Same, *rest: Any) -> R:
        return plain(key.node, *rest)

    @wraps(function)
    def call(node: NodeTopology, *rest: Any) -> R:
        return by_key(_Same(node), *rest)

    return cast("Callable[Concatenate[NodeTopology, P], R]", call)


@kept
def ends(node: NodeTopology) -> frozenset[str]:
    """The devices that never pass data on: GPUs and NICs."""
    return frozenset([g.name for g in node.gpus] + [n.name for n in node.nics])


@kept
def cpu_names(node: NodeTopology) -> frozenset[str]:
    """The machine's CPUs by name."""
    return frozenset(c.name for c in node.cpus)


@kept
def host_links(node: NodeTopology) -> dict[str, dict[str, BytesPerSecond]]:
    """Bandwidth between two devices joined by PCIe, C2C, the socket link or a NIC's card, bytes/s.

    Of two cables between the same devices (PCIe and C2C, say) the faster counts: data takes one of
    them. A bandwidth of 0 means that the source of the machine does not know it: no limit.
    """
    neighbours: dict[str, dict[str, BytesPerSecond]] = {}

    def join(a: str, b: str, bandwidth: BytesPerSecond) -> None:
        for one, other in ((a, b), (b, a)):
            of_one = neighbours.setdefault(one, {})
            of_one[other] = max(of_one.get(other, 0.0), bandwidth)

    for link in node.links:
        if link.kind in ("pcie", "c2c", "socket"):
            join(link.source, link.target, link.bandwidth or INFINITE)
    for nic in node.nics:
        if nic.card != nic.name:
            join(nic.name, nic.card, nic.rate or INFINITE)
    return neighbours


@kept
def host_path(node: NodeTopology, source: str, target: str) -> Path:
    """The shortest way between two devices, the widest of several; empty if there is none."""
    links, closed = host_links(node), ends(node)
    best: dict[str, tuple[int, BytesPerSecond]] = {source: (0, INFINITE)}
    before: dict[str, str] = {}
    frontier = [source]
    while frontier and target not in best:
        reached: list[str] = []
        for name in frontier:
            if name in closed and name != source:
                continue
            hops, width = best[name]
            for other, bandwidth in links.get(name, {}).items():
                found = (hops + 1, min(width, bandwidth))
                if other not in best:
                    reached.append(other)
                elif best[other][0] < found[0] or best[other][1] >= found[1]:
                    continue
                best[other] = found
                before[other] = name
        frontier = reached
    if target not in best:
        return ()
    path = [target]
    while path[-1] != source:
        path.append(before[path[-1]])
    return tuple(reversed(path))


def path_bandwidth(node: NodeTopology, path: Path) -> BytesPerSecond:
    """The narrowest link of a way, bytes/s; 0 for no way."""
    links = host_links(node)
    return min((links[a][b] for a, b in pairwise(path)), default=0.0)


@kept
def through_host(node: NodeTopology, source: str, target: str) -> Path:
    """The shortest way that stops in a CPU's memory; a switch may stand in it twice."""
    ways = []
    for cpu in node.cpus:
        up, down = host_path(node, source, cpu.name), host_path(node, cpu.name, target)
        if up and down:
            ways.append(up + down[1:])
    return min(ways, key=len, default=())


@kept
def peer_path(node: NodeTopology, source: str, target: str) -> Path:
    """The way between two GPUs of the machine; through a CPU where peer-to-peer is refused."""
    path = host_path(node, source, target)
    if node.gpu_peer_access is False and not cpu_names(node).intersection(path):
        path = through_host(node, source, target)
    return path


@kept
def to_cpu(node: NodeTopology, source: str) -> Path:
    """The way from a device to its nearest CPU."""
    return min(
        (p for cpu in node.cpus if (p := host_path(node, source, cpu.name))), key=len, default=()
    )
