"""NCCL's own estimate: latency (us), bandwidth (GB/s) and the time (us) it chooses by.

    time = latency + bytes / bandwidth        (bytes / (1000 x GB/s) is us)

A ranking device with hand-fitted constants, not a prediction: it knows no chunks, no contention and
no real launch. Figures are rounded to single precision where NCCL stores them, so ties fall as they
do there. Source: NVIDIA NCCL, src/graph/tuning.cc, releases 2.18.1 to 2.30.7.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Final

from commsim.libraries.nccl.constants import (
    ALGORITHMS,
    BLACKWELL,
    LL,
    LL128,
    NET,
    NVLINK,
    NVLS_EFFICIENCY,
    PCI,
    PROTOCOLS,
    SIMPLE,
    TREE_CORRECTION,
    Constants,
    Version,
    constants,
    gpu_class,
)
from commsim.libraries.nccl.environment import Settings
from commsim.libraries.nccl.graph import Communicator, Graph, PathType, Pattern
from commsim.libraries.nccl.rules import (
    COLLNET,
    DISPLAY,
    HALVES,
    NVLS,
    excluded,
    heads,
    nodes_seen,
    searched,
    unavailable,
)

_FP8: Final = frozenset(("float8_e4m3fn", "float8_e5m2"))
_FP8_PENALTY = (
    1024.0  # NCCL's factor on Ring for more than 8 ranks: rounding error grows along a ring
)
_SINGLE = struct.Struct("f")


def single(value: float) -> float:
    """The value as single precision stores it."""
    return float(_SINGLE.unpack(_SINGLE.pack(value))[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One cell of NCCL's table: latency in us, bandwidth in GB/s (0: ruled out, see reason)."""

    algorithm: str
    protocol: str
    latency: float
    bandwidth: float
    reason: str = ""


def combinations(operation: str, version: Version) -> tuple[tuple[str, str], ...]:
    """Algorithm and protocol pairs that exist for an operation, in NCCL's order."""
    if operation in ("broadcast", "reduce"):
        algorithms: tuple[str, ...] = ("ring",)
    elif operation == "all_reduce":
        algorithms = tuple(a for a in ALGORITHMS if a != "pat")
    else:
        algorithms = ("ring",)
        algorithms += ("collnet_direct",) if version >= (2, 20, 0) else ()
        algorithms += ("nvls",) if version >= (2, 19, 0) else ()
        algorithms += ("pat",) if version >= (2, 23, 0) else ()
    return tuple(
        (a, p) for a in algorithms for p in (PROTOCOLS if a in ("tree", "ring") else ("Simple",))
    )


def table(
    c: Communicator, version: Version, settings: Settings, operation: str
) -> tuple[Entry, ...]:
    """Every existing pair with its latency, bandwidth and, where it is ruled out, the reason."""
    entries = []
    for algorithm, protocol in combinations(operation, version):
        graph = searched(c, algorithm)
        if graph is None or graph.channels == 0:
            reason = unavailable(c, version, settings, algorithm) or _no_graph(algorithm)
            entries.append(
                Entry(
                    algorithm=algorithm, protocol=protocol, latency=math.inf, bandwidth=0.0,
                    reason=reason,
                )
            )  # fmt: skip
            continue
        p = PROTOCOLS.index(protocol)
        latency = _latency(c, version, settings, operation, algorithm, p, graph)
        bandwidth, reason = _bandwidth(c, version, operation, algorithm, p, graph)
        reason = (
            unavailable(c, version, settings, algorithm)
            or excluded(c, version, settings, operation, algorithm, p, graph)
            or reason
        )
        entries.append(
            Entry(
                algorithm=algorithm, protocol=protocol, latency=latency,
                bandwidth=0.0 if reason else bandwidth, reason=reason,
            )
        )  # fmt: skip
    return tuple(entries)


def _no_graph(algorithm: str) -> str:
    return f"no {DISPLAY[algorithm]} channels were found on this machine"


# --- bandwidth ---


