"""Which schedule carries out what NCCL has chosen: its rings, trees and switches as algorithms.

NCCL numbers ranks domain by domain; a schedule numbers positions of the group. Channels with equal
rings or trees carry equal parts, so they are played as one unless every transfer is wanted. NCCL
cuts a channel's part into chunks of a protocol's slot; so many pieces that more would hide no more
are enough.
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
from commsim.collectives.chunks import cut
from commsim.collectives.collective import Collective
from commsim.collectives.schedule import Schedule
from commsim.collectives.trees import tree_schedule
from commsim.libraries.carried import Carried
from commsim.libraries.library import Candidate
from commsim.libraries.nccl.facts import NcclFacts
from commsim.libraries.nccl.rings import ring_exits, rings, trees
from commsim.units import KIB, Bytes

SLOTS = 8  # NCCL_STEPS, src/include/device.h
GRAIN: dict[str, Bytes] = {"LL": 4 * KIB, "LL128": 16 * KIB, "Simple": 32 * KIB}
"""Bytes that pass from rank to rank as one: LL and LL128 are read line by line as they arrive (a
block's threads take so much at a time), Simple in slices of at least step x 2 / 32 (docs/nccl.md).
"""
PEERS = 8  # sends and receives that one channel serves at a time (docs/nccl.md)
MOST_PIECES, FEWEST_PIECES = 32, 16
FINER = 8
"""A chain needs many more pieces than hops, or its last rank waits for the first: so much finer."""
MOST_OPS = 1 << 16
"""Rather than more ops, larger pieces; but a ring has as many as it has."""
NONE = -1

T = TypeVar("T")


def carry_out(
    collective: Collective,
    candidate: Candidate,
    facts: NcclFacts,
    *,
    fold: bool = True,
    alike: bool = False,
) -> Carried:
    """The schedule that does as `candidate` says, on the positions of the group."""
    n, local = facts.placement.n, facts.placement.max_per_domain
    channels = max(1, candidate.channels)
    pieces = _pieces(collective, candidate, channels, MOST_PIECES)
    crosses = facts.communicator.nodes > 1
    one: Algorithm
    match candidate.algorithm:
        case "ring":
            lanes, each = _alike(_rings(collective, facts, channels), fold)
            orders, exits = tuple(o for o, _ in lanes), tuple(e for _, e in lanes)
            if collective.operation in ("broadcast", "reduce"):
                most = max(MOST_PIECES, MOST_OPS // (n * len(orders)))
                pieces = _pieces(collective, candidate, channels, most, FINER)
                schedule = _chains(collective, n, orders, pieces)
            else:
                hosts = _alike_hosts(collective, facts, orders) if alike else 0
                ring = Ring(orders=orders, period=hosts * facts.placement.max_per_host)
                schedule = ring.schedule(collective, n, len(orders))
                return Carried(schedule=schedule, multiplicity=each, exits=exits, hosts=hosts)
            return Carried(schedule=schedule, multiplicity=each, exits=exits)
        case "tree":
            parents, each = _alike(_parents(collective, facts, channels), fold)
            pieces = min(pieces, max(FEWEST_PIECES, MOST_OPS // (2 * n * len(parents))))
            chunks = cut(collective, n, len(parents) * pieces)
            return Carried(
                schedule=tree_schedule(chunks, np.array(parents), SLOTS), multiplicity=each
            )
        case "nvls" if not crosses:
            one = Nvls(pieces=pieces)
        case "nvls_tree":
            finest = _pieces(collective, candidate, channels, 3 * MOST_PIECES // 2)
            one = NvlsTree(group=local, pieces=finest)
        case "nvls" | "collnet_direct" | "collnet_chain":
            one = CollNet(group=local, pieces=pieces)
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
            one = Grouped(window=PEERS * max(1, batches), period=period)
            return Carried(
                schedule=one.schedule(collective, n),
                multiplicity=channels,
                rails=True,
                hosts=hosts,
            )
    return Carried(schedule=one.schedule(collective, n), multiplicity=channels)


def _pieces(
    collective: Collective, candidate: Candidate, channels: int, most: int, finer: int = 1
) -> int:
    """Pieces of a channel's part, up to as many as make a difference."""
    nbytes = 0 if collective.operation == "barrier" else collective.nbytes
    return int(np.clip(nbytes / channels / GRAIN[candidate.protocol] * finer, 1, most))


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


def _rings(
    collective: Collective, facts: NcclFacts, channels: int
) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
    """The ring of every channel, as positions of the group, and by which NIC each leaves."""
    place = positions(collective.ranks, facts.placement.n)
    every = tuple(range(channels))
    orders = rings(facts.communicator, facts.version, every)
    exits = ring_exits(facts.communicator, facts.version, every)
    found = []
    for order, leaving in zip(orders, exits, strict=True):
        by = [NONE] * len(place)
        for rank, nic in leaving.items():
            by[place[rank]] = nic
        found.append((tuple(place[r] for r in order), tuple(by)))
    return tuple(found)


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


def _chains(
    collective: Collective, n: int, orders: Sequence[tuple[int, ...]], pieces: int
) -> Schedule:
    """Along every ring from the root, or to it: a ring of broadcast and reduce is a chain."""
    chunks = cut(collective, n, len(orders) * pieces)
    assert chunks.root is not None
    parents = np.full((len(orders), n), NONE)
    for up, order in zip(parents, orders, strict=True):
        start = order.index(chunks.root)
        chain = [*order[start:], *order[:start]]
        if collective.operation == "reduce":  # it flows the same way, and ends at the root
            chain = [chain[0], *chain[:0:-1]]
        up[chain[1:]] = chain[:-1]
    return tree_schedule(chunks, parents, SLOTS)


def positions(ranks: tuple[int, ...] | None, n: int) -> tuple[int, ...]:
    """The position in the group of each of NCCL's ranks, which go up with the global rank."""
    if ranks is None:
        return tuple(range(n))
    return tuple(sorted(range(n), key=lambda p: ranks[p]))
