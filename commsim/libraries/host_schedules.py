"""Which schedule carries out what Gloo or MPI has chosen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from commsim.collectives.algorithm import Algorithm
from commsim.collectives.algorithms.binomial_tree import BinomialTree
from commsim.collectives.algorithms.bruck import Bruck
from commsim.collectives.algorithms.direct import Direct
from commsim.collectives.algorithms.pairwise import Pairwise
from commsim.collectives.algorithms.recursive_doubling import RecursiveDoubling
from commsim.collectives.algorithms.recursive_halving_doubling import RecursiveHalvingDoubling
from commsim.collectives.algorithms.ring import Ring
from commsim.collectives.algorithms.send_recv import SendRecv
from commsim.collectives.builder import NONE, Builder, then
from commsim.collectives.chunks import cut
from commsim.collectives.collective import Collective
from commsim.collectives.schedule import WHOLE, Schedule, Window
from commsim.libraries.host import HostFacts
from commsim.libraries.library import Candidate
from commsim.topology.cluster import Cluster

ONE: dict[str, Callable[[], Algorithm]] = {
    "binomial": BinomialTree,
    "bruck": Bruck,
    "dissemination": RecursiveDoubling,
    "linear": Direct,
    "p2p": SendRecv,
    "pairwise": Pairwise,
    "rabenseifner": RecursiveHalvingDoubling,
    "recursive_doubling": RecursiveDoubling,
    "recursive_halving": RecursiveHalvingDoubling,
    "release_gather": BinomialTree,
    "ring": Ring,
    "scattered": Direct,
}
"""Algorithms by the libraries' names. release_gather's shared-memory tree has more children, which
changes little inside one machine."""

TWO: dict[tuple[str, str], tuple[tuple[Algorithm, str], tuple[Algorithm, str]]] = {
    ("ring_then_slice", "reduce_scatter"): (
        (Ring(), "reduce_scatter"),
        (Ring(), "all_gather"),
    ),
    ("ring_then_gather", "reduce"): ((Ring(), "reduce_scatter"), (Direct(), "gather")),
    ("rabenseifner", "reduce"): (
        (RecursiveHalvingDoubling(), "reduce_scatter"),
        (BinomialTree(), "gather"),
    ),
    ("scatter_doubling", "broadcast"): (
        (BinomialTree(), "scatter"),
        (RecursiveHalvingDoubling(), "all_gather"),
    ),
    ("scatter_ring", "broadcast"): ((BinomialTree(), "scatter"), (Ring(), "all_gather")),
}
"""Operations in two phases, each over all ranks and the same blocks."""


def carry_out(
    collective: Collective,
    candidate: Candidate,
    facts: HostFacts,
    cluster: Cluster,
    window: Window = WHOLE,
) -> Schedule:
    """The schedule that does as `candidate` says, on the positions of the group; of the rounds of a
    ring over all of them only the window.
    """
    n = facts.placement.n
    if not facts.two_level:
        return _flat(collective, candidate.algorithm, n, window)
    ranks = collective.ranks or range(n)
    hosts: dict[int, list[int]] = {}
    for position, rank in enumerate(ranks):
        hosts.setdefault(rank // cluster.gpus_per_node, []).append(position)
    return _led(collective, candidate.algorithm, tuple(hosts.values()), n)


def _flat(collective: Collective, name: str, n: int, window: Window = WHOLE) -> Schedule:
    phases = TWO.get((name, collective.operation))
    if name == "flooded_binomial":
        return _flooded(collective, n)
    if phases is None:
        algorithm = ONE[name]()
        if (name, collective.operation) == ("recursive_doubling", "all_gather"):
            algorithm = RecursiveHalvingDoubling()
        if isinstance(algorithm, Ring):
            algorithm = replace(algorithm, window=window)
        return algorithm.schedule(collective, n)
    first, second = (
        algorithm.schedule(
            replace(
                collective,
                operation=operation,
                root=collective.root if operation in ("gather", "scatter") else None,
            ),
            n,
        )
        for algorithm, operation in phases
    )
    whole = 1 if collective.operation == "reduce_scatter" else n
    return then(first, second, cut(collective, n, whole))


def _flooded(collective: Collective, n: int) -> Schedule:
    """Gloo's broadcast: counted from the root, rank v sends to v + 2^i for every 2^i above v, to
    all of them as soon as it has the data (gloo/broadcast.cc)."""
    chunks = cut(collective, n)
    builder = Builder(chunks)
    root, got = chunks.root or 0, np.full(n, NONE)
    for step in range((n - 1).bit_length()):
        child = np.arange(1 << step, min(n, 2 << step))
        parent = child - (1 << step)
        got[child] = builder.append(
            (root + parent) % n, (root + child) % n, 0,
            length=chunks.parts, after=(got[parent],), round=step,
        )  # fmt: skip
    return builder.build()


def _led(collective: Collective, name: str, hosts: tuple[list[int], ...], n: int) -> Schedule:
    """Inside every machine to its leader, the algorithm between the leaders, back to all."""
    root = cut(collective, n).root
    leaders = [root if root in host else host[0] for host in hosts]
    small = replace(collective, ranks=None, root=None if root is None else leaders.index(root))
    between = _flat(small, name, len(leaders))
    chunks = cut(collective, n, between.chunks.parts)
    member = np.array([p for host in hosts for p in host if p not in leaders], dtype=np.int64)
    leader = np.array(
        [lead for lead, host in zip(leaders, hosts, strict=True) for _ in host[1:]], dtype=np.int64
    )
    up, down = Builder(chunks), Builder(chunks)
    if chunks.reduces and len(member):
        up.append(member, leader, 0, length=chunks.parts, reduces=True)
    if collective.operation != "reduce" and len(member):
        down.append(leader, member, 0, length=chunks.parts)
    at = np.array(leaders, dtype=np.int32)
    middle = replace(
        between, chunks=chunks, source=at[between.source], destination=at[between.destination]
    )
    return then(then(up.build(), middle, chunks), down.build(), chunks)
