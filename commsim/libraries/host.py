"""What the cost model needs to know about a host-based library: the facts in a Choice of Gloo and
MPI."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from commsim.collectives.collective import Collective
from commsim.libraries.library import Candidate, Choice
from commsim.topology.cluster import Cluster
from commsim.topology.placement import Placement, place
from commsim.units import Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """How one process per rank talks over TCP, and over shared memory inside a machine.

    interfaces: network ports that a machine's ranks share. crossings: connections of the ring that
    leave the busiest machine. shared_memory: ranks of one machine talk through it (MPI) instead of
    loopback TCP (Gloo). two_level: one leader a machine takes part in the network phase. segment:
    most bytes that a ring sends as one message (0: a whole chunk).
    """

    placement: Placement
    library: str
    interfaces: int = 1
    crossings: int = 1
    shared_memory: bool = False
    two_level: bool = False
    segment: Bytes = 0


@lru_cache(maxsize=1024)
def ring_crossings(cluster: Cluster, ranks: tuple[int, ...] | None) -> int:
    """Connections of the ring rank 0 -> 1 -> ... -> 0 that leave the machine with the most of
    them."""
    if ranks is None:
        return 1 if cluster.nodes > 1 else 0
    hosts = [rank // cluster.gpus_per_node for rank in ranks]
    leaving: dict[int, int] = {}
    for a, b in zip(hosts, hosts[1:] + hosts[:1], strict=True):
        if a != b:
            leaving[a] = leaving.get(a, 0) + 1
    return max(leaving.values(), default=0)


def placement_of(collective: Collective, cluster: Cluster) -> Placement:
    """Where the group's ranks lie."""
    return place(cluster, collective.ranks)


def pick(
    names: dict[str, str], chosen: str, why: str, facts: HostFacts, notes: tuple[str, ...] = ()
) -> Choice:
    """The Choice of `chosen` among `names` (algorithm to the reason why it is ruled out, "" where
    it is not).

    These libraries choose by fixed rules, not by an estimate, so every estimate is nan.
    """
    candidates = tuple(
        Candidate(
            algorithm=name, protocol="TCP", channels=1, estimate=float("nan"),
            available=not reason, reason=reason,
        )
        for name, reason in names.items()
    )  # fmt: skip
    best = next(c for c in candidates if c.algorithm == chosen)
    return Choice(chosen=best, candidates=candidates, reasons=(why,), notes=notes, facts=facts)


def settings(
    env: Mapping[str, str] | tuple[tuple[str, str], ...] | None,
) -> tuple[tuple[str, str], ...]:
    """An environment as sorted pairs, which can be hashed."""
    pairs = env.items() if isinstance(env, Mapping) else env or ()
    return tuple(sorted((str(key), str(value)) for key, value in pairs))
