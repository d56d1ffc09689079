"""What an operation through NCCL or RCCL takes: constants of a profile put into the formulas."""

from __future__ import annotations

from collections.abc import Mapping

from commsim.collectives.collective import Collective
from commsim.cost.bound import bound
from commsim.cost.cost import Cost
from commsim.cost.features import Machine, features, machine
from commsim.cost.formulas import FORMULAS
from commsim.cost.profile import Profile
from commsim.libraries.library import Candidate
from commsim.libraries.nccl.facts import NcclFacts
from commsim.topology.cluster import Cluster
from commsim.units import KIB, MIB, Seconds, format_rate

SINGLE_LAUNCH = 6e-6
"""s a GPU: one thread launching on n GPUs one after another (`-g n`): 23.3 to 25 us on 4 H100, NCCL
2.29.2, where one process each needs 9.5 (nccl-tests logs of the "4-GPU slice" platform in
validation/published)."""


WIDEN = 1.5
"""Factor on the interval (in ln) for each way in which a case lies outside the measurements."""


def regime(nbytes: int) -> str:
    """latency up to 64 KiB, bandwidth from 16 MiB, middle between."""
    return "latency" if nbytes <= 64 * KIB else "bandwidth" if nbytes >= 16 * MIB else "middle"


def cost(
    collective: Collective,
    cluster: Cluster,
    candidate: Candidate,
    facts: NcclFacts,
    profile: Profile,
) -> Cost:
    """The duration in s of `candidate`, where it goes, and how far measurements carry it."""
    m = machine(cluster, facts)
    k = profile.values(m.tags)
    f = features(collective, candidate, facts, m)
    parts = {name: float(v) for name, v in FORMULAS[candidate.algorithm](f, k).items()}
    duration = sum(parts.values())
    if facts.launch == "single" and duration < (
        floor := SINGLE_LAUNCH * facts.placement.max_per_host
    ):
        parts["launch"] += floor - duration
        duration = floor
    least = bound(collective, cluster, facts.placement)
    if duration < least:
        parts["transfer"] += least - duration
        duration = least
    low, high, doubts = _spread(collective, facts, m, profile)
    return Cost(
        duration=duration,
        breakdown=tuple(parts.items()),
        bottleneck=_bottleneck(parts, f, m, cluster),
        spread=(low, high),
        extrapolated=doubts,
    )


def _bottleneck(parts: dict[str, Seconds], f: object, m: Machine, cluster: Cluster) -> str:
    largest = max(parts, key=lambda name: parts[name])
    if largest == "launch":
        return "kernel launch"
    if largest == "hops":
        return "latency of the hops" + (f" over {m.net_name}" if m.nics else "")
    crossing = getattr(f, "crosses", 0.0) > 0
    if crossing:
        nic = cluster.node.nics[0]
        return f"{m.nics} NICs of {format_rate(nic.rate)} ({m.net_name})"
    return f"{m.link_name} of one GPU, {format_rate(m.link)} per direction"


def _spread(
    c: Collective, facts: NcclFacts, m: Machine, profile: Profile
) -> tuple[float, float, tuple[str, ...]]:
    nodes = "multi-node" if facts.communicator.nodes > 1 else "one node"
    spread = profile.spreads.get(f"{nodes}/{regime(c.nbytes)}") or profile.spreads["all"]
    doubtful = doubts(c.operation, facts.communicator.nodes, m, profile.fitted)
    widen = WIDEN ** len(doubtful)
    return spread.low * widen, spread.high * widen, doubtful


def doubts(
    operation: str, nodes: int, m: Machine, fitted: Mapping[str, tuple[str, ...]]
) -> tuple[str, ...]:
    """In what this case lies outside the measurements that `fitted` describes, each a sentence."""
    found = [
        f"no measurement of {kind} {tag!r}: its constants are the average of the others"
        for kind, tag in m.tags
        if kind in ("generation", "transport", "link", "attach")
        and tag not in ("none", *fitted.get(kind, ("none",)))
        and kind in fitted
    ]
    if (top := fitted.get("max_nodes")) and nodes > int(top[0]):
        found.append(f"{nodes} nodes: the constants were fitted on at most {top[0]}")
    if operation not in fitted.get("operations", (operation,)):
        found.append(f"no measurement of {operation}: only physics and the other operations")
    return tuple(found)
