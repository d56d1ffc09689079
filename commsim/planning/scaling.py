"""How a model scales: the best layout on more and more machines, and where it changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from commsim.errors import PlanError
from commsim.planning.plans import Plan, Plans
from commsim.topology.cluster import Cluster

MOST_GPUS = 16384
INNER = ("tp", "cp", "ep", "etp", "pp", "interleave", "schedule", "zero_stage", "hsdp", "recompute")


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The best layout on so many GPUs. efficiency: tokens/s per GPU over those of the fewest GPUs
    that fit; changed: what of its structure is not as on fewer GPUs; plan: None where none is
    possible, and then why."""

    nodes: int
    gpus: int
    plan: Plan | None
    efficiency: float = 0.0
    changed: tuple[str, ...] = ()
    why: str = ""

    def to_dict(self) -> dict[str, object]:
        """Plain figures for JSON, keys with their unit."""
        found: dict[str, object] = {"nodes": self.nodes, "gpus": self.gpus, "why_not": self.why}
        if self.plan is not None:
            found |= {
                "duration_s": self.plan.duration,
                "tokens_per_s_per_gpu": self.plan.step.tokens_per_second_per_gpu,
                "mfu": self.plan.step.mfu, "efficiency": self.efficiency,
                "changed": list(self.changed), "layout": self.plan.to_dict()["layout"],
            }  # fmt: skip
        return found


def scaling(
    cluster: Cluster,
    plan_on: Callable[[Cluster], Plans],
    nodes: Sequence[int] | None = None,
) -> tuple[Point, ...]:
    """The best plan on each number of machines (None: doubled from 1 up to 16,384 GPUs).

    plan_on: plans on a cluster; with the batch kept it shows strong scaling, with the batch grown
    by the number of GPUs weak scaling.
    """
    counts = list(nodes) if nodes is not None else doublings(cluster.gpus_per_node)
    points: list[Point] = []
    first: float | None = None
    before: Plan | None = None
    for count in counts:
        gpus = count * cluster.gpus_per_node
        try:
            best = plan_on(replace(cluster, nodes=count)).best
        except PlanError as error:
            points.append(Point(nodes=count, gpus=gpus, plan=None, why=str(error)))
            continue
        rate = best.step.tokens_per_second_per_gpu
        first = first or rate
        changed = () if before is None else tuple(
            f"{name} {getattr(before.layout, name)} -> {getattr(best.layout, name)}"
            for name in INNER
            if getattr(before.layout, name) != getattr(best.layout, name)
        )  # fmt: skip
        points.append(
            Point(nodes=count, gpus=gpus, plan=best, efficiency=rate / first, changed=changed)
        )
        before = best
    return tuple(points)


def doublings(gpus_per_node: int) -> list[int]:
    """Numbers of machines from 1 on, doubled, up to 16,384 GPUs."""
    counts = [1]
    while counts[-1] * 2 * gpus_per_node <= MOST_GPUS:
        counts.append(counts[-1] * 2)
    return counts
