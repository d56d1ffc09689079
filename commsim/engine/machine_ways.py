"""The links of one machine and the ways over them, the same in every machine of a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from commsim.collectives.chunks import Ints
from commsim.engine.legs import Legs, make_legs
from commsim.engine.network import Floats
from commsim.topology.capacity import scale_up_links
from commsim.topology.flow import INFINITE
from commsim.topology.node import NodeTopology, NvSwitch, PcieSwitch
from commsim.topology.node_paths import (
    Path,
    cpu_names,
    host_links,
    host_path,
    through_host,
)
from commsim.topology.pair_ways import pair_way
from commsim.units import BytesPerSecond, Seconds


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MachineWays:
    """Links by the names of their ends, each followed by the one back; and legs over them, of which
    leg 0 is empty: no way.

    capacity, latency: of each link, bytes/s and s. inside[a, b]: from GPU a to GPU b.
    up[a], down[a]: from GPU a to the NVSwitch and back. out[a, i], into[a, i]: from GPU a to NIC i
    and back.
    """

    links: dict[tuple[str, str], int]
    capacity: Floats
    latency: Floats
    legs: Legs
    inside: Ints
    up: Ints
    down: Ints
    out: Ints
    into: Ints


def machine_ways(node: NodeTopology) -> MachineWays:
    """Between GPUs as `pair_way` says; of several equal ways the widest one.

    A link whose bandwidth the machine's source does not say has no limit. A switch that passes on
    less than its links bring has a crossbar: what passes through crosses the link to it and back.
    """
    scale_up = scale_up_links(node)
    joined = {(a, b): w for a, others in host_links(node).items() for b, w in others.items()}
    joined |= {(a, b): w or INFINITE for a, others in scale_up.items() for b, w in others.items()}
    crossbars = _crossbars(node, joined)
    joined |= {(name, crossbar(name)): capacity for name, capacity in crossbars.items()}
    joined |= {(crossbar(name), name): capacity for name, capacity in crossbars.items()}
    pairs = list({pair: None for a, b in joined for pair in ((a, b), (b, a))})
    links = {pair: i for i, pair in enumerate(pairs)}
    gpus = [g.name for g in node.gpus]
    switch = None if node.nvswitch is None else node.nvswitch.name
    top = (switch, crossbar(switch)) if switch in crossbars and switch else (switch,)
    up = [(g, *top) if switch and switch in scale_up.get(g, {}) else () for g in gpus]
    inside = [[pair_way(node, a, b) for b in gpus] for a in gpus]
    out = [[_to_nic(node, g, i) for i in range(len(node.nics))] for g in range(len(gpus))]
    paths: dict[Path, int] = {(): 0}

    def legs(table: Sequence[Sequence[Path]]) -> Ints:
        rows = [
            [paths.setdefault(_crossing(path, crossbars), len(paths)) for path in row]
            for row in table
        ]
        return np.array(rows, dtype=np.int64).reshape(len(table), -1)

    ways = {
        "inside": legs(inside),
        "up": legs([up])[0],
        "down": legs([[path[::-1] for path in up]])[0],
        "out": legs(out),
        "into": legs([[path[::-1] for path in row] for row in out]),
    }
    crossed = np.array([links[pair] for path in paths for pair in pairwise(path)], dtype=np.int64)
    known = _latencies(node)
    latency = np.array([known.get(pair, 0.0) for pair in pairs])
    size = np.array([max(0, len(path) - 1) for path in paths])
    return MachineWays(
        links=links,
        capacity=np.array([joined[pair] for pair in pairs]),
        latency=latency,
        legs=make_legs(size, crossed, np.ones(len(crossed)), latency[crossed], latency[crossed]),
        **ways,
    )


def crossbar(switch: str) -> str:
    """The inside of a switch, as a vertex."""
    return f"{switch}/crossbar"


def _crossbars(
    node: NodeTopology, joined: Mapping[tuple[str, str], BytesPerSecond]
) -> dict[str, BytesPerSecond]:
    """The switches that pass on less than their links bring, and how much."""
    switches: list[PcieSwitch | NvSwitch] = list(node.switches)
    switches += [node.nvswitch] if node.nvswitch else []
    brought = {s.name: 0.0 for s in switches}
    for ends, bandwidth in joined.items():
        for name in ends:
            if name in brought:
                brought[name] += bandwidth / 2  # each link stands there and back
    return {s.name: s.capacity for s in switches if s.capacity < brought[s.name]}


def _crossing(path: Path, crossbars: Mapping[str, BytesPerSecond]) -> Path:
    """The path with the inside of each switch that it passes through."""
    found: list[str] = []
    for i, name in enumerate(path):
        found.append(name)
        if name in crossbars and 0 < i < len(path) - 1 and crossbar(name) not in path:
            found += [crossbar(name), name]
    return tuple(found)


def _to_nic(node: NodeTopology, gpu: int, nic: int) -> Path:
    """The way from a GPU to a NIC: through a CPU's memory without GPUDirect."""
    one, other = node.gpus[gpu], node.nics[nic]
    path = host_path(node, one.name, other.name)
    if not (one.gpudirect and other.gpudirect) and not cpu_names(node).intersection(path):
        path = through_host(node, one.name, other.name)
    return path


def _latencies(node: NodeTopology) -> dict[tuple[str, str], Seconds]:
    """Of the widest link between two devices, which is the one that data takes, s."""
    found: dict[tuple[str, str], Seconds] = {}
    for link in sorted(node.links, key=lambda link: link.bandwidth, reverse=True):
        found.setdefault((link.source, link.target), link.latency)
        found.setdefault((link.target, link.source), link.latency)
    return found
