"""Which rank should sit where: the mapping of logical to physical ranks that costs least.

    cost = sum over kinds of groups: count x max(slowest group alone,
                                                 bytes that leave a machine / what its NICs carry)

Groups of one kind work at the same time and share the NICs of a machine; kinds work one after the
other. Tried are the numbering as it is, every order of a layout's dimensions, and for every order
of the kinds the numbering that packs the groups of the first kind closest, then of the second ...;
then, up to a size, ranks change places as long as that helps. Ignored: compute beside which
messages hide, links inside a machine and switches that groups share.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping as Named
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, permutations

from commsim.collectives.collective import Collective
from commsim.errors import PlanError
from commsim.planning.space import DP_BEFORE_PP
from commsim.prediction import predict
from commsim.topology.cluster import Cluster
from commsim.units import Bytes, Seconds
from commsim.workload.communication import leaving, nics
from commsim.workload.layout import Layout
from commsim.workload.layouts.groups import groups
from commsim.workload.model import Model
from commsim.workload.step import StepPrediction, predict_step

MOST_TRIED, MOST_ROTATED, MOST_MOVED = 6, 8, 32
"""Ranks up to which every mapping is tried; two or three change places, in every candidate; two
change places, in the cheapest."""
AS_NUMBERED = "as numbered"


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
    """ranks[i]: the physical rank of logical rank i; duration: s of all the traffic; parts: of the
    traffic of each kind."""

    name: str
    ranks: tuple[int, ...]
    duration: Seconds
    parts: Named[str, Seconds] = field(default_factory=dict)

    @property
    def logical(self) -> tuple[int, ...]:
        """The logical rank that sits on each physical one."""
        placed = {rank: i for i, rank in enumerate(self.ranks)}
        return tuple(placed[rank] for rank in range(len(self.ranks)))

    def to_dict(self) -> dict[str, object]:
        """Plain figures for JSON, keys with their unit."""
        return {
            "name": self.name, "duration_s": self.duration, "parts_s": dict(self.parts),
            "ranks": list(self.ranks),
        }  # fmt: skip


@dataclass(slots=True)
class _Costs:
    """What traffic takes under a mapping; groups that were asked about before are known."""

    cluster: Cluster
    known: dict[tuple[str, Bytes, tuple[int, ...]], Seconds] = field(default_factory=dict)

    def total(
        self, traffic: Sequence[Traffic], ranks: Sequence[int], most: Seconds = math.inf
    ) -> Seconds:
        """s of all traffic; or, from `most` on, what it takes at least."""
        placed = [[tuple(ranks[r] for r in group) for group in one.groups] for one in traffic]
        least = [
            one.count * max(self._shared(one, groups), self._known(one, groups))
            for one, groups in zip(traffic, placed, strict=True)
        ]
        if sum(least) >= most:
            return sum(least)
        return sum(
            max(bound, one.count * max((self._alone(one, g) for g in groups), default=0.0))
            for one, groups, bound in zip(traffic, placed, least, strict=True)
        )

    def _known(self, one: Traffic, placed: Sequence[tuple[int, ...]]) -> Seconds:
        return max((self.known.get(self._key(one, group), 0.0) for group in placed), default=0.0)

    def _alone(self, one: Traffic, group: tuple[int, ...]) -> Seconds:
        if len(group) < 2:
            return 0.0
        key = self._key(one, group)
        found = self.known.get(key)
        if found is None:
            asked = Collective(one.operation, nbytes=one.nbytes, ranks=group)
            found = self.known[key] = predict(asked, self.cluster).duration
        return found

    def _key(self, one: Traffic, group: tuple[int, ...]) -> tuple[str, Bytes, tuple[int, ...]]:
        """Groups that lie alike on machines take the same time: each pattern is asked once. NCCL
        and RCCL find their own way through a group, whatever the order of its ranks."""
        host = min(group) // self.cluster.gpus_per_node * self.cluster.gpus_per_node
        ordered = sorted(group) if self.cluster.default_library[:4] in ("nccl", "rccl") else group
        return one.operation, one.nbytes, tuple(rank - host for rank in ordered)

    def _shared(self, one: Traffic, placed: Sequence[tuple[int, ...]]) -> Seconds:
        """s in which the NICs of the busiest machine carry what all groups send out of it."""
        domain = self.cluster.gpus_per_node * self.cluster.hosts_per_domain
        sent: Counter[int] = Counter()
        for group in placed:
            homes = [rank // domain for rank in group]
            local = Counter(homes)
            if len(local) < 2:
                continue
            if one.operation == "send_recv":
                ring = pairwise((*homes, homes[0]))
                sent.update({a: one.nbytes for a, b in ring if a != b})
                continue
            for home, here in local.items():
                sent[home] += int(leaving(one.operation, one.nbytes, len(group), here))
        if not sent:
            return 0.0
        return max(sent.values()) / (nics(self.cluster) * self.cluster.hosts_per_domain)


def mappings(
    traffic: Sequence[Traffic], cluster: Cluster, starts: Named[str, Sequence[int]] | None = None
) -> tuple[Mapping, ...]:
    """Mappings of all ranks, the cheapest first (of equally cheap ones the plainer); equal ones
    once. starts: more of them to try, by name. Raises PlanError on groups that name a rank twice or
    one that the cluster does not have.

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
    costs = _Costs(cluster)
    candidates = {AS_NUMBERED: tuple(range(world))}
    candidates |= {name: tuple(ranks) for name, ranks in (starts or {}).items()}
    kinds = list({one.groups: one for one in traffic}.values())  # each set of groups once
    for order in permutations(kinds):
        name = " in ".join(one.kind for one in order) + " packed"
        candidates[name] = _packed(order, world)
    if world <= MOST_TRIED:
        every = permutations(range(world))
        best = min(every, key=lambda ranks: costs.total(traffic, ranks))
        candidates["the best of all"] = best
    elif world <= MOST_MOVED:
        ranked = sorted(candidates, key=lambda name: costs.total(traffic, candidates[name]))
        for name in ranked if world <= MOST_ROTATED else ranked[:1]:
            candidates[f"{name}, then moved"] = _moved(traffic, candidates[name], costs)
    found: dict[tuple[int, ...], Mapping] = {}
    for name, ranks in candidates.items():
        if name != AS_NUMBERED and name not in (starts or {}):
            ranks = _tidied(traffic, ranks, costs)
        if ranks not in found:
            parts: dict[str, Seconds] = {}
            for one in traffic:
                parts[one.kind] = parts.get(one.kind, 0.0) + costs.total([one], ranks)
            found[ranks] = Mapping(
                name=name, ranks=ranks, duration=sum(parts.values()), parts=parts
            )
    # Sums of the same figures in another order differ in the last digits: that is no difference.
    return tuple(sorted(found.values(), key=lambda m: float(f"{m.duration:.9g}")))


