"""Several clusters for one model: the best plan of each, what 10^12 tokens take and cost there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from commsim.errors import PlanError
from commsim.planning.plans import TRILLION, Plan, Plans
from commsim.planning.prices import Price, price_of
from commsim.topology.cluster import Cluster
from commsim.units import Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One cluster. front: no other is at least as good in time, cost and memory left; plan: None
    where nothing fits, and then why."""

    cluster: Cluster
    plan: Plan | None
    why: str = ""
    front: bool = False

    @property
    def duration(self) -> Seconds | None:
        """s for 10^12 tokens."""
        return None if self.plan is None else TRILLION / self.plan.step.tokens * self.plan.duration

    @property
    def price(self) -> Price | None:
        """What a GPU-hour costs there."""
        return price_of(self.cluster)

    @property
    def cost(self) -> float | None:
        """USD for 10^12 tokens; None without a price."""
        return None if self.plan is None else self.plan.cost_per_trillion_tokens

    def to_dict(self) -> dict[str, object]:
        """Plain figures for JSON, keys with their unit."""
        return {
            "cluster": self.cluster.name, "gpu": self.cluster.gpu.name,
            "n_ranks": self.cluster.n_ranks, "why_not": self.why, "front": self.front,
            "price": None if self.price is None else self.price.to_dict(),
            "trillion_tokens_s": self.duration, "usd_per_trillion_tokens": self.cost,
            "plan": None if self.plan is None else self.plan.to_dict(),
        }  # fmt: skip


def compare(
    clusters: Sequence[Cluster],
    plan_on: Callable[[Cluster], Plans],
    objective: str = "time",
) -> tuple[Offer, ...]:
    """The clusters with their best plans, the best by the objective first; those on which nothing
    fits, or without a price where cost decides, last."""
    offers = []
    for cluster in clusters:
        try:
            offers.append(Offer(cluster=cluster, plan=plan_on(cluster).best))
        except PlanError as error:
            offers.append(Offer(cluster=cluster, plan=None, why=str(error)))
    marked = [_marked(offer, offers) for offer in offers]
    return tuple(sorted(marked, key=lambda offer: _key(offer, objective)))


def _key(offer: Offer, objective: str) -> tuple[bool, float]:
    value = {
        "time": offer.duration, "cost": offer.cost,
        "memory": None if offer.plan is None else -offer.plan.headroom,
    }[objective]  # fmt: skip
    return value is None, value or 0.0


def _marked(offer: Offer, offers: Sequence[Offer]) -> Offer:
    mine = _values(offer)
    beaten = mine is None or any(
        theirs is not None
        and all(a <= b for a, b in zip(theirs, mine, strict=True))
        and theirs != mine
        for theirs in map(_values, offers)
    )
    return Offer(cluster=offer.cluster, plan=offer.plan, why=offer.why, front=not beaten)


def _values(offer: Offer) -> tuple[float, float, float] | None:
    """What is to be small: time, cost (unknown: infinite), memory used."""
    if offer.plan is None or offer.duration is None:
        return None
    cost = float("inf") if offer.cost is None else offer.cost
    return offer.duration, cost, -offer.plan.headroom
