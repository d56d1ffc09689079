"""Where a picture of a cluster puts its devices and switches, and which links it draws."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from commsim.report.binding import part
from commsim.topology.cluster import Cluster
from commsim.units import BytesPerSecond

# How far up a kind of vertex stands: the machine below, the fabric above.
LEVELS = {
    "cpu": 0.0, "pcie-switch": 1.0, "gpu": 2.0, "card": 2.45, "nic": 2.9, "nvswitch": 3.4,
    "leaf": 4.6, "router": 4.6, "spine": 5.6, "core": 6.6,
}  # fmt: skip
MOST_NODES = 4
MOST_SWITCHES = 16  # of a kind
APART = 0.8  # between neighbouring switches, in GPUs
BOW = 0.6  # levels


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """A vertex at (x, y); x counts devices, y levels."""

    name: str
    kind: str
    x: float
    y: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """A link, both directions as one: bytes/s of one, and the busier one's share of load (None:
    not known). part: of the machine or the network, as `binding.part` names it."""

    name: str
    kind: str
    source: str
    target: str
    bandwidth: BytesPerSecond
    load: float | None
    part: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """What is drawn: `nodes` of the cluster's machines, and switches that they reach. left_out: how
    many more of a kind there are."""

    dots: tuple[Dot, ...]
    wires: tuple[Wire, ...]
    nodes: int
    left_out: Mapping[str, int]


def drawing(
    cluster: Cluster, load: Mapping[str, float] | None = None, most: int = MOST_NODES
) -> Drawing:
    """Devices machine by machine, each above its parent; switches in the middle of what they join.

    load: share of its time by link, `a -> b`, as Timeline.link_utilization has it.
    """
    graph, nodes = cluster.graph, min(cluster.nodes, most)
    kept = {v for v, at in graph.nodes(data=True) if at["node"] is None or at["node"] < nodes}
    left_out = _thin_out(graph, kept)
    places = _places(cluster, nodes)
    y = {v: LEVELS[graph.nodes[v]["kind"]] for v in kept}
    for v in sorted(kept, key=lambda v: y[v]):
        if v not in places:
            below = [places[w] for w in graph[v] if w in places and y[w] < y[v]]
            above = [places[w] for w in graph[v] if w in places]
            near = below or above
            places[v] = sum(near) / len(near) if near else 0.0
    _spread_out(places, y)
    routers = [v for v in kept if graph.nodes[v]["kind"] == "router"]
    sag, rise = _sag(cluster), _bow(sorted(routers, key=places.__getitem__))
    dots = tuple(
        Dot(
            name=v, kind=graph.nodes[v]["kind"], x=places[v],
            y=y[v] - sag.get(v.partition("/")[2], 0.0) + rise.get(v, 0.0),
        )
        for v in graph if v in kept
    )  # fmt: skip
    wires = []
    for a, b, at in graph.edges(data=True):
        if a in kept and b in kept and (a < b or not graph.has_edge(b, a)):
            both = [load.get(f"{u} -> {w}", 0.0) for u, w in ((a, b), (b, a))] if load else None
            wires.append(
                Wire(
                    name=f"{a} - {b}", kind=at["kind"], source=a, target=b,
                    bandwidth=at["bandwidth"], load=max(both) if both else None,
                    part=part(at["kind"], {graph.nodes[v]["kind"] for v in (a, b)}),
                )
            )  # fmt: skip
    return Drawing(dots=dots, wires=tuple(wires), nodes=nodes, left_out=left_out)


def _thin_out(graph: Any, kept: set[str]) -> dict[str, int]:
    """Takes out of `kept` switches with nothing below them, and of very many the most; how many."""
    left_out = {}
    for kind in ("nvswitch", "leaf", "router", "spine", "core"):
        mine = sorted((v for v in kept if graph.nodes[v]["kind"] == kind), key=_numbers)
        for v in mine:
            below = any(
                w in kept and LEVELS[graph.nodes[w]["kind"]] < LEVELS[kind] for w in graph[v]
            )
            if not below and graph.nodes[v]["node"] is None:
                kept.discard(v)
        mine = [v for v in mine if v in kept]
        if len(mine) > MOST_SWITCHES and kind != "nvswitch":
            left_out[kind] = len(mine) - MOST_SWITCHES
            # Of all rails and pods some, and not of the first all.
            shown = {mine[i * len(mine) // MOST_SWITCHES] for i in range(MOST_SWITCHES)}
            kept.difference_update(set(mine) - shown)
    return left_out


def _places(cluster: Cluster, nodes: int) -> dict[str, float]:
    """x of GPUs and NICs, evenly, and of what stands below and between them in the machine."""
    node, found = cluster.node, {}
    slots = max(len(node.gpus), len(node.nics), 1)
    width = slots + 1.5
    children: dict[str, list[str]] = defaultdict(list)
    for link in node.links:
        if link.kind == "pcie":
            children[link.target].append(link.source)
    for host in range(nodes):
        own: dict[str, float] = {}
        for i, gpu in enumerate(node.gpus):
            own[gpu.name] = host * width + (i + 0.5) * slots / len(node.gpus)
        for i, nic in enumerate(node.nics):
            own[nic.name] = host * width + (i + 0.85) * slots / len(node.nics)
        for nic in node.nics:
            own.setdefault(nic.card, own[nic.name])
        inner = [s.name for s in node.switches] + [c.name for c in node.cpus]
        for _ in inner:  # children first, as deep as switches may stand on one another
            for name in inner:
                known = [own[c] for c in children[name] if c in own]
                if known:
                    own[name] = sum(known) / len(known)
        for i, cpu in enumerate(node.cpus):
            own.setdefault(cpu.name, host * width + (i + 0.5) * slots / len(node.cpus))
        found.update({f"node{host}/{name}": x for name, x in own.items()})
    return found


def _spread_out(places: dict[str, float], y: Mapping[str, float]) -> None:
    """Switches of a level that would lie on one another are spread over the picture."""
    by_level: dict[float, list[str]] = defaultdict(list)
    for v, level in y.items():
        by_level[level].append(v)
    left, right = min(places.values()), max(places.values())
    for level, mine in by_level.items():
        mine.sort(key=lambda v: (places[v], _numbers(v)))
        near = any(places[b] - places[a] < APART for a, b in pairwise(mine))
        if level < LEVELS["nvswitch"] or not near:
            continue
        apart = max(APART, (right - left) / (len(mine) + 1))
        middle = (left + right) / 2
        for i, v in enumerate(mine):
            places[v] = middle + apart * (i - (len(mine) - 1) / 2)


def _numbers(name: str) -> tuple[int, ...]:
    """Numbers in a name, so that leaf10 comes after leaf9."""
    return tuple(int(n) for n in re.findall(r"\d+", name))


def _sag(cluster: Cluster) -> dict[str, float]:
    """How far down GPUs hang where links join them directly: on a bow none hides another."""
    names = [gpu.name for gpu in cluster.node.gpus]
    known = set(names)
    if not any(link.source in known and link.target in known for link in cluster.node.links):
        return {}
    return _bow(names)


def _bow(names: Sequence[str]) -> dict[str, float]:
    """Of neighbours in a row, how far each is put off the straight line."""
    return {name: BOW * math.sin(math.pi * (i + 0.5) / len(names)) for i, name in enumerate(names)}
