"""Which rank should sit where: the mapping of logical to physical ranks that costs least.

    cost = sum over kinds of groups (count x the slowest group's collective)

Groups of one kind work at the same time, kinds one after the other. Tried are the numbering as it
is, and for every order of the kinds the numbering that packs the groups of the first kind closest,
then of the second ...; then, up to a size, pairs of ranks are swapped as long as one swap helps.
Ignored: that groups of one kind share links (each is predicted alone).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations, permutations

from commsim.collectives.collective import Collective
from commsim.errors import PlanError
from commsim.planning.space import DP_BEFORE_PP
from commsim.prediction import predict
from commsim.topology.cluster import Cluster
from commsim.units import Bytes, Seconds
from commsim.workload.layout import Layout
from commsim.workload.model import Model
from commsim.workload.step import predict_step

MOST_SWAPPED = 32
"""Ranks up to which pairs are swapped: every pair, as often as one helps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """The groups of one kind, in logical ranks, and the collective that each runs `count` times."""

    kind: str
    groups: tuple[tuple[int, ...], ...]
    operation: str
    nbytes: Bytes
    count: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapping:
    """ranks[i]: the physical rank of logical rank i; duration: s of all the traffic."""

    name: str
    ranks: tuple[int, ...]
    duration: Seconds


def mappings(traffic: Sequence[Traffic], cluster: Cluster) -> tuple[Mapping, ...]:
    """Mappings of all ranks, the cheapest first; equal ones once. Raises PlanError on groups that
    name a rank twice or one that the cluster does not have.

    >>> from commsim.topology.load import load_cluster
    >>> pairs = Traffic(kind="pairs", groups=tuple((i, i + 8) for i in range(8)),
    ...                 operation="all_reduce", nbytes=1 << 30)
    >>> best = mappings([pairs], load_cluster("dgx-h100", nodes=2))[0]
    >>> {best.ranks[0] // 8 == best.ranks[8] // 8, best.ranks[3] // 8 == best.ranks[11] // 8}
    {True}
    """
    world = cluster.n_ranks
    for one in traffic:
        members = [rank for group in one.groups for rank in group]
        if len(set(members)) < len(members) or not all(0 <= rank < world for rank in members):
            raise PlanError(
                f"placement: {one.kind}: expected each of the ranks 0 to {world - 1} at most once"
            )
    candidates = {"as numbered": tuple(range(world))}
    for order in permutations(traffic):
        name = " in ".join(one.kind for one in order) + " packed"
        candidates[name] = _packed(order, world)
    if world <= MOST_SWAPPED:
        start = min(candidates.values(), key=lambda ranks: cost(traffic, ranks, cluster))
        candidates["swapped"] = _swapped(traffic, start, cluster)
    found: dict[tuple[int, ...], Mapping] = {}
    for name, ranks in candidates.items():
        if ranks not in found:
            found[ranks] = Mapping(name=name, ranks=ranks, duration=cost(traffic, ranks, cluster))
    return tuple(sorted(found.values(), key=lambda m: m.duration))


def cost(traffic: Sequence[Traffic], ranks: Sequence[int], cluster: Cluster) -> Seconds:
    """s of all the traffic under a mapping."""
    total = 0.0
    for one in traffic:
        # Groups that lie alike on machines take the same time: each pattern is asked once.
        seen: dict[tuple[int, ...], Seconds] = {}
        for group in one.groups:
            if len(group) < 2:
                continue
            placed = tuple(ranks[rank] for rank in group)
            host = min(placed) // cluster.gpus_per_node * cluster.gpus_per_node
            shape = tuple(rank - host for rank in placed)
            if shape not in seen:
                asked = Collective(one.operation, nbytes=one.nbytes, ranks=placed)
                seen[shape] = predict(asked, cluster).duration
        total += one.count * max(seen.values(), default=0.0)
    return total


def _packed(order: Sequence[Traffic], world: int) -> tuple[int, ...]:
    """Logical ranks one after the other so that groups of the first kind are together, and those
    groups together that the second kind joins ..."""
    joined = {rank: rank for rank in range(world)}  # the block that a rank is in
    listed = [[rank] for rank in range(world)]
    blocks = dict(enumerate(listed))
    for one in order:
        for group in one.groups:
            first = joined[group[0]]
            for rank in group[1:]:
                other = joined[rank]
                if other != first:
                    for moved in blocks.pop(other):
                        joined[moved] = first
                        blocks[first].append(moved)
    place = [0] * world
    position = 0
    for block in sorted(blocks.values(), key=min):
        for rank in block:
            place[rank] = position
            position += 1
    return tuple(place)


def _swapped(
    traffic: Sequence[Traffic], start: tuple[int, ...], cluster: Cluster
) -> tuple[int, ...]:
    ranks, least = list(start), cost(traffic, start, cluster)
    improved = True
    while improved:
        improved = False
        for i, j in combinations(range(len(ranks)), 2):
            if ranks[i] // cluster.gpus_per_node == ranks[j] // cluster.gpus_per_node:
                continue
            ranks[i], ranks[j] = ranks[j], ranks[i]
            now = cost(traffic, ranks, cluster)
            if now < least * (1 - 1e-9):
                least, improved = now, True
            else:
                ranks[i], ranks[j] = ranks[j], ranks[i]
    return tuple(ranks)


def orders(model: Model, cluster: Cluster, layout: Layout) -> tuple[tuple[str, Seconds], ...]:
    """Every order of a layout's dimensions over the ranks with its step, s, the fastest first."""
    names = DP_BEFORE_PP.split("-")
    found = {}
    sizes = {"tp": layout.tp, "cp": layout.cp, "dp": layout.dp, "pp": layout.pp, "ep": layout.ep}
    wide = [name for name in names if sizes[name] > 1]
    thin = [name for name in names if sizes[name] == 1]
    for order in permutations(wide):
        text = "-".join((*order, *thin))
        one = replace(layout, order=text)
        found[text] = predict_step(model, cluster, one).duration
    return tuple(sorted(found.items(), key=lambda item: item[1]))