def cost(traffic: Sequence[Traffic], ranks: Sequence[int], cluster: Cluster) -> Seconds:
    """s of all the traffic under a mapping."""
    return _Costs(cluster).total(traffic, ranks)


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


def _moved(traffic: Sequence[Traffic], start: tuple[int, ...], costs: _Costs) -> tuple[int, ...]:
    """Where no two ranks that change places, and among few no three, make it any cheaper."""
    ranks, least = list(start), costs.total(traffic, start)
    sizes = (2, 3) if len(ranks) <= MOST_ROTATED else (2,)
    improved = True
    while improved:
        improved = False
        for places in (p for size in sizes for p in permutations(range(len(ranks)), size)):
            if places[0] != min(places):
                continue
            before = [ranks[i] for i in places]
            for i, rank in zip(places, (*before[1:], before[0]), strict=True):
                ranks[i] = rank
            now = costs.total(traffic, ranks, least * (1 - 1e-9))
            if now < least * (1 - 1e-9):
                least, improved = now, True
            else:
                for i, rank in zip(places, before, strict=True):
                    ranks[i] = rank
    return tuple(ranks)


def _tidied(traffic: Sequence[Traffic], ranks: tuple[int, ...], costs: _Costs) -> tuple[int, ...]:
    """The same with each machine's logical ranks in order on its GPUs, where that costs no more: so
    launchers number them."""
    each = costs.cluster.gpus_per_node
    hosts: dict[int, list[int]] = {}
    for logical, rank in enumerate(ranks):
        hosts.setdefault(rank // each, []).append(logical)
    place = {
        logical: host * each + gpu
        for host, members in hosts.items()
        for gpu, logical in enumerate(members)
    }
    tidy = tuple(place[logical] for logical in range(len(ranks)))
    most = costs.total(traffic, ranks) * (1 + 1e-9)
    return tidy if costs.total(traffic, tidy) <= most else ranks


def traffic_of(step: StepPrediction) -> tuple[Traffic, ...]:
    """What the groups of a layout send in one step, as the step's prediction has it; a pipeline's
    ranks send to the next and the last to the first."""
    layout = replace(step.layout, placement=None)
    found = []
    for sent in step.messages:
        message = sent.message
        kind = _kind(sent.kind, message.ranks, layout) if sent.kind != "pp" else "pp"
        found.append(
            Traffic(
                kind=sent.kind, groups=groups(layout).all(kind), operation=message.operation,
                nbytes=message.nbytes, count=sent.count,
            )
        )  # fmt: skip
    return tuple(found)


def _kind(along: str, ranks: int, layout: Layout) -> str:
    """The kind of group of so many ranks that a message along a dimension is in."""
    inside = {
        "tp": ("tp", "etp"), "cp": ("cp",), "ep": ("ep", "etp"),
        "dp": ("dp", "shard", "replicate", "edp", "expert_shard", "expert_replicate"),
    }  # fmt: skip
    return next(kind for kind in inside[along] if groups(layout).size(kind) == ranks)


def order_mappings(layout: Layout) -> dict[str, tuple[int, ...]]:
    """For every order of a layout's dimensions the mapping of its own ranks to those numbered so.

    >>> order_mappings(Layout(tp=2, dp=2))["dp-tp-cp-ep-pp"]
    (0, 2, 1, 3)
    """
    names = [n for n in DP_BEFORE_PP.split("-") if n != "ep" and getattr(layout, n) > 1]
    thin = [name for name in DP_BEFORE_PP.split("-") if name not in names]
    found = {}
    for order in permutations(names):
        text = "-".join((*order, *thin))
        other = replace(layout, order=text)
        ranks = dict(zip(_places(layout), _places(other), strict=True))
        found[text] = tuple(ranks[rank] for rank in range(layout.world))
    return found


def _places(layout: Layout) -> list[int]:
    """Every rank, by its coordinates in tp, cp, dp and pp, the first the fastest."""
    strides, stride = {}, 1
    for name in (n for n in layout.order.split("-") if n != "ep"):
        strides[name] = stride
        stride *= getattr(layout, name)
    return [
        tp * strides["tp"] + cp * strides["cp"] + dp * strides["dp"] + pp * strides["pp"]
        for pp in range(layout.pp)
        for dp in range(layout.dp)
        for cp in range(layout.cp)
        for tp in range(layout.tp)
    ]


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
