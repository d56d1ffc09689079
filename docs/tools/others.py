"""`python -m docs.tools.others`: other methods on the published measurements, as commsim is judged.

    data sheet      a ring at the data sheet's rates: launch + hops x latency + bytes / rate
    NCCL            the estimate by which NCCL chooses, as commsim.libraries.nccl follows it
    PyTorch         torch._inductor.comm_analysis, told the GPU; "+ NICs": and what NICs carry
    constant MFU    a training step at the median MFU of all other sources

The error of a method is the mean over platforms of each platform's median absolute error, over the
points that the method can say something of; commsim (shipped constants) stands beside it for the
same points.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from statistics import mean, median
from unittest.mock import patch

import torch
from torch._inductor import comm_analysis, config

from commsim.collectives.collective import bus_factor
from commsim.prediction import predict
from commsim.topology.parts import gpu
from commsim.topology.placement import place
from commsim.workload.step import predict_step
from validation import training
from validation.published import Point, read_points

LAUNCH, LOCAL, REMOTE = 6.6e-6, 0.6e-6, 2.7e-6  # s; NCCL's own figures of a ring with LL
ROUNDS = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}
Method = Callable[[Point], float]


def data_sheet(point: Point) -> float:
    """s of a ring at the full rates of links and NICs; nan for other operations."""
    cluster, operation = point.cluster, point.collective.operation
    if operation not in ROUNDS:
        return math.nan
    spot = place(cluster, point.collective.ranks)
    links = [link.bandwidth for link in cluster.node.links if link.kind in ("nvlink", "xgmi")]
    per_gpu = sum(links) / len(cluster.node.gpus) if links else 31.5e9
    ranks = point.collective.ranks or range(cluster.n_ranks)
    nodes = len({rank // cluster.gpus_per_node for rank in ranks})
    rate = per_gpu
    if nodes > cluster.hosts_per_domain and cluster.node.nics:
        rate = min(rate, sum(nic.rate for nic in cluster.node.nics))
    rounds = ROUNDS[operation]
    remote = rounds * (nodes - 1) if nodes > 1 else 0
    hops = remote * REMOTE + (rounds * (spot.n - 1) - remote) * LOCAL
    return LAUNCH + hops + point.collective.nbytes * bus_factor(operation, spot.n) / rate


def nccl(point: Point) -> float:
    """s that NCCL itself expects; nan where it has no estimate."""
    if point.library.name != "nccl":
        return math.nan
    estimate = point.library.choose(point.collective, point.cluster).chosen.estimate
    return estimate if math.isfinite(estimate) else math.nan


def pytorch(point: Point, told: bool) -> float:
    """s that PyTorch's compiler expects; nan for what it does not know."""
    known = {
        "all_reduce": comm_analysis.NCCL_COLL.ALL_REDUCE,
        "all_gather": comm_analysis.NCCL_COLL.ALL_GATHER,
        "reduce_scatter": comm_analysis.NCCL_COLL.REDUCE_SCATTER,
        "all_to_all": comm_analysis.NCCL_COLL.ALL_TO_ALL,
    }
    collective, cluster = point.collective, point.cluster
    part = gpu(cluster.node.gpus[0].part)
    if collective.operation not in known or not part.capability or point.library.name != "nccl":
        return math.nan
    kinds = comm_analysis.NVIDIA_GPU_TYPE
    kind = {7: kinds.VOLTA, 8: kinds.AMPERE, 9: kinds.HOPPER}.get(
        part.capability // 10, kinds.BLACKWELL
    )
    joined = any(link.kind == "nvlink" for link in cluster.node.links)
    nics = sum(nic.rate for nic in cluster.node.nics) / 1e9
    with (
        patch.object(comm_analysis, "get_gpu_type", lambda: kind),
        patch.object(comm_analysis, "_has_nvlink", lambda: joined),
        patch.object(torch.cuda, "is_available", lambda: True),
        patch.object(torch.cuda, "device_count", lambda: cluster.gpus_per_node),
        config.patch(inter_node_bw=nics if told and nics else None),
    ):
        n = place(cluster, collective.ranks).n
        found = comm_analysis.estimate_nccl_collective_runtime_impl(
            collective.nbytes, n, known[collective.operation]
        )
    return found * 1e-3 if found > 0 else math.nan


def commsim(point: Point) -> float:
    """s that commsim predicts with its shipped constants."""
    return predict(point.collective, point.cluster, point.library).duration


def errors(points: list[Point], method: Method) -> tuple[float, float, int, int]:
    """The method's error, commsim's on the same points, how many points and platforms."""
    theirs, ours = defaultdict(list), defaultdict(list)
    for point in points:
        found = method(point)
        if math.isfinite(found):
            theirs[point.platform].append(abs(found / point.measured - 1))
            ours[point.platform].append(abs(commsim(point) / point.measured - 1))
    count = sum(map(len, theirs.values()))
    return (
        mean(map(median, theirs.values())), mean(map(median, ours.values())), count, len(theirs)
    )  # fmt: skip


def constant_mfu() -> tuple[float, int, int]:
    """Mean over sources of the median error of a step at the other sources' median MFU."""
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)  # s at full rate, s measured
    for step in training.read_points():
        known = predict_step(step.model, step.cluster, step.layout)
        found[step.family].append((known.mfu * known.duration, step.measured))
    medians = []
    for family, steps in found.items():
        others = [peak / s for f, all_ in found.items() if f != family for peak, s in all_]
        mfu = median(others)
        medians.append(median(abs(peak / mfu / s - 1) for peak, s in steps))
    return mean(medians), sum(map(len, found.values())), len(found)


METHODS: dict[str, Method] = {
    "data sheet": data_sheet,
    "NCCL": nccl,
    "PyTorch": lambda point: pytorch(point, told=False),
    "PyTorch + NICs": lambda point: pytorch(point, told=True),
}


if __name__ == "__main__":
    judged = [point for point in read_points() if point.judged]
    print(f"torch {torch.__version__}")
    for name, method in METHODS.items():
        other, own, count, platforms = errors(judged, method)
        print(f"{name:15s} {other:6.1%}  commsim {own:6.1%}  {count} points, {platforms} platforms")
    error, count, sources = constant_mfu()
    print(f"{'constant MFU':15s} {error:6.1%}  {count} steps, {sources} sources")
