"""The all_reduce of serving engines: kernels that read their neighbours' memory over NVLink.

    one-shot    SYNCS + 1 latencies + (n - 1) S / B         each reads all buffers and adds
    two-shot    SYNCS + 2 latencies + 2 (n - 1) S / (n B)   each adds a part, then reads the others

S: bytes of the buffer; B: what a GPU reads from the others. Which one runs, and up to which size
before NCCL does it, is vLLM's rule (csrc/custom_all_reduce.cuh and custom_all_reduce.py: 2, 4, 6 or
8 GPUs of one machine, up to 8 MiB); TensorRT-LLM's kernels are the same two. The closed forms are
those of collectives/algorithms. Neglected: NVLink SHARP, kernels that also do the norm after it.
"""

from __future__ import annotations

from functools import lru_cache

from commsim.collectives.algorithms.direct import Direct
from commsim.collectives.algorithms.one_shot import OneShot
from commsim.collectives.collective import Collective
from commsim.cost import profile
from commsim.errors import UnknownNameError
from commsim.topology.capacity import scale_up_bandwidth
from commsim.topology.cluster import Cluster
from commsim.topology.placement import place
from commsim.units import KIB, MIB, Bytes, Seconds
from commsim.workload.communication import SCALE_UP_SHARE, Message, Messages
from commsim.workload.layouts.groups import groups

KINDS = ("auto", "nccl", "one_shot", "two_shot")
SIZES = (2, 4, 6, 8)
MOST = 8 * MIB
SYNCS = 2
"""Barriers of a kernel: all must have come before any reads, and have read before any goes on."""


def all_reduce(messages: Messages, nbytes: float, gap: Seconds, kind: str = "auto") -> Message:
    """One all_reduce of nbytes among tensor-parallel ranks. gap: s from kernel to kernel, which a
    kernel of one's own takes too.

    kind: "auto" as vLLM chooses, or one of them wherever it can run. Raises UnknownNameError.
    """
    if kind not in KINDS:
        raise UnknownNameError("all_reduce", kind, KINDS)
    cluster, ranks = messages.cluster, groups(messages.layout).ranks("tp")
    n, size = len(ranks), int(nbytes)
    chosen = choice(cluster, ranks, size) if kind == "auto" else kind
    if chosen == "nccl" or n < 2 or not _joined(cluster, ranks):
        return messages.of("all_reduce", "tp", nbytes)
    return _message(cluster, ranks, size, gap, chosen)


def choice(cluster: Cluster, ranks: tuple[int, ...], nbytes: Bytes) -> str:
    """What vLLM takes: "one_shot", "two_shot" or "nccl"."""
    n = len(ranks)
    if n not in SIZES or nbytes > MOST or not _joined(cluster, ranks):
        return "nccl"
    few = 512 * KIB if n <= 4 else 256 * KIB
    return "one_shot" if n == 2 or nbytes < few else "two_shot"


@lru_cache(maxsize=4096)
def _joined(cluster: Cluster, ranks: tuple[int, ...]) -> bool:
    """Do all of them read each other's memory over NVLink or xGMI?"""
    return place(cluster, ranks).hosts == 1 and _bandwidth(cluster, ranks) > 0


def _bandwidth(cluster: Cluster, ranks: tuple[int, ...]) -> float:
    local = tuple(sorted(rank % cluster.gpus_per_node for rank in ranks))
    return SCALE_UP_SHARE * scale_up_bandwidth(cluster.node, local)


@lru_cache(maxsize=1 << 14)
def _message(
    cluster: Cluster, ranks: tuple[int, ...], nbytes: Bytes, gap: Seconds, kind: str
) -> Message:
    n = len(ranks)
    collective = Collective("all_reduce", nbytes=nbytes, dtype="uint8", ranks=ranks)
    algorithm = OneShot() if kind == "one_shot" else Direct()
    cost = algorithm.cost(collective, n)
    latency = profile.shipped("nccl").constants["hop.ll"].value  # a flag or a word to a neighbour
    bandwidth = _bandwidth(cluster, ranks)
    duration = gap + SYNCS * latency + cost.duration(latency, bandwidth)
    return Message(
        "all_reduce", nbytes, n, duration, kind.replace("_", "-"),
        scale_up=cost.nbytes / bandwidth / duration,
    )  # fmt: skip
