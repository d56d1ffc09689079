"""Two clusters side by side, and what the difference is due to: one attribute swapped at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from commsim.errors import CommsimError
from commsim.report.machine import nic_words
from commsim.topology.cluster import Cluster
from commsim.units import Seconds

SECONDS_PER_HOUR = 3600.0
Overrides = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One attribute of the first cluster set to the second's, and the duration (s) then.

    overrides: the keys of a cluster file that do it. duration is nan where a machine with only this
    change cannot exist; `reason` says why.
    """

    attribute: str
    before: str
    after: str
    overrides: Mapping[str, object]
    duration: Seconds
    reason: str = ""


def causes(
    first: Cluster, second: Cluster, duration: Callable[[Overrides], Seconds]
) -> tuple[Cause, ...]:
    """The attributes in which two clusters differ, each swapped alone into the first.

    `duration` predicts the first with some keys changed (s). The effects need not multiply to the
    whole: the slowest resource decides, so a change may show only together with another.
    """
    found = []
    for attribute, describe, keys in ATTRIBUTES:
        before, after = describe(first), describe(second)
        if before == after:
            continue
        overrides = keys(second)
        took, reason = math.nan, "B has none to give"
        if overrides:
            try:
                took, reason = duration(overrides), ""
            except CommsimError as error:
                reason = f"cannot exist alone: {str(error).splitlines()[0]}"
        found.append(
            Cause(
                attribute=attribute,
                before=before,
                after=after,
                overrides=overrides,
                duration=took,
                reason=reason,
            )
        )
    return tuple(found)


def _machine(cluster: Cluster) -> str:
    return f"{cluster.gpus_per_node} x {cluster.gpu.name}, {cluster.interconnect}"


def _machine_keys(cluster: Cluster) -> Overrides:
    return {
        "node.gpu": cluster.gpu.name,
        "node.gpus": cluster.gpus_per_node,
        "node.interconnect": cluster.interconnect,
    }


def _nics(cluster: Cluster) -> str:
    placement = f", {cluster.nic_placement}" if cluster.node.nics else ""
    return nic_words(cluster.node) + placement


def _nic_keys(cluster: Cluster) -> Overrides:
    nics = cluster.node.nics
    if not nics:
        return {}
    return {
        "node.nics.count": len(nics),
        "node.nics.rate": f"{min(nic.rate for nic in nics)}B/s",
        "node.nics.gpudirect": all(nic.gpudirect for nic in nics),
        "node.nics.placement": cluster.nic_placement,
    }


# What may differ: its name, how it reads, and the keys of a cluster file that carry it over.
ATTRIBUTES: tuple[
    tuple[str, Callable[[Cluster], str], Callable[[Cluster], Overrides]],
    ...,
] = (
    ("nodes", lambda c: str(c.nodes), lambda c: {"nodes": c.nodes}),
    ("GPUs and links", _machine, _machine_keys),
    ("NICs", _nics, _nic_keys),
    ("fabric", lambda c: c.fabric.kind, lambda c: {"fabric.kind": c.fabric.kind}),
    ("transport", lambda c: c.fabric.transport, lambda c: {"fabric.transport": c.fabric.transport}),
    (
        "oversubscription",
        lambda c: f"{c.fabric.oversubscription:g}",
        lambda c: {"fabric.oversubscription": c.fabric.oversubscription},
    ),
    (
        "SHARP",
        lambda c: "yes" if c.fabric.sharp else "no",
        lambda c: {"fabric.sharp": c.fabric.sharp},
    ),
    (
        "NVLink domain",
        lambda c: f"{c.fabric.scale_up_domain} GPUs",
        lambda c: {"fabric.scale_up_domain": c.fabric.scale_up_domain},
    ),
)


def cost_per_operation(cluster: Cluster, n_ranks: int, duration: Seconds) -> float | None:
    """What the group's GPUs cost while the operation runs, USD; None where no price is known."""
    price = cluster.price_per_gpu_hour
    return None if price is None else price * n_ranks * duration / SECONDS_PER_HOUR
