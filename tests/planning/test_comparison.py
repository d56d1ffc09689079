"""Several clusters for one model: ratios, ties and causes, against values worked by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

import commsim
from commsim.errors import PlanError
from commsim.planning.comparison import Offer, against, compare
from commsim.planning.plans import Plans, plan
from commsim.units import Seconds

REPLICAS = {"tp": (1,), "pp": (1,), "cp": (1,), "micro_batch": (1,), "recompute": ("none",)}
"""One kind of layout, so that clusters differ in what they are, not in their layouts."""


def replicas(model: commsim.Model, cluster: commsim.Cluster) -> Plans:
    return plan(model, cluster, global_batch=64, seq_len=2048, top=1, only=REPLICAS)


def priced(cluster: commsim.Cluster, price: float | None) -> commsim.Cluster:
    return replace(cluster, price_per_gpu_hour=price)


def offers_of(model: commsim.Model, *clusters: commsim.Cluster, by: str = "time") -> list[Offer]:
    """In the order given."""
    found = compare(clusters, lambda where: replicas(model, where), by)
    return sorted(found, key=lambda offer: offer.number)


def causes_of(offer: Offer) -> dict[str, tuple[Seconds, float | None]]:
    assert offer.against is not None
    return {c.name: (c.duration, c.cost) for c in offer.against.causes}


def test_twice_the_price_is_all_the_difference(
    model: commsim.Model, cluster: commsim.Cluster
) -> None:
    first, other = offers_of(model, priced(cluster, 2.0), priced(cluster, 4.0))
    assert other.against is not None
    assert first.cost is not None
    assert other.against.time == 1.0
    assert other.against.cost == pytest.approx(2.0)
    assert (other.against.time_tie, other.against.cost_tie) == (True, False)
    found = causes_of(other)
    longer, dearer = found.pop("price")
    assert longer == 0.0
    assert dearer == pytest.approx(first.cost)
    assert all(more == (0.0, 0.0) for more in found.values())
    assert "number of GPUs" not in found


def test_slower_nics_show_as_exposed_gradients(
    model: commsim.Model, cluster: commsim.Cluster
) -> None:
    slow = commsim.load_cluster(
        "dgx-h100", nodes=2, **{"node.nics.count": 1, "node.nics.rate": "25Gbit/s"}
    )
    first, other = offers_of(model, priced(cluster, 3.6), priced(slow, 3.6))
    assert first.plan is not None
    assert other.plan is not None
    found = causes_of(other)
    name, (longer, dearer) = max(found.items(), key=lambda item: item[1][0])
    assert name == "exposed dp"
    # 10^12 tokens are so many steps of 64 x 2,048; 16 GPUs at 0.001 USD a second each.
    steps = 1e12 / (64 * 2048)
    exposed = [offer.plan.step.exposed["dp"] for offer in (first, other) if offer.plan]
    assert longer == pytest.approx(steps * (exposed[1] - exposed[0]))
    assert dearer == pytest.approx(0.016 * longer)
    assert found["compute"][0] == pytest.approx(0.0, abs=1e-3 * longer)
    assert other.place == 2
    assert not other.front


def test_causes_add_up_and_turn_their_sign(model: commsim.Model, cluster: commsim.Cluster) -> None:
    fast = priced(cluster, 3.0)
    slow = priced(commsim.load_cluster("dgx-a100", nodes=1), 1.0)
    first, other = offers_of(model, fast, slow)
    assert first.duration is not None
    assert other.duration is not None
    assert first.cost is not None
    assert other.cost is not None
    found = causes_of(other)
    assert sum(more for more, _ in found.values()) == pytest.approx(other.duration - first.duration)
    assert sum(cost for _, cost in found.values() if cost is not None) == pytest.approx(
        other.cost - first.cost
    )
    back = against(first, other)
    assert back is not None
    assert {c.name for c in back.causes} == found.keys()
    for cause in back.causes:
        there = found[cause.name]
        assert cause.duration == pytest.approx(-there[0])
        assert cause.cost == pytest.approx(-there[1] if there[1] is not None else None)


def test_half_the_gpus_worked_by_hand(model: commsim.Model, cluster: commsim.Cluster) -> None:
    half = replace(cluster, nodes=1)
    first, other = offers_of(model, priced(cluster, None), half)
    assert first.duration is not None
    assert other.duration is not None
    work = [16 * first.duration, 8 * other.duration]  # GPU-seconds
    found = causes_of(other)
    # 1/8 - 1/16 = 1/16 of the mean work is for having half the GPUs
    assert found["number of GPUs"][0] == pytest.approx(sum(work) / 2 / 16)
    parts = sum(more for name, (more, _) in found.items() if name != "number of GPUs")
    assert parts == pytest.approx((work[1] - work[0]) * (1 / 16 + 1 / 8) / 2)


def test_ties_lie_inside_the_interval(model: commsim.Model, cluster: commsim.Cluster) -> None:
    hardly = commsim.load_cluster("dgx-h100", nodes=2, **{"node.nics.rate": "395Gbit/s"})
    older = commsim.load_cluster("dgx-a100", nodes=2)
    one, two, three = offers_of(model, cluster, hardly, older)
    assert [o.place for o in (one, two, three)] == [1, 2, 3]
    assert [o.tie for o in (one, two, three)] == [False, True, False]
    for offer in (one, two, three):
        assert offer.against is not None
        assert one.interval is not None
        low, high = one.interval
        assert offer.duration is not None
        assert offer.against.time_tie == (low <= offer.duration <= high)
        assert offer.plan is not None
        assert offer.interval is not None
        assert offer.interval[1] / offer.duration == pytest.approx(
            offer.plan.step.interval[1] / offer.plan.duration
        )


def test_the_best_by_memory_has_no_ties(model: commsim.Model, cluster: commsim.Cluster) -> None:
    less = replace(cluster, gpu=replace(cluster.gpu, memory=cluster.gpu.memory - (1 << 30)))
    one, two = offers_of(model, less, cluster, by="memory")
    assert (one.place, two.place) == (2, 1)
    assert not one.tie


def test_without_a_price_the_rest_is_there(model: commsim.Model, cluster: commsim.Cluster) -> None:
    unknown = replace(
        cluster, price_per_gpu_hour=None, gpu=replace(cluster.gpu, name="GPU of next year")
    )
    first, other = offers_of(model, cluster, unknown)
    assert first.cost is not None
    assert other.price is None
    assert (other.cost, other.cost_interval) == (None, None)
    assert other.against is not None
    assert (other.against.cost, other.against.cost_tie) == (None, False)
    assert other.against.time == pytest.approx(1.0)
    assert all(cost is None for _, cost in causes_of(other).values())
    assert other.to_dict()["price"] is None


def test_a_cluster_too_small_says_how_many_gpus_would_do() -> None:
    model = commsim.load_model("llama3-8b")
    small = commsim.load_cluster("rtx4090x8", **{"node.gpus": 2})
    large = commsim.load_cluster("dgx-h100")

    def plan_on(where: commsim.Cluster) -> Plans:
        return plan(model, where, global_batch=64, seq_len=2048, top=1, only={"cp": (1,)})

    best, nothing = compare([small, large], plan_on)
    assert (best.number, best.place) == (2, 1)
    assert nothing.plan is None
    assert nothing.place == 2
    assert nothing.against is None
    with pytest.raises(PlanError) as caught:
        plan_on(small)
    assert nothing.least_gpus == caught.value.least_gpus
    assert nothing.least_gpus is not None
    assert f"the least that would do is {nothing.least_gpus} GPUs" in nothing.why
    # the first that has a plan is what the others are held against
    assert best.against is not None
    assert (best.against.number, best.against.time) == (2, 1.0)
