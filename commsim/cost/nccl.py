"""What an operation through NCCL or RCCL takes: constants of a profile put into the formulas."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from commsim.collectives.collective import Collective
from commsim.cost.bound import bound
from commsim.cost.calibrated import WIDEN, Case, calibrated_class, class_of, uncovered
from commsim.cost.cost import Cost, Pace, assumed
from commsim.cost.features import Machine, Tags, features, link_share, machine
from commsim.cost.formulas import FORMULAS, over_network
from commsim.cost.profile import Profile
from commsim.cost.transport import CXI_INJECTED
from commsim.libraries.library import Candidate
from commsim.libraries.nccl.facts import NcclFacts
from commsim.topology.cluster import Cluster
from commsim.units import BytesPerSecond, Seconds, format_rate

SINGLE_LAUNCH = 6e-6
"""s a GPU: one thread launching on n GPUs one after another (`-g n`): 23.3 to 25 us on 4 H100, NCCL
2.29.2, where one process each needs 9.5 (nccl-tests logs of the "4-GPU slice" platform in
validation/published)."""

RELEASE = "release"
CHOOSING = (
    "NCCL_ALGO", "NCCL_PROTO", "NCCL_NVLS_ENABLE", "NCCL_COLLNET_ENABLE", "NCCL_PAT_ENABLE",
    "NCCL_TUNER", "NCCL_DEBUG",
)  # fmt: skip
"""How variables begin that only choose among algorithms and protocols, or print."""

NVLS_LEGS = {1.0: 4, 0.0: 2}
"""Legs through an NVSwitch: in all_reduce up, the sum to its owner, back, down; else one way."""


def cost(
    collective: Collective,
    cluster: Cluster,
    candidate: Candidate,
    facts: NcclFacts,
    profile: Profile,
) -> Cost:
    """The duration in s of `candidate`, where it goes, and how far measurements carry it."""
    m = machine(cluster, facts)
    k = _constants(profile, m, facts)
    f = features(collective, candidate, facts, m)
    by = _correction(collective, candidate, facts, m, profile)
    parts = {name: by * part for name, part in formula(f, k, candidate, facts).items()}
    duration = sum(parts.values())
    binds = _bottleneck(collective, candidate, f, k, parts, m, cluster)
    least = bound(collective, cluster, facts.placement)
    if duration < least:
        parts["transfer"] += least - duration
        duration = least
        binds = f"what the links and the fabric ({cluster.fabric.kind}) carry at their full rate"
    case = case_of(collective.operation, candidate, facts, m)
    low, high, doubtful = _spread(case, collective.nbytes, m, profile)
    if least > 0:
        low = max(low, min(0.0, math.log(least / duration)))  # nor may the interval beat physics
    return Cost(
        duration=duration,
        breakdown=tuple(parts.items()),
        bottleneck=binds,
        spread=(low, high),
        extrapolated=doubtful,
        notes=assumed(collective) + _notes(f),
    )


def _notes(f: Any) -> tuple[str, ...]:
    """What a reader of the curve would take for a fault of the model."""
    if not f.injected:
        return ()
    return (
        f"messages of at most {CXI_INJECTED} B go inside the adapter's commands (libfabric's CXI "
        "provider), for which the host reads them from the GPU: larger ones are faster",
    )


def formula(
    f: Any, k: Mapping[str, float], candidate: Candidate, facts: NcclFacts
) -> dict[str, Seconds]:
    """What the formula says, with the time that one thread needs to launch on all its GPUs."""
    parts = {name: float(v) for name, v in FORMULAS[candidate.algorithm](f, k).items()}
    parts["launch"] += max(0.0, least_launch(facts) - sum(parts.values()))
    return parts


def least_launch(facts: NcclFacts) -> Seconds:
    """s below which no operation ends: one thread launching on every GPU of a machine."""
    return SINGLE_LAUNCH * facts.placement.max_per_host if facts.launch == "single" else 0.0


def case_of(operation: str, candidate: Candidate, facts: NcclFacts, m: Machine) -> Case:
    """What a calibration tells apart; nodes are NVLink domains, as everywhere here."""
    tags = dict(m.tags)
    return Case(
        hardware=f"{tags['generation']}/{tags['link']}/{tags['transport']}",
        operation=operation, ranks=facts.placement.n, nodes=facts.communicator.nodes,
        algorithm=candidate.algorithm, protocol=candidate.protocol, setting=setting(facts),
    )  # fmt: skip


def setting(facts: NcclFacts) -> tuple[str, ...]:
    """The release, and the variables that change how bytes move where no formula says by how
    much: "release=2.27", "FI_CXI_RX_MATCH_MODE=software" ..."""
    return _words(facts.version, facts.env)


@lru_cache(maxsize=256)
def _words(version: tuple[int, ...], env: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    variables = (f"{k}={'_'.join(v.split())}" for k, v in sorted(env) if not k.startswith(CHOOSING))
    return (f"{RELEASE}={'.'.join(map(str, version[:2]))}", *variables)


def tags_of(m: Machine, facts: NcclFacts) -> Tags:
    """The machine's tags, and one for each word of the setting."""
    words = (word.partition("=") for word in setting(facts))
    return (*m.tags, *((name, value) for name, _, value in words))


