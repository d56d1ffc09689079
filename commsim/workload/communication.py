"""What the messages of a step take: each group's collective, beside its sister groups.

    duration = max(alone, bytes that all groups of a machine send / what its NICs carry)

`alone` is `predict` for one group. Its sisters (the other data-parallel groups of the same machines
...) run the same collective at the same time and share the machine's NICs. Ignored: groups of
other kinds that happen to run then; spines that sisters share.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from commsim.collectives.collective import Collective
from commsim.prediction import predict
from commsim.topology.cluster import Cluster
from commsim.topology.placement import Placement, place
from commsim.units import Bytes, Seconds
from commsim.workload.layout import Layout
from commsim.workload.layouts.groups import groups

NIC_SHARE = 0.92
"""Of the NICs' rates that data reaches: large rings over InfiniBand, 0.89 to 0.97 measured."""
SCALE_UP_SHARE = 0.8
"""The same of NVLink: rings of 8 H100 reach 360 of 450 GB/s (NCCL's bus bandwidth)."""


@dataclass(frozen=True, slots=True)
class Message:
    """One collective of a group: its duration, s, and the algorithm that the library takes.

    nics, scale_up: of what the NICs, and the NVLink of a GPU, carry, the share that it takes as
    long as nothing else does (0 to 1).
    """

    operation: str
    nbytes: Bytes
    ranks: int
    duration: Seconds
    algorithm: str = ""
    nics: float = 0.0
    scale_up: float = 0.0


@dataclass(frozen=True, slots=True)
class Messages:
    """The collectives of a layout on a cluster."""

    cluster: Cluster
    layout: Layout

    def of(self, operation: str, kind: str, nbytes: float) -> Message:
        """One collective of `nbytes` (as `Collective` counts them) on a group of this kind."""
        layout = self.layout
        return _of(
            self.cluster, layout.order, layout.tp, layout.cp, layout.dp, layout.pp, layout.ep,
            layout.expert_tp, layout.hsdp, layout.placement, operation, kind, int(nbytes),
        )  # fmt: skip

    def dispatch(self, nbytes: float, copies: int) -> Message:
        """The all_to_all of tokens to `copies` experts each, nbytes in all, where one copy goes to
        each machine and is handed on there.

        With experts drawn evenly a token meets d (1 - (1 - 1/d)^copies) of d machines. Handing on
        takes every copy over the machine's own links, at the same time (DeepEP's normal kernels,
        github.com/deepseek-ai/DeepEP). Ignored: routers that limit the machines of a token.
        """
        ranks = groups(self.layout).ranks("ep")
        machines = place(self.cluster, ranks).domains
        if machines == 1:
            return self.of("all_to_all", "ep", nbytes)
        met = machines * (1 - (1 - 1 / machines) ** copies)
        across = self.of("all_to_all", "ep", nbytes * met / copies)
        handed = nbytes / _scale_up(self.cluster)
        duration = max(across.duration, handed)
        return replace(
            across, duration=duration, nics=across.nics * across.duration / duration,
            scale_up=handed / duration,
        )  # fmt: skip

    def hop(self, nbytes: float) -> Message:
        """One activation from a stage to the next: each of its tp ranks sends nbytes."""
        ranks = groups(self.layout).ranks("pp")[:2]
        return _hop(self.cluster, ranks, max(1, int(nbytes)), self.layout.tp)


@lru_cache(maxsize=1 << 17)
def _of(
    cluster: Cluster, order: str, tp: int, cp: int, dp: int, pp: int, ep: int, etp: int,
    hsdp: int | None, placement: tuple[int, ...] | None, operation: str, kind: str, nbytes: int,
) -> Message:  # fmt: skip
    layout = Layout(
        tp=tp, cp=cp, dp=dp, pp=pp, ep=ep, etp=etp, hsdp=hsdp, order=order, placement=placement
    )
    return _message(cluster, operation, groups(layout).ranks(kind), nbytes)


@lru_cache(maxsize=1 << 16)
def _message(cluster: Cluster, operation: str, ranks: tuple[int, ...], nbytes: int) -> Message:
    if len(ranks) < 2 or nbytes < 1:
        return Message(operation, nbytes, len(ranks), 0.0)
    alone = predict(Collective(operation, nbytes=nbytes, ranks=ranks), cluster)
    where = place(cluster, ranks)
    least = 0.0
    if where.domains > 1:
        sisters = cluster.gpus_per_node / where.max_per_host
        least = sisters * leaving(operation, nbytes, where.n, where.max_per_host) / nics(cluster)
    duration = max(alone.duration, least)
    within = 0.0
    if where.max_per_domain > 1:
        within = _sent(operation, nbytes, where) / _scale_up(cluster)
    return Message(
        operation, nbytes, len(ranks), duration, f"{alone.algorithm} {alone.protocol}",
        nics=least / duration, scale_up=min(1.0, within / duration),
    )  # fmt: skip


def leaving(operation: str, nbytes: Bytes, n: int, local: int) -> float:
    """Bytes that a group of n ranks sends out of a machine which has `local` of them."""
    if operation == "all_reduce":
        return 2 * nbytes * (n - 1) / n
    if operation == "all_to_all":
        return local * nbytes * (n - local) / n
    if operation == "send_recv":
        return nbytes
    return nbytes * (n - 1) / n


def _sent(operation: str, nbytes: int, where: Placement) -> float:
    """Bytes that one GPU sends to others of its domain."""
    if operation == "all_to_all":
        return nbytes * (where.max_per_domain - 1) / where.n
    return leaving(operation, nbytes, where.n, where.max_per_host)


def _scale_up(cluster: Cluster) -> float:
    """What one GPU's way to its neighbours carries, bytes/s in one direction."""
    gpu = cluster.gpu
    return SCALE_UP_SHARE * (gpu.scale_up_bandwidth or gpu.host_bandwidth or float("inf"))


def nics(cluster: Cluster) -> float:
    """What a machine's NICs carry, bytes/s in one direction."""
    return NIC_SHARE * sum(nic.rate for nic in cluster.node.nics)


@lru_cache(maxsize=1 << 16)
def _hop(cluster: Cluster, ranks: tuple[int, ...], nbytes: int, tp: int) -> Message:
    one = Collective("send_recv", nbytes=nbytes, ranks=ranks, root=ranks[0])
    alone = predict(one, cluster)
    least = 0.0
    if place(cluster, ranks).domains > 1:
        least = min(tp, cluster.gpus_per_node) * nbytes / nics(cluster)
    duration = max(alone.duration, least)
    within = 0.0 if least else min(1.0, nbytes / _scale_up(cluster) / duration)
    return Message(
        "send_recv", nbytes, 2, duration, f"{alone.algorithm} {alone.protocol}",
        nics=least / duration, scale_up=within,
    )  # fmt: skip
