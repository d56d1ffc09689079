"""The way between two GPUs of a machine, and what all of them together carry on such ways.

A pair sends over its own NVLink (xGMI), or the NVSwitch; without one, through one GPU that has
links to both (NCCL's NVB paths, since 2.11); else over PCIe. So where there is no NVSwitch a GPU's
links together carry less than their sum if pairs have unequal links, or if only some pairs talk.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from commsim.topology.capacity import Local, scale_up_bandwidth, scale_up_links
from commsim.topology.node import NodeTopology
from commsim.topology.node_paths import Path, host_links, kept, peer_path

PATTERNS = ("all", "shift", "root")


@kept
def pair_way(node: NodeTopology, start: str, end: str) -> Path:
    """The devices that a message from one GPU to another passes, both ends included; empty if there
    is no way, or they are one. Of several relays, the one with the widest way, then the first.
    """
    if start == end:
        return ()
    links = scale_up_links(node)
    out = links.get(start, {})
    if end in out:
        return (start, end)
    switch = node.nvswitch
    if switch is not None and switch.name in out and switch.name in links.get(end, {}):
        return (start, switch.name, end)
    return relayed(node, start, end) or peer_path(node, start, end)


@kept
def relayed(node: NodeTopology, start: str, end: str) -> Path:
    """The way through one GPU with NVLinks to both; empty if there is none."""
    links = scale_up_links(node)
    out = links.get(start, {})
    relays = [
        (min(out[r.name], links[r.name][end]), -i, r.name)
        for i, r in enumerate(node.gpus)
        if r.name in out and end in links.get(r.name, {})
    ]
    return (start, max(relays)[2], end) if relays else ()


@kept
def mesh_share(node: NodeTopology, local: Local, pattern: str) -> float:
    """What these GPUs reach together of what each one's NVLinks (xGMI) to the others carry, 0 to 1.

    pattern: "all" every pair at once; "shift" each to the next; "root" all to one and back (the
    worst one). The busiest link decides. 1 behind an NVSwitch, and where there is no NVLink.
    """
    whole = scale_up_bandwidth(node, local)
    if node.nvswitch is not None or len(local) < 2 or not whole:
        return 1.0
    return min(_share(node, pairs, whole) for pairs in _patterns(local, pattern))


def _patterns(local: Local, pattern: str) -> Iterator[list[tuple[int, int]]]:
    if pattern == "all":
        yield [(a, b) for a in local for b in local if a != b]
    elif pattern == "shift":
        yield list(zip(local, local[1:] + local[:1], strict=True))
    else:
        for root in local:
            yield [(a, root) for a in local if a != root]


def _share(node: NodeTopology, pairs: list[tuple[int, int]], whole: float) -> float:
    """The time that the GPUs' links together would take for one byte a pair, over the busiest
    link's."""
    slow, fast = host_links(node), scale_up_links(node)
    busy: dict[tuple[str, str], float] = defaultdict(float)
    leaving: dict[int, int] = defaultdict(int)
    arriving: dict[int, int] = defaultdict(int)
    for a, b in pairs:
        leaving[a] += 1
        arriving[b] += 1
        for one, other in pairwise(pair_way(node, node.gpus[a].name, node.gpus[b].name)):
            rate = fast.get(one, {}).get(other) or slow[one][other]
            busy[one, other] += 1 / rate
    most = max(*leaving.values(), *arriving.values())
    return min(1.0, most / whole / max(busy.values()))