def _constants(profile: Profile, m: Machine, facts: NcclFacts) -> dict[str, float]:
    return profile.values(tags_of(m, facts) if profile.calibration else m.tags)


def _correction(
    collective: Collective, candidate: Candidate, facts: NcclFacts, m: Machine, profile: Profile
) -> float:
    """What the profile's own measurements make of the formula's duration: a factor."""
    if profile.calibration is None:
        return 1.0
    k = _constants(profile, m, facts)

    def curve(nbytes: int) -> Seconds:
        at = features(replace(collective, nbytes=nbytes, splits=None), candidate, facts, m)
        return sum(formula(at, k, candidate, facts).values())

    case = case_of(collective.operation, candidate, facts, m)
    key = (case, collective.dtype, m, facts)
    return profile.calibration.factor(case, collective.nbytes, curve, key)


def pace(
    collective: Collective,
    cluster: Cluster,
    candidate: Candidate,
    facts: NcclFacts,
    profile: Profile,
) -> Pace:
    """What `candidate` takes beyond its bytes, from the same constants as `cost`."""
    m = machine(cluster, facts)
    k = _constants(profile, m, facts)
    f = features(collective, candidate, facts, m)
    whole = cost(collective, cluster, candidate, facts, profile)
    by = _correction(collective, candidate, facts, m, profile)
    # The time of the bytes alone: the same formula where nothing else takes time.
    timeless = {
        name: 0.0 if profile.constants[name].unit == "s" and name != "nvls.chunk" else value
        for name, value in k.items()
    }
    still = copy.copy(f)
    still.latency = 0.0
    proto = f.protocol_name
    local_hop, net_hop = _hops(f, k, candidate.algorithm)
    local, net = k["link"] * k[f"share.{proto}"], k["nic"] * k[f"nic.{proto}"]
    if candidate.algorithm == "p2p":
        local = k["share.p2p.ll"] * k["link"] if proto == "ll" else k["p2p.link"]
        net = k["nic.shift"] if f.shift else k["nic.p2p"]
    elif candidate.algorithm in ("nvls", "nvls_tree"):
        local = k["nvls.link"] if f.both_ways else k["nvls.one_way"]
        local *= k["nvls.tree"] if f.crosses else 1.0
    return Pace(
        launch=dict(whole.breakdown)["launch"],
        duration=whole.duration,
        transfer=by
        * sum(float(v) for v in FORMULAS[candidate.algorithm](still, timeless).values()),
        local_hop=local_hop,
        net_hop=net_hop,
        local_share=min(1.0, local * link_share(cluster, m)),
        net_share=min(1.0, net),
        channel=_channel(f, k, candidate.algorithm),
    )


