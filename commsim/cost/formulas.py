"""The physical time of one collective, as formulas over features and constants.

Every function takes a feature set `f` (attributes, see features.Features) and constants `k` (a mapping from
constant name to value) and returns named parts in seconds. Both may hold floats or numpy arrays of equal
length: prediction passes floats, the fit passes arrays, and so both use the same lines.

The form is the one that measurements show: a launch, a chain of hops that a message must climb, and bytes
over the slowest resource; chain and transfer overlap, which a p-norm x (+) y = (x^p + y^p)^(1/p) expresses.
Rates are NCCL's own figures of a link, not the data sheet's; what a protocol leaves of them is a constant.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

Values = Mapping[str, Any]
Parts = dict[str, Any]


def overlap(x: Any, y: Any, p: Any) -> Any:
    """x and y partly hidden behind each other: between max(x, y) for large p and x + y for p = 1."""
    return (x**p + y**p) ** (1 / p)


def _chain(f: Any, k: Values, local: str, net: str) -> Any:
    """Hops that one byte must climb: local ones at the GPU's pace, network ones with the transport's wire."""
    return (
        f.hops_local * k[local] * k["speed"]
        + f.hops_net * (k[net] * k["speed"] + k["wire"] * f.wire_weight)
    )  # fmt: skip


def _finish(f: Any, base: Any, chain: Any, transfer: Any, p: Any, extra: Any = 0.0) -> Parts:
    body = overlap(chain, transfer, p)
    return {"launch": base, "hops": chain, "transfer": body - chain + extra}


def ring(f: Any, k: Values) -> Parts:
    """Ring: `steps` rounds of S/n bytes on every channel.

    chain (+) max((steps + copy) S/n / link, steps S/n / net) + fill; copy: the last piece of a Simple ring is
    copied without using the wire (n operations for n - 1 sends); fill: the first chunk passing every step.
    """
    proto = f.protocol_name
    hop = _chain(f, k, f"hop.{proto}", f"net.{proto}")
    if proto == "ll":
        hop = hop - f.hops_local * k["hop.ll"] * k["speed"] * k["hop.ll.tiny"] * np.exp(
            -f.nbytes / 96.0
        )
    piece = f.nbytes / f.n
    used = k[f"share.{proto}"] if proto != "simple" else 1.0
    link = k["link"] * f.link * used * f.channel_share
    copies = k["ring.copy"] * f.copies if proto == "simple" else 0.0
    slow = 1 + k["int8"] * f.narrow_reduction
    local = (f.steps + copies) * piece * slow / link
    net = f.steps * piece / (f.net * k["nic"] * k[f"nic.{proto}"]) * f.crosses
    fill = f.steps * k["ring.fill"] * f.piece_per_channel / (k["link"] * f.link / f.channels)
    p = k["overlap.simple"] if proto == "simple" else k["overlap.ll"]
    p = np.where(f.crosses > 0, k["overlap.net"] if proto == "simple" else k["overlap.ll"], p)
    return _finish(f, k["base"], hop, np.maximum(local, net), p, fill if proto == "simple" else 0.0)


def tree(f: Any, k: Values) -> Parts:
    """Double binary tree of chains: S up and S down through every GPU, `net_passes` S over a node's NICs.

    The rate of one channel is capped by what a block can receive, reduce and send at a branching node:
    the library's own per-channel figure (f.tree_cap, bytes/s for the whole algorithm).
    """
    proto = f.protocol_name
    hop = _chain(
        f, k, f"tree.{proto}", f"net.tree.{proto}" if proto == "simple" else f"net.{proto}"
    )
    used = k[f"share.{proto}"] if proto != "simple" else 1.0
    local = 2 * f.nbytes / (k["tree.link"] * k["link"] * f.link * used * f.channel_share)
    net = f.net_passes * f.nbytes / (f.net * k["nic"] * k[f"nic.{proto}"]) * f.crosses
    cap = f.nbytes / (k["tree.cap"] * f.tree_cap * used) * f.crosses
    fill = f.fill_bytes * (
        f.hops_local / (k["link"] * f.link / f.channels)
        + f.hops_net * f.crosses * f.channels / f.net
    ) * k["tree.fill"]  # fmt: skip
    p = k["overlap.simple"] if proto == "simple" else k["overlap.ll"]
    p = np.where(f.crosses > 0, k["overlap.net"] if proto == "simple" else k["overlap.ll"], p)
    return _finish(f, k["base"], hop, np.maximum(np.maximum(local, net), cap), p, fill)


def nvls(f: Any, k: Values) -> Parts:
    """In-switch reduction: S + S/n bytes through every GPU's links, in chunks that grow with S, each with a cost.

    base + start + V / (eff link) + V / (heads x channels x chunk) x per chunk; on several nodes (NVLSTree) a tree
    between the nodes' heads, `net_passes` S over the NICs.
    """
    volume = f.nbytes * (1 + 1 / f.local_ranks)
    rate = k["nvls.link"] * f.link
    chunks = f.nbytes / (f.chunk * f.lanes)
    local = volume * (1 + k["int8"] * f.narrow_reduction) / rate + chunks * k["nvls.chunk"]
    hop = k["nvls.start"] * k["simple.speed"] + f.hops_net * (
        k["nvls.net"] * k["speed"] + k["wire"] * f.wire_weight
    )
    net = f.net_passes * f.nbytes / (f.net * k["nic"]) * f.crosses
    return _finish(f, k["base"], hop, np.maximum(local, net), k["overlap.nvls"])


def collnet(f: Any, k: Values) -> Parts:
    """In-network reduction (SHARP): S once over the NICs, heads exchange inside the node."""
    kind = f.algorithm_name
    hop = f.hops_local * k["hop.simple"] * k["simple.speed"] + f.hops_net * (
        k["net.simple"] * k["speed"] + k["wire"] * f.wire_weight
    )
    net = f.net_passes * f.nbytes / (f.net * k["nic"] * k[f"sharp.{kind}"])
    local = 2 * f.nbytes / (k["link"] * f.link)
    return _finish(f, k["base"], hop, np.maximum(local, net), k["overlap.net"])


def pat(f: Any, k: Values) -> Parts:
    """Parallel aggregated trees, one GPU a node: log2 N exchanges, then (N-1)/N S over the NIC."""
    hop = f.hops_net * (k["net.simple"] * k["speed"] + k["wire"] * f.wire_weight)
    net = f.steps * f.nbytes / f.n / (f.net * k["nic"])
    return _finish(f, k["base"], hop, net, k["overlap.net"])


def point_to_point(f: Any, k: Values) -> Parts:
    """Grouped sends and receives: a start, a cost per local and per remote message, bytes over link and NIC.

    `local_bytes`: through one GPU's links, `self_bytes`: copied inside one GPU; `net_bytes`: over the NICs
    at f.net; in both cases per direction.
    """
    proto = f.protocol_name
    start = (k["p2p.start"] + k["p2p.peer"] * f.peers_local) * k["speed"]
    far = f.crosses * (
        k["p2p.net"] * k["speed"] + k["wire"] * f.wire_weight
        + k["p2p.remote"] * k["remote"] * k["speed"] * f.peers_remote
    )  # fmt: skip
    if proto == "ll":
        local = f.local_bytes / (k["share.p2p.ll"] * k["link"] * f.link)
    else:
        local = (f.local_bytes + k["p2p.self"] * f.self_bytes) / (k["p2p.link"] * f.link)
        start = start + k["p2p.simple"] * k["simple.speed"]
    net = f.net_bytes / (f.net * k["nic.p2p"]) * f.crosses
    p = np.where(f.crosses > 0, k["overlap.p2p.net"], k["overlap.p2p"])
    return _finish(f, k["base"], start + far, np.maximum(local, net), p)


FORMULAS = {
    "ring": ring,
    "tree": tree,
    "nvls": nvls,
    "nvls_tree": nvls,
    "collnet_direct": collnet,
    "collnet_chain": collnet,
    "pat": pat,
    "p2p": point_to_point,
}
