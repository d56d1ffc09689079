"""Which schedule carries out what NCCL has chosen: its rings, trees and switches as algorithms.

NCCL numbers ranks domain by domain; a schedule numbers positions of the group. Channels with equal
rings or trees carry equal parts, so they are played as one unless every transfer is wanted.

What goes down a chain or a tree, or through a switch, streams: a rank passes on what has come. Its
pieces are the buffer's slots, or as many as these with more in each: they say how far a rank can be
ahead of one that is late. A ring's blocks are stored and sent on whole, a hop each, and over the
network by Simple in two slices: so rings were measured (docs/simulation.md).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from commsim.collectives.algorithm import Algorithm
from commsim.collectives.algorithms.collnet import CollNet
from commsim.collectives.algorithms.grouped import Grouped
from commsim.collectives.algorithms.nvls import Nvls
from commsim.collectives.algorithms.nvls_tree import NvlsTree
from commsim.collectives.algorithms.pat import Pat
from commsim.collectives.algorithms.ring import Ring
from commsim.collectives.algorithms.send_recv import SendRecv
from commsim.collectives.chunks import Ints, cut
from commsim.collectives.collective import Collective
from commsim.collectives.schedule import WHOLE, Schedule, Window
from commsim.collectives.trees import tree_schedule
from commsim.libraries.carried import Carried
from commsim.libraries.library import Candidate
from commsim.libraries.nccl.buffers import SLICES, SLOT, SLOTS
from commsim.libraries.nccl.facts import NcclFacts
from commsim.libraries.nccl.rings import ring_ends, rings, trees

PEERS = 8  # sends and receives that one channel serves at a time (docs/nccl.md)
MOST_OPS, FEWEST_PIECES = 1 << 16, 2
"""Rather than more ops, fewer and larger pieces."""
STAGES, OPS_OF_STAGES = 2, 20
"""Slots that a byte is held in on its way through switches inside machines and what joins these,
one behind the other; ops of a rank there for each piece."""
NONE = -1

T = TypeVar("T")


def carry_out(
    collective: Collective,
    candidate: Candidate,
    facts: NcclFacts,
    *,
    fold: bool = True,
    alike: bool = False,
    window: Window = WHOLE,
) -> Carried:
    """The schedule that does as `candidate` says, on the positions of the group; of a ring's rounds
    only the window.
    """
    n, local = facts.placement.n, facts.placement.max_per_domain
    channels = max(1, candidate.channels)
    pieces, slots = _pieces(collective, candidate, channels)
    crosses = facts.communicator.nodes > 1
    one: Algorithm
    match candidate.algorithm:
        case "ring":
            lanes, each = _alike(_rings(collective, facts, channels), fold)
            orders, exits, entries = zip(*lanes, strict=True)
            if collective.operation in ("broadcast", "reduce"):
                parents = _chains(collective, n, orders)
                schedule = _streamed(collective, n, parents, pieces, slots)
                return Carried(schedule=schedule, multiplicity=each, exits=exits, entries=entries)
            hosts = _alike_hosts(collective, facts, orders) if alike else 0
            slices = SLICES if crosses and candidate.protocol == "Simple" else 1
            period = hosts * facts.placement.max_per_host
            ring = Ring(orders=orders, period=period, pieces=slices, window=window)
            schedule = ring.schedule(collective, n, len(orders))
            return Carried(
                schedule=schedule, multiplicity=each, exits=exits, entries=entries, hosts=hosts
            )
        case "tree":
            trees_, each = _alike(_parents(collective, facts, channels), fold)
            schedule = _streamed(collective, n, np.array(trees_), pieces, slots)
            return Carried(schedule=schedule, multiplicity=each)
        case "nvls" if not crosses:
            one = Nvls(pieces=pieces)
        case "nvls_tree":
            one = NvlsTree(group=local, pieces=_through_stages(collective, candidate, n, channels))
        case "nvls" | "collnet_direct" | "collnet_chain":
            one = CollNet(group=local, pieces=_through_stages(collective, candidate, n, channels))
        case "pat":
            one = Pat()
        case _ if collective.operation == "send_recv":
            return Carried(
                schedule=SendRecv().schedule(collective, n), multiplicity=channels, rails=True
            )
        case _:
            comm = facts.communicator
            batches = comm.p2p_channels // max(1, comm.p2p_channels_per_peer)
            hosts = _alike_hosts(collective, facts, ()) if alike else 0
            period = hosts * facts.placement.max_per_host
            size = _machine(collective, facts)
            one = Grouped(window=PEERS * max(1, batches), group=size, period=period)
            return Carried(
                schedule=one.schedule(collective, n),
                multiplicity=channels,
                rails=True,
                hosts=hosts,
            )
    schedule = one.schedule(collective, n)
    if candidate.algorithm != "pat":
        schedule = schedule.streamed
    return Carried(schedule=schedule, multiplicity=channels)


def _pieces(
    collective: Collective, candidate: Candidate, channels: int, most: int = SLOTS
) -> tuple[int, int]:
    """Pieces of a channel's part, up to the slots of a connection, and how many of them it holds:
    where a piece is more than a slot, fewer, but one while another leaves.
    """
    nbytes = 0 if collective.operation == "barrier" else collective.nbytes
    filled = nbytes / channels / SLOT[candidate.protocol]
    pieces = int(np.clip(np.ceil(filled), 1, most))
    return pieces, int(np.clip(SLOTS * pieces / max(filled, 1), 2, SLOTS))


def _through_stages(collective: Collective, candidate: Candidate, n: int, channels: int) -> int:
    """Pieces of a channel's part where machines first sum and last copy by themselves: a whole
    piece is in each of these, and in what joins machines, at a time, and each has slots of its own.
    So they are twice as many, unless that makes too many ops.
    """
    pieces, _ = _pieces(collective, candidate, channels, most=STAGES * SLOTS)
    return min(pieces, max(SLOTS, MOST_OPS // (n * OPS_OF_STAGES)))


def _streamed(collective: Collective, n: int, parents: Ints, pieces: int, slots: int) -> Schedule:
    """Up the trees, down them, or both, a tree for each channel."""
    both = 2 if collective.operation in ("all_reduce", "barrier") else 1
    most = max(FEWEST_PIECES, MOST_OPS // (both * n * len(parents)))
    chunks = cut(collective, n, len(parents) * min(pieces, most))
    return tree_schedule(chunks, parents, slots).streamed


def _alike(of_channels: Sequence[T], fold: bool) -> tuple[tuple[T, ...], int]:
    """The fewest of which each stands for equally many equal ones, and for how many."""
    every = tuple(of_channels)
    count = Counter(every)
    each = math.gcd(*count.values()) if fold else 1
    if each == 1:
        return every, 1
    return tuple(one for one, times in count.items() for _ in range(times // each)), each


def _alike_hosts(
    collective: Collective, facts: NcclFacts, orders: Sequence[tuple[int, ...]]
) -> int:
    """The fewest machines (at least 2 ranks) by which a step carries every ring onto itself, and an
    all_to_all; 0 where none does, blocks differ in size, or not every rank takes part.
    """
    at, n = facts.placement, facts.placement.n
    rooted = collective.operation in ("gather", "scatter")
    if rooted or collective.ranks is not None or collective.splits or not at.uniform:
        return 0
    sizes = cut(collective, n, max(1, len(orders))).nbytes
    if sizes.min() < sizes.max():
        return 0
    domain = at.max_per_domain // at.max_per_host
    for hosts in (domain, 2 * domain):
        step = hosts * at.max_per_host
        if step < 2 or n % step or n // step < 2:
            continue
        table = np.array(orders or (range(n),))
        if (np.roll(table, -step, axis=1) == (table + step) % n).all():
            return hosts
    return 0


def _machine(collective: Collective, facts: NcclFacts) -> int:
    """Ranks of a machine (an NVLink domain), if all have as many, one after another; 0 if not."""
    at, ranks = facts.placement, collective.ranks
    ordered = ranks is None or positions(ranks, at.n) == tuple(range(at.n))
    return at.max_per_domain if ordered and at.max_per_domain == at.min_per_domain else 0


def _rings(
    collective: Collective, facts: NcclFacts, channels: int
) -> tuple[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]], ...]:
    """The ring of every channel, as positions of the group, and by which NIC each leaves its node
    and is entered.
    """
    place = positions(collective.ranks, facts.placement.n)
    every = tuple(range(channels))
    orders = rings(facts.communicator, facts.version, every)
    ends = ring_ends(facts.communicator, facts.version, every)

    def by_position(nics: dict[int, int]) -> tuple[int, ...]:
        found = [NONE] * len(place)
        for rank, nic in nics.items():
            found[place[rank]] = nic
        return tuple(found)

    return tuple(
        (tuple(place[r] for r in order), by_position(exits), by_position(entries))
        for order, (exits, entries) in zip(orders, ends, strict=True)
    )


def _parents(
    collective: Collective, facts: NcclFacts, channels: int
) -> tuple[tuple[int, ...], ...]:
    """Every position's parent in the tree of every channel, -1 at the root."""
    place = positions(collective.ranks, facts.placement.n)
    found = []
    for channel in range(channels):
        up = [NONE] * len(place)
        for rank, node in trees(facts.communicator, channel).items():
            up[place[rank]] = NONE if node.up < 0 else place[node.up]
        found.append(tuple(up))
    return tuple(found)


def _chains(collective: Collective, n: int, orders: Sequence[tuple[int, ...]]) -> Ints:
    """Along every ring from the root, or to it: a ring of broadcast and reduce is a chain. Every
    position's parent, -1 at the root.
    """
    root = cut(collective, n).root
    assert root is not None
    parents = np.full((len(orders), n), NONE)
    for up, order in zip(parents, orders, strict=True):
        start = order.index(root)
        chain = [*order[start:], *order[:start]]
        if collective.operation == "reduce":  # it flows the same way, and ends at the root
            chain = [chain[0], *chain[:0:-1]]
        up[chain[1:]] = chain[:-1]
    return parents


def positions(ranks: tuple[int, ...] | None, n: int) -> tuple[int, ...]:
    """The position in the group of each of NCCL's ranks, which go up with the global rank."""
    if ranks is None:
        return tuple(range(n))
    return tuple(sorted(range(n), key=lambda p: ranks[p]))
