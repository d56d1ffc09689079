"""Final ring orders and trees over all ranks, per channel: what the searched graphs become.

Rings join the nodes' chains one after the other; trees hang the chains into NCCL's double binary
tree over nodes; NVLS trees join the nodes' heads. Sections 2.6 and 4.4 of docs/nccl.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from commsim.collectives.double_tree import double_tree
from commsim.libraries.nccl.graph import Communicator, Graph, NodeGraphs, Pattern
from commsim.libraries.nccl.settings import Version, modelled


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeRank:
    """One rank's place in a channel's tree; -1: none."""

    up: int = -1
    down: tuple[int, ...] = ()


def _nodes(comm: Communicator) -> list[tuple[int, NodeGraphs]]:
    """(rank 0 of the domain, graphs) of every NCCL node in node order."""
    found, base = [], 0
    for domain in comm.domains:
        for _ in range(domain.count):
            found += [(base, each) for each in domain.nodes]
            base += domain.ranks
    return found


def _chain(base: int, node: NodeGraphs, graph: Graph, channel: int) -> list[int]:
    return [base + node.ranks[p] for p in graph.orders[channel]]


def ring(comm: Communicator, channel: int, version: tuple[int, ...]) -> tuple[int, ...]:
    """All ranks in the order of this channel's ring, from rank 0."""
    return rings(comm, version, (channel,))[0]


def rings(
    comm: Communicator, version: tuple[int, ...], channels: tuple[int, ...] | None = None
) -> tuple[tuple[int, ...], ...]:
    """All ranks in ring order from rank 0, for each asked channel (default: all collective
    channels).
    """
    nodes = _nodes(comm)
    searched = comm.ring.channels
    swap = _swaps(comm, modelled(version))
    wanted = channels if channels is not None else tuple(range(comm.channels))
    orders: dict[int, tuple[int, ...]] = {}
    for c in {k % searched for k in wanted}:
        order: list[int] = []
        for i, (base, node) in enumerate(nodes):
            order += _chain(base, node, node.ring, c ^ 1 if swap and i % 2 else c)
        zero = order.index(0)
        orders[c] = tuple(order[zero:] + order[:zero])
    return tuple(orders[k % searched] for k in wanted)


def ring_ends(
    comm: Communicator, version: tuple[int, ...], channels: tuple[int, ...]
) -> tuple[tuple[dict[int, int], dict[int, int]], ...]:
    """Per asked channel, the ranks that leave their node and those that are entered, each with the
    NIC (of node.nics, as NCCL sees them) that it takes.
    """
    swap = _swaps(comm, modelled(version))
    found: list[tuple[dict[int, int], dict[int, int]]] = []
    for channel in channels:
        c = channel % comm.ring.channels
        exits, entries = dict[int, int](), dict[int, int]()
        for i, (base, node) in enumerate(_nodes(comm)):
            at = c ^ 1 if swap and i % 2 else c
            if node.ring.nets:
                chain = _chain(base, node, node.ring, at)
                entries[chain[0]], exits[chain[-1]] = node.ring.nets[at]
        found.append((exits, entries))
    return tuple(found)


def _swaps(comm: Communicator, version: Version) -> bool:
    """Whether odd nodes exchange the rings of each pair of channels, so that a ring keeps its
    rails.
    """
    if comm.ring.channels % 2:
        return False
    each = [n.ring.cross_nic for d in comm.domains for n in d.nodes]
    if version >= (2, 26):
        return min(each) == 2
    if version == (2, 20):
        return comm.ring.cross_nic > 0 and comm.nodes % 2 == 0
    return version > (2, 20) and comm.ring.cross_nic > 0


def trees(comm: Communicator, channel: int) -> dict[int, TreeRank]:
    """Every rank's parent and children in this channel's tree (down in NCCL's order, chain child
    first).
    """
    nodes = _nodes(comm)
    count = len(nodes)
    searched = comm.tree.channels
    source = channel % (2 * searched)  # the searched channels, once for each tree; then all again
    c, second = source % searched, source >= searched
    chains = [_chain(base, node, node.tree, c) for base, node in nodes]
    up: dict[int, int] = {}
    down: dict[int, list[int]] = {}
    for chain in chains:
        for i, rank in enumerate(chain):
            up[rank] = chain[i - 1] if i else -1
            down[rank] = [chain[i + 1]] if i + 1 < len(chain) else []
    heads = [chain[0] for chain in chains]
    children: list[tuple[int, int]] = []
    for chain, (_, node) in zip(chains, nodes, strict=True):
        pattern = node.tree.pattern
        far = chain[min(1, len(chain) - 1)]
        first = chain[0] if pattern == Pattern.TREE else far
        children.append((first, far if pattern == Pattern.SPLIT_TREE else chain[0]))
    for i in range(count):
        place = double_tree(count, i)[1 if second else 0]
        if place.up >= 0:
            up[heads[i]] = children[place.up][1 if place.second else 0]
        for side in (0, 1):
            child = place.down[side]
            if child >= 0:
                down[children[i][side]].append(heads[child])
    return {rank: TreeRank(up=up[rank], down=tuple(down[rank])) for rank in up}


def tree_depth(comm: Communicator) -> int:
    """NCCL's estimate of a tree's depth in hops."""
    return comm.n // comm.nodes - 1 + comm.nodes.bit_length() - 1


def nvls_heads(comm: Communicator) -> list[list[int]]:
    """Per head the rank that holds it on each node."""
    nodes = _nodes(comm)
    per_node: list[list[int]] = []
    for base, node in nodes:
        graph = node.nvls
        order = graph.orders if graph is not None else ()
        per_node.append(list(dict.fromkeys(base + node.ranks[o[0]] for o in order)))
    fewest = min(len(h) for h in per_node)
    return [[h[i] for h in per_node] for i in range(fewest)]


def nvls_tree(comm: Communicator, channel: int) -> dict[int, TreeRank]:
    """The NVLS tree between the nodes' heads on this channel: even channels the first tree, odd the
    second.
    """
    found: dict[int, TreeRank] = {}
    for ranks in nvls_heads(comm):
        for i, rank in enumerate(ranks):
            place = double_tree(comm.nodes, i)[channel % 2]
            found[rank] = TreeRank(
                up=ranks[place.up] if place.up >= 0 else -1,
                down=tuple(ranks[d] for d in place.down if d >= 0),
            )
    return found
