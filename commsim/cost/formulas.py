"""The physical time of one collective, as formulas over features and constants.

Every function takes a feature set `f` (attributes, see features.Features) and constants `k` (a
mapping from constant name to value) and returns named parts in seconds. Both may hold floats or
numpy arrays of equal length: prediction passes floats, the fit passes arrays, and so both use the
same lines.

The form is the one that measurements show: a launch, a chain of hops that a message must climb,
and bytes over the slowest resource; chain and transfer overlap, which a p-norm x (+) y = (x^p +
y^p)^(1/p) expresses. Rates are NCCL's own figures of a link, not the data sheet's; what a protocol
leaves of them is a constant.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

Values = Mapping[str, Any]
Parts = dict[str, Any]


def overlap(x: Any, y: Any, p: Any) -> Any:
    """x and y partly hidden behind each other: from x + y for p = 1 to max(x, y) for large p."""
    return (x**p + y**p) ** (1 / p)


def _chain(f: Any, k: Values, local: str, net: str) -> Any:
    """Hops that one byte must climb: local ones at the GPU's pace, network ones with the
    transport's wire."""
    pace = k["simple.speed"] if f.protocol_name == "simple" else k["speed"]
    return f.hops_local * k[local] * pace + f.hops_net * (
        over_network(f, k, net) + k["rendezvous"] * f.rendezvous + k["net.flush"] * f.flushes
    )


def over_network(f: Any, k: Values, hop: str) -> Any:
    """s of one message between machines: what the host's thread and the GPU take, and the
    transport's own latency, so many times."""
    return k[hop] * k["net.speed"] * f.host + k["wire"] * f.latency


def _post(f: Any, k: Values, message: str) -> Any:
    """s for which one message occupies its NIC's thread: the library's part, its receive where
    software finds it, and what an LL message past libfabric's copy threshold adds."""
    thread = (k[message] + k["net.match"] * f.software) * k["net.speed"] * f.host
    return (thread + k["rendezvous"] * f.rendezvous + k["net.flush"] * f.flushes) / f.threads


def _base(f: Any, k: Values) -> Any:
    """Launch and start of a kernel: cycles, so it goes with the GPU's clock."""
    return k["base"] * f.clock


def _tiny(f: Any, k: Values, hop: str) -> Any:
    """What a message of a few LL lines saves on every hop, fading over 96 bytes."""
    fading = np.exp(-f.nbytes / 96.0) * k["hop.ll.tiny"] * k["speed"]
    return fading * (f.hops_local * k[hop] + f.hops_net * k["net.ll"] * 0.25)


def _finish(f: Any, base: Any, chain: Any, transfer: Any, p: Any, extra: Any = 0.0) -> Parts:
    body = overlap(chain, transfer, p)
    return {"launch": base, "hops": chain, "transfer": np.maximum(body - chain, 0.0) + extra}


def _net(f: Any, k: Values, share: Any) -> Any:
    """Bytes/s of the NICs: their share of the rate; sockets no more than a thread can copy."""
    return np.minimum(f.net * share, f.sockets * k["socket"])


def _lanes(f: Any, k: Values) -> Any:
    """Share of the link that the channels in use can fill: one channel carries more than its part
    of it."""
    return np.minimum(1.0, k[f"channel.{f.protocol_name}"] * f.channel_share)


def _overlap_power(f: Any, k: Values) -> Any:
    if f.protocol_name != "simple":
        return k["overlap.ll"]
    return np.where(f.crosses > 0, k["overlap.net"], k["overlap.simple"])


def ring(f: Any, k: Values) -> Parts:
    """Ring: `steps` rounds of S/n bytes on every channel in use.

    (chain + start) (+) max((steps + copy) S/n / link, steps S/n / net, steps m post) + fill; copy:
    the last piece is copied without using the wire (n operations for n - 1 sends); start: a Simple
    ring opens with one more synchronisation; fill: the first chunk passing every step. A Simple
    piece has to be across the network, a share of it (store), before its next hop begins; every
    channel's piece is a message of its own, and the `messages` m of one GPU or NIC follow each
    other, one every `post` however small they are.
    """
    proto = f.protocol_name
    hop = _chain(f, k, f"hop.{proto}", f"net.{proto}")
    fill = 0.0
    piece = f.nbytes / f.n
    copies = (k[f"ring.copy.{proto}"] + k["ring.reduce"] * f.reduces) * f.copies
    link = k["link"] * f.link * k[f"share.{proto}"] * _lanes(f, k)
    if proto == "ll":
        hop = hop - _tiny(f, k, "hop.ll")
        queue = f.messages * _post(f, k, "net.ll.message")
        hop = np.maximum(hop, queue * f.crosses)
    if proto == "simple":
        hop = hop + k["ring.start"] * k["hop.simple"] * k["simple.speed"]
        fill = f.steps * k["ring.fill"] * f.piece_per_channel / (k["link"] * f.link / f.channels)
    slow = 1 + k["int8"] * f.narrow_reduction
    local = (f.steps + copies) * piece * slow / link
    nics = _net(f, k, k["nic"] * k[f"nic.{proto}"])
    net = f.steps * piece / nics * f.crosses
    if proto == "simple":
        hop = hop + k["ring.store"] * f.hops_net * f.round_bytes / nics
        queue = f.messages * _post(f, k, "net.message")
        net = np.maximum(net, queue * f.crosses)
    return _finish(f, _base(f, k), hop, np.maximum(local, net), _overlap_power(f, k), fill)