def _bandwidth(
    c: Communicator, version: Version, operation: str, algorithm: str, p: int, g: Graph
) -> tuple[float, str]:
    """GB/s by which bytes are divided, and a reason where the model itself gives 0."""
    k = constants(version)
    nodes, n = nodes_seen(c, version), c.n
    row, column = gpu_class(c.min_capability, version), min(nodes, 3) - 1
    ppn = n / nodes
    if algorithm in NVLS:
        bw, reason = _nvls_channel(c, version, operation, algorithm, g)
        if reason:
            return 0.0, reason
    else:
        bw = g.bw_intra if nodes <= 2 or algorithm in COLLNET else g.bw_inter
    bus = single(g.channels * bw)
    ceiling = _ll_ceiling(c, version, k)
    if algorithm == "ring" and p == LL:
        if version >= (2, 21, 0):
            bus = min(ceiling, bus * 0.5)
        else:
            quarter = nodes > 1 or operation in ("all_reduce", "reduce")
            bus = min(ceiling, bus / (4.0 if quarter else 3.0))
    elif algorithm == "ring" and p == LL128:
        share = 0.7 if version < (2, 23, 0) and ppn < 2 else 0.92
        bus = min(bus * share, g.channels * k.ring_ll128[row][column])
    elif algorithm == "tree":
        bus = single(min(bus * 0.92, g.channels * k.tree[row][column]))
        if p == LL:
            bus = single(min(bus / 3.8, ceiling))
        elif p == LL128:
            share = 7.0 / 9.0 if nodes == 1 else 120.0 / 128.0
            bus = single(min(bus * share, g.channels * k.tree_ll128[row][column]))
        if g.pattern == Pattern.TREE and version >= (2, 18, 2):
            bus *= 0.85
    elif algorithm == "pat":
        bus *= 0.75 if version >= (2, 24, 0) else 0.85
    elif algorithm == "collnet_direct":
        bus = _collnet_direct(c, version, operation, g, bw, bus, ppn)
    bus = single(bus)
    if algorithm in ("nvls", "collnet_direct") and operation in HALVES and nodes > 1:
        local, found = c.max_local_ranks, heads(g)
        if version >= (2, 20, 0) and (c.collnet or version >= (2, 27, 0)) and local > found:
            return 0.0, (
                f"{operation} needs a NIC for each of the {local} ranks of a node; {found} have one"
            )
    return single(bus * single(_ratio(version, operation, algorithm, n, nodes))), ""


def _ll_ceiling(c: Communicator, version: Version, k: Constants) -> float:
    """What LL can reach (GB/s): by GPU on one node, by CPU vendor over several."""
    nodes = nodes_seen(c, version)
    if nodes == 1:
        row = gpu_class(c.min_capability, version)
    else:
        row = int(c.cpu_vendor == "amd" or (c.cpu_vendor == "mixed" and version >= (2, 24, 0)))
    return single(k.ll_max[row][min(nodes, 3) - 1])


def _nvls_channel(
    c: Communicator, version: Version, operation: str, algorithm: str, g: Graph
) -> tuple[float, str]:
    """GB/s of one NVLS channel, and a reason where there is none."""
    nodes = nodes_seen(c, version)
    ppn = c.n / nodes
    tree = algorithm == "nvls_tree"
    if version < (2, 19, 0):
        return (g.bw_intra if nodes <= 2 else g.bw_inter), ""
    if version < (2, 28, 0):
        if tree:
            return min(g.bw_intra, g.bw_inter if nodes <= 2 else g.bw_inter / 2), ""
        if version >= (2, 27, 0) and operation in HALVES:
            return single(min(g.bw_intra * (ppn - 1) / ppn, g.bw_inter * 0.9)), ""
        return min(g.bw_intra, g.bw_inter), ""
    if g.channels < 2:
        return 0.0, "NVLS needs at least 2 channels; 1 was found"
    row = gpu_class(c.min_capability, version)
    inside = g.bw_intra * NVLS_EFFICIENCY[row] * (g.channels - 1) / g.channels
    inside *= 2 if operation == "all_reduce" else (ppn - 1) / ppn
    outside = g.bw_inter * (2 if nodes <= 2 and tree else 1)
    bw = min(inside, outside)
    if tree:
        bw = min(bw, constants(version).nvls_tree[row][min(nodes, 3) - 1])
    return single(bw), ""


def _collnet_direct(
    c: Communicator, version: Version, operation: str, g: Graph, bw: float, bus: float, ppn: float
) -> float:
    if operation in HALVES:
        if version >= (2, 27, 0):
            return ppn * min(g.bw_intra, g.bw_inter * 0.9)
        weight = (ppn - 1) / (8 - 1)
        return ppn * bw * (0.85 * weight + 0.95 * (1 - weight))
    factor = ppn / g.channels
    factor -= (factor - 1) / 2
    bus /= factor
    return bus * 0.85 if c.min_capability >= 90 else bus


def _ratio(version: Version, operation: str, algorithm: str, n: int, nodes: int) -> float:
    """Algorithm over bus bandwidth."""
    steps = _steps(operation, n)
    if algorithm == "ring":
        return n / steps
    if operation in HALVES and (version >= (2, 23, 0) or algorithm == "collnet_direct"):
        return 1.0
    if algorithm in NVLS:
        if version >= (2, 28, 0):
            return n / steps
        if version < (2, 19, 0) and algorithm == "nvls_tree":
            return 0.70 * nodes / (2 * (nodes - 1)) if nodes > 1 else 0.0
        return 0.75 if version < (2, 18, 2) else 5.0 / 6.0
    return 0.5


