"""Several clusters for one model: the best plan of each, what 10^12 tokens take and cost there, and
what makes the difference to the first.

With g the GPU-seconds of 10^12 tokens, a sum over the parts of a step, n GPUs and the price p:

    time = g / n        cost = g p

A difference of two products is shared out with the mean of the other factor (T. L. Bennet, "The
theory of measurement of changes in cost of living", Journal of the Royal Statistical Society 83,
1920):

    g' / n' - g / n = sum over parts (g' - g) (1/n + 1/n') / 2  +  (1/n' - 1/n) (g + g') / 2

so causes add up to the difference, and turn their sign when the clusters change places. Ignored:
that layouts differ too, which is in the parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from commsim.errors import PlanError
from commsim.planning.plans import TRILLION, Plan, Plans
from commsim.planning.prices import HOUR, Price, price_of
from commsim.topology.cluster import Cluster
from commsim.units import Seconds

COMPUTE = ("matmul", "attention", "memory traffic", "kernel launches")
"""Parts of a step's breakdown that are told as one cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """What a part of the step, the number of GPUs or the price adds to the first cluster's figures
    for 10^12 tokens. duration: s; cost: USD, None where a price is not known."""

    name: str
    duration: Seconds
    cost: float | None

    def to_dict(self) -> dict[str, object]:
        """Plain figures for JSON, keys with their unit."""
        return {"cause": self.name, "duration_s": self.duration, "cost_usd": self.cost}


@dataclass(frozen=True, slots=True, kw_only=True)
class Against:
    """One offer against the first given that has a plan, which is `number`. time, cost: ratios, 1
    for the first itself; cost is None without a price. time_tie, cost_tie: does the first one's
    80 % interval hold the figure?"""

    number: int
    time: float
    cost: float | None
    time_tie: bool
    cost_tie: bool
    causes: tuple[Cause, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Plain figures for JSON, keys with their unit."""
        return {
            "number": self.number, "time_ratio": self.time, "cost_ratio": self.cost,
            "time_tie": self.time_tie, "cost_tie": self.cost_tie,
            "causes": [cause.to_dict() for cause in self.causes],
        }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One cluster.

    number: in the order given, from 1; place: by the objective, from 1. plan: None where nothing
    fits, and then why, and the least number of GPUs that would do where that is known. tie: not the
    best, but inside the best one's interval. front: no other is at least as good in time, cost and
    memory left. against: None for what has no plan.
    """

    number: int
    cluster: Cluster
    plan: Plan | None
    why: str = ""
    least_gpus: int | None = None
    place: int = 0
    tie: bool = False
    front: bool = False
    against: Against | None = None

    @property
    def duration(self) -> Seconds | None:
        """s for 10^12 tokens."""
        return None if self.plan is None else self._steps(self.plan) * self.plan.duration

    @property
    def interval(self) -> tuple[Seconds, Seconds] | None:
        """(low, high) s for 10^12 tokens, the central 80 %."""
        if self.plan is None:
            return None
        low, high = self.plan.step.interval
        return self._steps(self.plan) * low, self._steps(self.plan) * high

    @property
    def price(self) -> Price | None:
        """What a GPU-hour costs there."""
        return price_of(self.cluster)

    @property
    def cost(self) -> float | None:
        """USD for 10^12 tokens; None without a price."""
        return None if self.plan is None else self.plan.cost_per_trillion_tokens

    @property
    def cost_interval(self) -> tuple[float, float] | None:
        """(low, high) USD for 10^12 tokens, the central 80 % of the time at the price stated."""
        if self.interval is None or self.cost is None or self.duration is None:
            return None
        low, high = self.interval
        return self.cost * low / self.duration, self.cost * high / self.duration

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens/s of all GPUs."""
        return None if self.plan is None else self.plan.step.tokens / self.plan.duration

    @property
    def notes(self) -> tuple[str, ...]:
        """What was assumed, one sentence each."""
        return () if self.plan is None else self.plan.step.notes

    def to_dict(self) -> dict[str, object]:
        """Plain figures for JSON, keys with their unit."""
        return {
            "number": self.number, "place": self.place, "tie": self.tie, "front": self.front,
            "cluster": self.cluster.name, "gpu": self.cluster.gpu.name,
            "nodes": self.cluster.nodes, "n_ranks": self.cluster.n_ranks,
            "why_not": self.why, "least_gpus": self.least_gpus,
            "price": None if self.price is None else self.price.to_dict(),
            "tokens_per_s": self.tokens_per_second,
            "trillion_tokens_s": self.duration, "trillion_tokens_interval_s": self.interval,
            "usd_per_trillion_tokens": self.cost,
            "usd_per_trillion_tokens_interval": self.cost_interval,
            "against": None if self.against is None else self.against.to_dict(),
            "plan": None if self.plan is None else self.plan.to_dict(),
            "notes": list(self.notes),
        }  # fmt: skip

    @staticmethod
    def _steps(plan: Plan) -> float:
        return TRILLION / plan.step.tokens