def tree(f: Any, k: Values) -> Parts:
    """Double binary tree of chains: S up and S down through every GPU, `net_passes` S over a
    node's NICs.

    The rate of one channel is capped by what a block can receive, reduce and send at a branching
    node: the library's own per-channel figure (f.tree_cap, bytes/s for the whole algorithm).
    """
    proto = f.protocol_name
    hop = _chain(
        f, k, f"tree.{proto}", f"net.tree.{proto}" if proto == "simple" else f"net.{proto}"
    )
    if proto == "ll":
        hop = hop - _tiny(f, k, "tree.ll")
        hop = hop + f.queued * _post(f, k, "net.ll.message") * f.crosses
    used = k[f"share.{proto}"]
    local = 2 * f.nbytes / (k["tree.link"] * k["link"] * f.link * used * _lanes(f, k))
    net = f.net_passes * f.nbytes / _net(f, k, k["nic"] * k[f"nic.{proto}"]) * f.crosses
    cap = f.nbytes / (k["tree.cap"] * f.tree_cap * used) * f.crosses
    fill = f.fill_bytes * (
        f.hops_local / (k["link"] * f.link / f.channels)
        + f.hops_net * f.crosses * f.channels / f.net
    ) * k["tree.fill"]  # fmt: skip
    transfer = np.maximum(np.maximum(local, net), cap)
    return _finish(f, _base(f, k), hop, transfer, _overlap_power(f, k), fill)


def nvls(f: Any, k: Values) -> Parts:
    """In-switch reduction: S + S/n bytes (all_gather, reduce_scatter: S) through every GPU's
    links, in chunks that grow with S, each with a cost.

    base + start + V / (eff link) + S / (blocks x chunk) x per chunk; on several nodes
    (NVLSTree) a tree between the nodes' heads, `net_passes` S over the NICs.
    """
    volume = f.nbytes * (1 + f.both_ways / f.local_ranks)
    tree = np.where(f.crosses > 0, k["nvls.tree"], 1.0)
    rate = tree * (k["nvls.link"] * f.both_ways + k["nvls.one_way"] * (1 - f.both_ways)) * f.link
    copied = (1 + f.both_ways) / 2  # all_reduce copies in and out, the others one way
    chunks = copied * f.nbytes / (f.chunk * f.blocks)
    local = volume * (1 + k["int8"] * f.narrow_reduction) / rate + chunks * k["nvls.chunk"]
    hop = k["nvls.start"] * k["simple.speed"] + f.hops_net * over_network(f, k, "nvls.net")
    net = f.net_passes * f.nbytes / _net(f, k, k["nic"]) * f.crosses
    return _finish(f, _base(f, k), hop, np.maximum(local, net), k["overlap.nvls"])


def collnet(f: Any, k: Values) -> Parts:
    """In-network reduction (SHARP): S once over the NICs, heads exchange inside the node."""
    kind = f.algorithm_name
    hop = f.hops_local * k["hop.simple"] * k["simple.speed"] + f.hops_net * over_network(
        f, k, "net.simple"
    )
    net = f.net_passes * f.nbytes / (f.net * k["nic"] * k[f"sharp.{kind}"])
    local = 2 * f.nbytes / (k["link"] * f.link)
    return _finish(f, _base(f, k), hop, np.maximum(local, net), k["overlap.net"])


def pat(f: Any, k: Values) -> Parts:
    """Parallel aggregated trees, one GPU a node: log2 N exchanges, then (N-1)/N S over the NIC."""
    hop = f.hops_net * over_network(f, k, "net.simple")
    net = f.steps * f.nbytes / f.n / _net(f, k, k["nic"])
    return _finish(f, _base(f, k), hop, net, k["overlap.net"])


def point_to_point(f: Any, k: Values) -> Parts:
    """Grouped sends and receives: a start, a cost per local and per remote message, bytes over
    link and NIC.

    A message is split over channels, `largest_part` bytes each, and one channel carries only its
    part of the link. `local_bytes`: through one GPU's links, `self_bytes`: copied inside one GPU;
    `net_bytes`: over the NICs at f.net; in both cases per direction. `block_bytes`: the first
    chunks of the messages that share a block, which it copies before the wire has anything to do.
    """
    proto = f.protocol_name
    start = (k["p2p.start"] + k["p2p.peer"] * f.peers_local) * k["speed"]
    thread = k["p2p.remote"] * k["remote"] + k["net.match"] * f.software
    far = f.crosses * (
        over_network(f, k, "p2p.net")
        + (thread * k["net.speed"] * f.host + k["net.inject"] * f.injected) * f.peers_remote
    )
    if proto == "ll":
        rate = k["share.p2p.ll"] * k["link"] * f.link
        local = f.local_bytes / (rate * f.mesh)
        channel = k["p2p.channel.ll"] * rate
    else:
        rate = k["p2p.link"] * f.link
        local = f.local_bytes / (rate * f.mesh) + f.self_bytes / (k["p2p.self"] * f.memory)
        start = start + k["p2p.simple"] * k["simple.speed"]
        channel = k["p2p.channel"] * rate
    local = np.maximum(local, f.largest_part * f.p2p_lanes / channel)
    few = f.p2p_lanes > f.p2p_channels
    local = np.maximum(local, few * f.local_bytes * f.p2p_lanes / f.p2p_channels / channel)
    net = f.net_bytes / _net(f, k, np.where(f.shift > 0, k["nic.shift"], k["nic.p2p"])) * f.crosses
    p = np.where(f.crosses > 0, k["overlap.p2p.net"], k["overlap.p2p"])
    fill = f.block_bytes / k["p2p.block"]
    return _finish(f, _base(f, k), start + far, np.maximum(local, net), p, fill)


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
