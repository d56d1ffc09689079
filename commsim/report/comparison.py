"""Two clusters side by side, and what the difference is due to: one attribute swapped at a time."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from commsim.errors import CommsimError
from commsim.topology.cluster import Cluster
from commsim.topology.node import NodeTopology
from commsim.units import Seconds, format_rate

SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One attribute of the first cluster set to the second's, and the duration (s) then.

    duration is nan where a machine with only this change cannot exist; `reason` says why.
    """

    attribute: str
    before: str
    after: str
    duration: Seconds
    reason: str = ""


def causes(
    first: Cluster, second: Cluster, duration: Callable[[Cluster], Seconds]
) -> tuple[Cause, ...]:
    """The attributes in which two clusters differ, each swapped alone into the first.

    `duration` predicts one cluster (s). The effects need not multiply to the whole: the slowest
    resource decides, so a change may show only together with another.
    """
    found = []
    for attribute, before, after, change in _differences(first, second):
        try:
            took, reason = duration(change(first)), ""
        except CommsimError as error:
            took, reason = math.nan, str(error)
        found.append(
            Cause(attribute=attribute, before=before, after=after, duration=took, reason=reason)
        )
    return tuple(found)


_Difference = tuple[str, str, str, Callable[[Cluster], Cluster]]


def _differences(first: Cluster, second: Cluster) -> tuple[_Difference, ...]:
    found: list[_Difference] = []

    def add(name: str, of: Callable[[Cluster], str], change: Callable[[Cluster], Cluster]) -> None:
        if of(first) != of(second):
            found.append((name, of(first), of(second), change))

    add("nodes", lambda c: str(c.nodes), lambda c: replace(c, nodes=second.nodes))
    add("GPUs and links", _machine, lambda c: _with_machine(c, second))
    add("NICs", _nics, lambda c: _with_nics(c, second))
    for name in ("kind", "transport", "oversubscription", "sharp"):
        value = getattr(second.fabric, name)
        add(
            f"fabric {name}",
            lambda c, name=name: str(getattr(c.fabric, name)),  # type: ignore[misc]
            lambda c, name=name, value=value: replace(  # type: ignore[misc]
                c, fabric=replace(c.fabric, **{name: value})
            ),
        )
    add(
        "NVLink domain",
        lambda c: f"{c.fabric.scale_up_domain} GPUs",
        lambda c: replace(
            c, fabric=replace(c.fabric, scale_up_domain=second.fabric.scale_up_domain)
        ),
    )
    return tuple(found)


def _machine(cluster: Cluster) -> str:
    return f"{cluster.gpus_per_node} x {cluster.gpu.name}, {cluster.interconnect}"


def _nics(cluster: Cluster) -> str:
    node = cluster.node
    if not node.nics:
        return "none"
    rates = sorted({nic.rate for nic in node.nics})
    text = " / ".join(format_rate(rate) for rate in rates)
    return f"{len(node.nics)} x {text}" + (
        "" if all(n.gpudirect for n in node.nics) else " via host"
    )


def _with_machine(cluster: Cluster, other: Cluster) -> Cluster:
    """The first cluster with the second's machine, whose NICs get the first's rates."""
    node = _nics_like(other.node, cluster.node)
    return replace(
        cluster, node=node, gpu=other.gpu, interconnect=other.interconnect,
        nic_placement=other.nic_placement,
        fabric=replace(cluster.fabric, scale_up_domain=other.fabric.scale_up_domain),
    )  # fmt: skip


def _with_nics(cluster: Cluster, other: Cluster) -> Cluster:
    return replace(
        cluster, node=_nics_like(cluster.node, other.node), nic_placement=other.nic_placement
    )


def _nics_like(node: NodeTopology, model: NodeTopology) -> NodeTopology:
    """`node` with the rates and GPUDirect of `model`'s NICs, where it has as many."""
    if len(node.nics) != len(model.nics):
        raise CommsimError(
            f"{len(node.nics)} NICs cannot stand for {len(model.nics)}: their slots differ"
        )
    pairs = zip(node.nics, model.nics, strict=True)
    return replace(
        node,
        nics=tuple(
            replace(nic, rate=like.rate, gpudirect=like.gpudirect, latency=like.latency)
            for nic, like in pairs
        ),
    )


def cost_per_operation(cluster: Cluster, n_ranks: int, duration: Seconds) -> float | None:
    """What the group's GPUs cost while the operation runs; None where no price is known."""
    price = cluster.price_per_gpu_hour
    return None if price is None else price * n_ranks * duration / SECONDS_PER_HOUR