def compare(
    clusters: Sequence[Cluster],
    plan_on: Callable[[Cluster], Plans],
    objective: str = "time",
) -> tuple[Offer, ...]:
    """The clusters with their best plans, the best by the objective first; those on which nothing
    fits, or without a price where cost decides, last.

    >>> from commsim.planning.plans import plan
    >>> from commsim.topology.load import load_cluster
    >>> from commsim.workload.load import load_model
    >>> model = load_model("llama3.2-1b")
    >>> best, other = compare(
    ...     [load_cluster("dgx-a100"), load_cluster("dgx-h100")],
    ...     lambda where: plan(model, where, global_batch=32, seq_len=2048, only={"cp": (1,)}),
    ... )
    >>> best.cluster.name, other.against.time, best.against.time < 0.5
    ('dgx-h100', 1.0, True)
    """
    offers = [_offer(number, cluster, plan_on) for number, cluster in enumerate(clusters, 1)]
    first = next((offer for offer in offers if offer.plan is not None), offers[0])
    ranked = sorted(offers, key=lambda offer: _key(offer, objective))
    return tuple(
        replace(
            offer, place=place, front=_on_front(offer, offers), against=against(offer, first),
            tie=place > 1 and _inside(_value(offer, objective), _range(ranked[0], objective)),
        )
        for place, offer in enumerate(ranked, 1)
    )  # fmt: skip


def against(offer: Offer, first: Offer) -> Against | None:
    """An offer's figures over the first one's, and what makes the difference; None where either has
    no plan."""
    if offer.duration is None or first.duration is None:
        return None
    known = offer.cost is not None and first.cost is not None
    return Against(
        number=first.number,
        time=offer.duration / first.duration,
        cost=offer.cost / first.cost if offer.cost is not None and first.cost else None,
        time_tie=_inside(offer.duration, first.interval),
        cost_tie=known and _inside(offer.cost, first.cost_interval),
        causes=() if offer.number == first.number else _causes(first, offer),
    )


def _offer(number: int, cluster: Cluster, plan_on: Callable[[Cluster], Plans]) -> Offer:
    try:
        return Offer(number=number, cluster=cluster, plan=plan_on(cluster).best)
    except PlanError as error:
        return Offer(
            number=number, cluster=cluster, plan=None, why=str(error), least_gpus=error.least_gpus
        )


def _causes(first: Offer, other: Offer) -> tuple[Cause, ...]:
    mine, theirs = _gpu_seconds(first), _gpu_seconds(other)
    mean_work = (sum(mine.values()) + sum(theirs.values())) / 2
    rates = 1 / first.cluster.n_ranks, 1 / other.cluster.n_ranks
    prices = _prices(first, other)
    found = [
        Cause(
            name=name, duration=more * sum(rates) / 2,
            cost=None if prices is None else more * sum(prices) / 2,
        )
        for name in dict.fromkeys((*mine, *theirs))
        for more in (theirs.get(name, 0.0) - mine.get(name, 0.0),)
    ]  # fmt: skip
    if rates[0] != rates[1]:
        longer = (rates[1] - rates[0]) * mean_work
        cost = None if prices is None else 0.0
        found.append(Cause(name="number of GPUs", duration=longer, cost=cost))
    if prices is not None and prices[0] != prices[1]:
        dearer = (prices[1] - prices[0]) * mean_work
        found.append(Cause(name="price", duration=0.0, cost=dearer))
    return tuple(found)


def _prices(first: Offer, other: Offer) -> tuple[float, float] | None:
    """USD of a GPU-second on both; None where either is not known."""
    before, after = first.price, other.price
    if before is None or after is None:
        return None
    return before.usd_per_gpu_hour / HOUR, after.usd_per_gpu_hour / HOUR


def _gpu_seconds(offer: Offer) -> Mapping[str, Seconds]:
    """GPU-seconds of 10^12 tokens by what they are spent on."""
    assert offer.plan is not None
    factor = TRILLION / offer.plan.step.tokens * offer.cluster.n_ranks
    found = {"compute": 0.0}
    for part, took in offer.plan.step.breakdown.items():
        name = "compute" if part in COMPUTE else part
        found[name] = found.get(name, 0.0) + took * factor
    return found


def _value(offer: Offer, objective: str) -> float | None:
    """What is to be small; None: not known."""
    if offer.plan is None:
        return None
    known = {"time": offer.duration, "cost": offer.cost, "memory": -offer.plan.headroom}
    return known[objective]


def _range(offer: Offer, objective: str) -> tuple[float, float] | None:
    """What the value may be; for memory, which has no interval, the value alone."""
    if objective == "memory":
        value = _value(offer, objective)
        return None if value is None else (value, value)
    return offer.interval if objective == "time" else offer.cost_interval


def _inside(value: float | None, interval: tuple[float, float] | None) -> bool:
    return value is not None and interval is not None and interval[0] <= value <= interval[1]


def _key(offer: Offer, objective: str) -> tuple[bool, float]:
    value = _value(offer, objective)
    return value is None, value or 0.0


def _on_front(offer: Offer, offers: Sequence[Offer]) -> bool:
    mine = _values(offer)
    return mine is not None and not any(
        theirs is not None
        and all(a <= b for a, b in zip(theirs, mine, strict=True))
        and theirs != mine
        for theirs in map(_values, offers)
    )


def _values(offer: Offer) -> tuple[float, float, float] | None:
    """What is to be small: time, cost (unknown: infinite), memory used."""
    if offer.plan is None or offer.duration is None:
        return None
    cost = float("inf") if offer.cost is None else offer.cost
    return offer.duration, cost, -offer.plan.headroom
