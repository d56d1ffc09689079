"""Which schedule carries out what NCCL has chosen: its rings, trees and switches as algorithms.

NCCL numbers ranks domain by domain; a schedule numbers positions of the group. Channels with equal
rings carry equal parts, so they are played as one unless every transfer is wanted.
"""

from __future__ import annotations

from dataclasses import dataclass

from commsim.collectives.algorithm import Algorithm
from commsim.collectives.algorithms.grouped import Grouped
from commsim.collectives.algorithms.ring import Ring
from commsim.collectives.algorithms.send_recv import SendRecv
from commsim.collectives.collective import Collective
from commsim.errors import LibraryError
from commsim.libraries.library import Candidate
from commsim.libraries.nccl.facts import NcclFacts
from commsim.libraries.nccl.rings import rings


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """An algorithm, the channels that it runs on, and how many of the library's each stands for."""

    algorithm: Algorithm
    channels: int
    multiplicity: int = 1


def carry_out(
    collective: Collective, candidate: Candidate, facts: NcclFacts, *, fold: bool = True
) -> Carried:
    """The algorithm that does as `candidate` says, on the positions of the group."""
    n, channels = facts.placement.n, max(1, candidate.channels)
    match candidate.algorithm:
        case "ring":
            orders = _orders(collective, facts, channels)
            distinct = tuple(dict.fromkeys(orders)) if fold else orders
            # Equal rings stand for each other only if each occurs equally often.
            if any(orders.count(o) * len(distinct) != len(orders) for o in distinct):
                distinct = orders
            return Carried(
                algorithm=Ring(orders=distinct),
                channels=len(distinct),
                multiplicity=channels // len(distinct),
            )
        case "p2p":
            one = SendRecv() if collective.operation == "send_recv" else Grouped()
            return Carried(algorithm=one, channels=1, multiplicity=channels)
    raise LibraryError(f"no schedule of {candidate.algorithm} on {n} ranks yet")


def _orders(
    collective: Collective, facts: NcclFacts, channels: int
) -> tuple[tuple[int, ...], ...]:
    """The ring of every channel, as positions of the group."""
    place = positions(collective.ranks, facts.placement.n)
    found = rings(facts.communicator, facts.version, tuple(range(channels)))
    return tuple(tuple(place[r] for r in order) for order in found)


def positions(ranks: tuple[int, ...] | None, n: int) -> tuple[int, ...]:
    """The position in the group of each of NCCL's ranks, which go up with the global rank."""
    if ranks is None:
        return tuple(range(n))
    return tuple(sorted(range(n), key=lambda p: ranks[p]))
