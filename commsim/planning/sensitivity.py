"""What a step would gain from each part of the hardware: which one to pay for.

    elasticity = -d ln(step) / d ln(part), by central difference over x 1.1 and / 1.1

(NVLink and xGMI come in whole links: over x 2 and / 2.) 0: no matter; 1: the step follows the part.
As libraries and schedules decide by thresholds, the
step with the part twice and half as good is given beside it. The layout stays; what more memory is
worth shows only in layouts that it makes possible, so that part alone is planned anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from commsim.cost.profile import Profile
from commsim.topology.cluster import Cluster
from commsim.topology.parts import GpuPart
from commsim.units import Seconds
from commsim.workload.layout import Layout
from commsim.workload.model import Model
from commsim.workload.step import StepPrediction, predict_step

STEP, LEAP = 1.1, 2.0
LINKS = {
    "nvlink": "NVLink", "xgmi": "xGMI", "pcie": "PCIe", "c2c": "CPU-GPU link",
    "socket": "CPU-CPU link",
}  # fmt: skip
COUNTED = ("NVLink", "xGMI")
Change = Callable[[Cluster, float], Cluster]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """What a part is worth. base, doubled, halved: s of a step with it as it is, twice and half as
    good; elasticity: see above."""

    part: str
    base: Seconds
    doubled: Seconds
    halved: Seconds
    elasticity: float

    @property
    def saved(self) -> Seconds:
        """s saved in a step by twice the part."""
        return self.base - self.doubled

    def to_dict(self) -> dict[str, object]:
        """Plain figures for JSON, keys with their unit."""
        return {
            "part": self.part, "elasticity": self.elasticity, "step_s": self.base,
            "step_with_twice_s": self.doubled, "step_with_half_s": self.halved,
        }  # fmt: skip


def sensitivities(
    model: Model, cluster: Cluster, layout: Layout, profile: Profile | None = None
) -> tuple[Sensitivity, ...]:
    """What each part of the cluster is worth to this layout, the most first.

    >>> from commsim.topology.load import load_cluster
    >>> from commsim.workload.load import load_model
    >>> layout = Layout(tp=2, dp=4, global_batch=32, seq_len=4096)
    >>> found = sensitivities(load_model("llama3-8b"), load_cluster("dgx-h100"), layout)
    >>> found[0].part
    'GPU compute'
    """
    base = predict_step(model, cluster, layout, profile).duration

    def with_part(change: Change, factor: float) -> Seconds:
        return predict_step(model, change(cluster, factor), layout, profile).duration

    found = []
    for part, change in parts_of(cluster).items():
        doubled, halved = with_part(change, LEAP), with_part(change, 1 / LEAP)
        better, worse, step = doubled, halved, LEAP
        if part not in COUNTED:
            better, worse, step = with_part(change, STEP), with_part(change, 1 / STEP), STEP
        found.append(
            Sensitivity(
                part=part, base=base, doubled=doubled, halved=halved,
                elasticity=math.log(worse / better) / (2 * math.log(step)),
            )
        )  # fmt: skip
    return tuple(sorted(found, key=lambda s: (-s.elasticity, -s.saved)))


def memory_sensitivity(
    cluster: Cluster, base: StepPrediction, plan_on: Callable[[Cluster], Seconds]
) -> Sensitivity:
    """What more memory on each GPU is worth: plan_on finds the best step anew on a cluster
    (math.inf: none fits)."""

    def best(factor: float) -> Seconds:
        return plan_on(with_memory(cluster, factor))

    better, worse = best(STEP), best(1 / STEP)
    slope = math.log(worse / better) / (2 * math.log(STEP)) if math.isfinite(worse) else math.inf
    return Sensitivity(
        part="GPU memory", base=base.duration, doubled=best(LEAP), halved=best(1 / LEAP),
        elasticity=slope,
    )  # fmt: skip


def parts_of(cluster: Cluster) -> Mapping[str, Change]:
    """The parts of a cluster that can be better or worse, by their names."""
    parts: dict[str, Change] = {
        "GPU compute": _gpu(_compute), "GPU memory bandwidth": _gpu(_bandwidth)
    }  # fmt: skip
    kinds = dict.fromkeys(link.kind for link in cluster.node.links)
    for kind in kinds:
        parts[LINKS.get(kind, kind)] = _links(kind)
    if cluster.nodes > 1:
        parts["NICs"] = with_nics
        parts["switches above the nodes"] = with_switches
    return parts


def with_memory(cluster: Cluster, factor: float) -> Cluster:
    """The cluster with so many times the memory on each GPU."""
    return replace(cluster, gpu=replace(cluster.gpu, memory=int(cluster.gpu.memory * factor)))


def with_nics(cluster: Cluster, factor: float) -> Cluster:
    """The cluster with NICs so many times as fast."""
    nics = tuple(replace(nic, rate=nic.rate * factor) for nic in cluster.node.nics)
    return replace(cluster, node=replace(cluster.node, nics=nics))


def with_switches(cluster: Cluster, factor: float) -> Cluster:
    """The cluster with switches that carry so many times as much between nodes."""
    return replace(cluster, fabric=cluster.fabric.widened(factor))


def _links(kind: str) -> Change:
    """NVLink and xGMI by more or fewer links, as they are sold; the others by their rate."""

    def change(cluster: Cluster, factor: float) -> Cluster:
        counted, gpu = LINKS.get(kind) in COUNTED, cluster.gpu
        links = []
        for link in cluster.node.links:
            if link.kind == kind:
                width = max(1, round(link.width * factor)) if counted else link.width
                ratio = width / link.width if counted else factor
                link = replace(
                    link, width=width, bandwidth=link.bandwidth * ratio,
                    speed=link.speed if counted else link.speed * factor,
                )  # fmt: skip
            links.append(link)
        if counted:
            gpu = replace(gpu, link_count=max(1, round(gpu.link_count * factor)))
        return replace(cluster, gpu=gpu, node=replace(cluster.node, links=tuple(links)))

    return change


def _gpu(change: Callable[[GpuPart, float], GpuPart]) -> Change:
    return lambda cluster, factor: replace(cluster, gpu=change(cluster.gpu, factor))


def _compute(gpu: GpuPart, factor: float) -> GpuPart:
    return replace(
        gpu,
        flops=tuple((dtype, rate * factor) for dtype, rate in gpu.flops),
        measured_matmul=tuple((dtype, rate * factor) for dtype, rate in gpu.measured_matmul),
    )


def _bandwidth(gpu: GpuPart, factor: float) -> GpuPart:
    return replace(gpu, memory_bandwidth=gpu.memory_bandwidth * factor)