def _hops(f: Any, k: Mapping[str, float], algorithm: str) -> tuple[Seconds, Seconds]:
    """s of a message inside a node, to or from its switch, and over the network."""
    proto = f.protocol_name
    speed = k["simple.speed"] if proto == "simple" else k["speed"]
    local, net = f"hop.{proto}", f"net.{proto}"
    if algorithm == "tree":
        local, net = f"tree.{proto}", "net.tree.simple" if proto == "simple" else net
    elif algorithm in ("nvls", "nvls_tree"):  # all legs together take as long as it takes to start
        return k["nvls.start"] * speed / NVLS_LEGS[f.both_ways], over_network(f, k, "nvls.net")
    return k[local] * speed, over_network(f, k, net) + k["rendezvous"] * f.rendezvous


def _channel(f: Any, k: Mapping[str, float], algorithm: str) -> BytesPerSecond:
    """bytes/s that one channel of a ring or tree copies at most."""
    if algorithm not in ("ring", "tree"):
        return math.inf
    proto = f.protocol_name
    whole = k["link"] * f.link * k[f"share.{proto}"]
    return float(whole * min(1.0, k[f"channel.{proto}"] / f.lanes))


def _bottleneck(
    collective: Collective,
    candidate: Candidate,
    f: Any,
    k: Mapping[str, float],
    parts: Mapping[str, Seconds],
    m: Machine,
    cluster: Cluster,
) -> str:
    """The largest part; of a transfer, the resource that saves most if it were twice as fast."""
    largest = max(parts, key=lambda name: parts[name])
    if largest == "launch":
        return "kernel launch"
    if largest == "hops":
        return "latency of the hops" + (f" over {m.net_name}" if m.nics else "")
    words = {"link": f"{m.link_name} of one GPU, {format_rate(m.link)} per direction"}
    if m.nics:
        nic = cluster.node.nics[0]
        words["net"] = f"{m.nics} NIC{'s' * (m.nics > 1)} of {format_rate(nic.rate)} ({m.net_name})"
        if collective.operation == "all_to_all" and m.cut < m.net:
            words["net"] = (
                f"the fabric, oversubscribed {cluster.fabric.oversubscription:g} to 1: "
                f"{format_rate(m.cut)} a node"
            )
        words["sockets"] = (
            "a thread that copies through the kernel's sockets for each NIC (NCCL_SOCKET_NTHREADS)"
        )
        words["threads"] = f"messages, posted one by one to each NIC ({m.net_name})"
    words["tree_cap"] = "what the tree's channels can add where it branches"
    words["memory"] = f"copies inside one GPU, memory of {format_rate(m.memory)}"

    def duration_with(name: str) -> Seconds:
        faster = copy.copy(f)
        setattr(faster, name, 2 * getattr(f, name))
        return float(sum(FORMULAS[candidate.algorithm](faster, k).values()))

    return words[min((name for name in words if hasattr(f, name)), key=duration_with)]


def _spread(
    case: Case, nbytes: int, m: Machine, profile: Profile
) -> tuple[float, float, tuple[str, ...]]:
    kind = class_of(case.nodes, nbytes)
    doubtful = doubts(case.operation, case.nodes, m, profile.fitted)
    spread = profile.spreads.get(kind) or profile.spreads["all"]
    if profile.calibration:
        outside = uncovered(profile.calibration.covered, case, nbytes)
        if outside is None:
            doubtful += (f"the profile was not calibrated on {case.operation} of {case.hardware}",)
        else:
            doubtful = outside
            spread = (
                profile.spreads.get(calibrated_class(case.nodes, nbytes))
                or profile.spreads["calibrated"]
            )
    widen = WIDEN ** len(doubtful)
    return spread.low * widen, spread.high * widen, doubtful


def doubts(
    operation: str, nodes: int, m: Machine, fitted: Mapping[str, tuple[str, ...]]
) -> tuple[str, ...]:
    """In what this case lies outside the measurements that `fitted` describes, each a sentence."""
    found = [
        f"no measurement of {kind} {tag!r}: "
        "its constants are the average of the others or public figures"
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