def _steps(operation: str, n: int) -> int:
    """Steps of a ring."""
    return 2 * (n - 1) if operation == "all_reduce" else n - 1 if operation in HALVES else n


# --- latency ---


def _latency(
    c: Communicator, version: Version, settings: Settings, operation: str, algorithm: str, p: int,
    g: Graph,
) -> float:  # fmt: skip
    """us before the first byte counts."""
    k = constants(version)
    nodes, n = nodes_seen(c, version), c.n
    per_node = n // nodes
    base, hop = single(k.base_latency[algorithm][p]), k.hop_latency[algorithm]
    inside = PCI if g.type_intra != PathType.NVL else NVLINK
    intra = single(hop[inside][p])
    if algorithm == "tree" and inside == PCI and c.cpu_arch.startswith("ppc") and p == SIMPLE:
        intra = single(k.hop_latency["ring"][PCI][SIMPLE])
    exposed = version >= (2, 23, 0) and n == nodes  # one rank a node: nothing hides the network
    inter = single((k.hop_latency["tree"] if exposed else hop)[NET][p])
    inter = single(inter + g.latency_inter * (2 if p == SIMPLE else 1))
    levels = nodes.bit_length() - 1
    if algorithm == "ring":
        where = NET if nodes > 1 else inside
        steps = _steps(operation, n)
        if operation in ("broadcast", "reduce"):
            if g.same_channels:
                return single(base + single(hop[where][p]))
            slow = k.hop_latency["tree"] if p == SIMPLE else hop
            return single(base + single(steps * single(slow[where][p])))
        overhead = _post_overhead(c, settings) * (3 if p == SIMPLE else 1) if nodes > 1 else 0.0
        intra = max(intra, single(overhead))
        if version >= (2, 23, 0):
            crossings = 0 if nodes == 1 else (2 if operation == "all_reduce" else 1) * (nodes - 1)
        elif operation == "all_reduce":
            crossings = 2 * nodes if nodes > 1 else 0
        else:
            crossings = nodes - 1
        return single(
            base + single(single((steps - crossings) * intra) + single(crossings * inter))
        )
    if algorithm == "tree":
        return single(base + 2 * single((per_node - 1) * intra + levels * inter))
    if algorithm == "collnet_direct":
        arity = 0.5 if version < (2, 19, 0) else 0.4
        return single(base + 2 * (min(1, per_node - 1) * intra + (per_node - 1) * arity) + inter)
    if algorithm == "collnet_chain":
        return single(base + 2 * (per_node - 1) * intra + inter)
    if algorithm == "pat":
        return single(base + levels * (inter / 3.5) + n * 2.8)
    if algorithm == "nvls":
        return single(base + intra + (inter if nodes > 1 else 0.0))
    crossings = 2 * (nodes - 1) if version < (2, 19, 0) else 2 * levels
    return single(base + intra + crossings * inter)


def _post_overhead(c: Communicator, settings: Settings) -> float:
    """us a processor needs to post one network step."""
    if settings.net_overhead_us is not None:
        return settings.net_overhead_us
    return 2.0 if c.cpu_vendor == "amd" and c.cpu_arch.startswith("x86") else 1.0


# --- time ---


def estimate_us(
    c: Communicator, version: Version, operation: str, entry: Entry, nbytes: int,
    dtype: str = "float32",
) -> float:  # fmt: skip
    """us that NCCL expects of an available entry for `nbytes` of its own counting (all_gather and
    reduce_scatter: all ranks together)."""
    latency, bandwidth = entry.latency, entry.bandwidth
    if operation == "all_reduce":
        k = (nbytes >> 6).bit_length() - 1
        if entry.algorithm == "tree":
            if 0 <= k < 23:
                bandwidth = single(bandwidth * TREE_CORRECTION[PROTOCOLS.index(entry.protocol)][k])
        elif entry.algorithm == "nvls_tree":
            if (
                version >= (2, 29, 0)
                and gpu_class(c.min_capability, version) == BLACKWELL
                and c.cpu_arch.startswith("x86")
                and 0 <= k < 24
            ):
                bandwidth = single(bandwidth * TREE_CORRECTION[SIMPLE][k])
        elif (
            entry.algorithm == "ring"
            and entry.protocol == "Simple"
            and nodes_seen(c, version) > 1
            and nbytes // (c.channels * c.n) >= 64
        ):
            latency = single(latency * (1.9 if c.min_capability < 80 else 1.4))
    time = single(latency + single(single(nbytes) / single(1000 * bandwidth)))
    if entry.algorithm == "ring" and dtype in _FP8 and c.n > 8 and version >= (2, 24, 0):
        time *= _FP8_PENALTY
    return time
