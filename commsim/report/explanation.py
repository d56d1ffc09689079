"""Why a prediction is what it is: bytes per link, from link rate to bus rate, switch points."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from commsim.collectives.collective import bus_factor
from commsim.libraries.host import HostFacts
from commsim.libraries.library import Choice
from commsim.libraries.nccl.facts import NcclFacts
from commsim.libraries.nccl.graph import Communicator, Graph
from commsim.prediction import Prediction
from commsim.report.machine import gpu_rate
from commsim.topology.capacity import network_bandwidth
from commsim.topology.placement import place
from commsim.units import GIB, Bytes, BytesPerSecond, Seconds

# Bytes of data in a byte sent: LL sends a 4-byte flag after every 4 bytes, LL128 one of 8 after
# every 120 (NVIDIA, nccl src/device/prims_ll.h and prims_ll128.h).
PAYLOAD = {"LL": 1 / 2, "LL128": 120 / 128, "Simple": 1.0}
# GB/s of a channel that NCCL writes down where its search finds none (src/graph/search.cc).
NOTHING_FOUND = 0.1
# Parts of a breakdown: before any byte flows, and while bytes flow.
LAUNCH, TRANSFER = "launch", "transfer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Bytes over a kind of link in its busier direction; its rate in bytes/s (0: not known)."""

    link: str
    nbytes: float
    rate: BytesPerSecond

    @property
    def at_full_rate(self) -> Seconds:
        """The time these bytes take with the link to themselves, s."""
        return self.nbytes / self.rate if self.rate else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One stage from raw link rate to bus bandwidth: bytes/s after it, and what it stands for."""

    name: str
    bandwidth: BytesPerSecond
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """From `nbytes` on another algorithm or protocol is chosen."""

    nbytes: Bytes
    before: tuple[str, str]
    after: tuple[str, str]


def traffic(prediction: Prediction) -> tuple[Traffic, ...]:
    """Payload bytes that leave the busiest GPU and the busiest node, as the algorithm defines."""
    collective, cluster = prediction.collective, prediction.cluster
    placement, facts = place(cluster, collective.ranks), prediction.choice.facts
    node, local = cluster.node, placement.hosts_by_set[0][0]
    # Libraries that run on the host know machines, not NVLink domains.
    host = isinstance(facts, HostFacts)
    groups = placement.hosts if host else placement.domains
    members = placement.max_per_host if host else placement.max_per_domain
    if collective.operation == "barrier":
        return ()
    per_member, per_group = _volumes(
        collective.operation, prediction.algorithm, float(collective.nbytes), placement.n, groups,
        members,
    )  # fmt: skip
    found = []
    if members > 1 and per_member:
        name = "each process, in its node" if host else "each GPU, to its own domain"
        rate = 0.0 if host else gpu_rate(node, local)
        found.append(Traffic(link=name, nbytes=per_member, rate=rate))
    if groups > 1 and per_group:
        joined = 1 if host else min(cluster.hosts_per_domain, placement.hosts)
        name = "each node, to the network" if joined == 1 else f"each domain of {joined} nodes"
        if isinstance(facts, HostFacts):
            rate = sum(nic.rate for nic in node.nics[: facts.interfaces])
        else:
            rate = joined * network_bandwidth(node, local)
        found.append(Traffic(link=name, nbytes=per_group, rate=rate))
    return tuple(found)


def _volumes(
    operation: str, algorithm: str, size: float, n: int, domains: int, local: int
) -> tuple[float, float]:
    """(bytes out of the busiest GPU inside its domain, bytes out of the busiest domain).

    n ranks in `domains` NVLink domains (machines, where no NVLink joins them) of up to `local`
    ranks. Trees: every rank passes the buffer up and down; each of the two binary trees carries
    half of it, a domain has one edge in each where there are two domains, and up to four in all
    where there are more; over each edge it sends S/2. NVLS: a rank sends its buffer to the switch
    once and its n-th part of the result back. Point to point: m = S/n to every peer.
    """
    trees = min(2.0, domains / 2) * size
    shared = bus_factor(operation, n) * size  # what a ring sends on every link that it crosses
    each = size / n
    remote = n - local
    match operation, algorithm:
        case "all_reduce", "tree" | "collnet_chain":
            return 2 * size, size if algorithm == "collnet_chain" else trees
        case "all_reduce", "nvls" | "nvls_tree":
            return size + size / local, trees if algorithm == "nvls_tree" else size
        case "all_reduce", "collnet_direct":
            return 2 * size * (local - 1) / local, size
        case "all_reduce", "recursive_doubling":
            return size * math.ceil(math.log2(n)), size * local * math.ceil(math.log2(domains))
        case "all_gather", "nvls":
            return each, each * local
        case "reduce_scatter", "nvls":
            return size, each * local
        case "all_gather" | "reduce_scatter", "pat":
            return 0.0, (domains - 1) / domains * size
        case "all_to_all", _:
            return (local - 1) * each, local * remote * each
        case "gather" | "scatter", _:
            return (local - 1) * each, remote * each
        case "send_recv", _:
            return size, size
    return shared, shared


def waterfall(prediction: Prediction) -> tuple[Stage, ...]:
    """From the raw rate of the link that binds to the bus bandwidth, loss by loss, bytes/s.

    Empty where nothing moves (a barrier) or the rate of the link is not known.
    """
    collective = prediction.collective
    loads = [t for t in traffic(prediction) if t.rate and t.nbytes]
    if not loads or not collective.nbytes:
        return ()
    # Of two that bind alike, the network: so to the nanosecond, and the last of equals.
    binding = max(reversed(loads), key=lambda load: round(load.at_full_rate, 9))
    useful = collective.nbytes * bus_factor(collective.operation, prediction.n_ranks)
    stages = [Stage(name="raw link rate", bandwidth=binding.rate, reason=binding.link)]
    rate = binding.rate
    planned = planned_rate(prediction.choice)
    if planned and binding is loads[-1]:
        rate = planned
        stages.append(
            Stage(
                name="library's channels",
                bandwidth=rate,
                reason="what the graph search laid out: channels x rate of one",
            )
        )
    payload = PAYLOAD.get(prediction.protocol)
    if payload is not None:
        rate *= payload
        reason = f"{100 * payload:.4g} % of the bytes sent are data ({prediction.protocol})"
        stages.append(Stage(name="protocol", bandwidth=rate, reason=reason))
    rate *= useful / binding.nbytes
    stages.append(
        Stage(
            name="algorithm",
            bandwidth=rate,
            reason=f"{prediction.algorithm} moves {binding.nbytes / collective.nbytes:.4g} S here,"
            f" bus bandwidth counts {useful / collective.nbytes:.4g} S",
        )
    )
    running = prediction.duration
    parts = prediction.breakdown
    transfer = parts.get(TRANSFER, 0.0)
    # A transfer shorter than the planned rate allows hides behind the hops: no stage of its own.
    if transfer and useful / transfer <= rate:
        stages.append(
            Stage(
                name="links in practice",
                bandwidth=useful / transfer,
                reason="what measurements leave of the planned rate while bytes flow",
            )
        )
    running -= parts.get(LAUNCH, 0.0)
    stages.append(
        Stage(
            name="hops and processing",
            bandwidth=useful / running,
            reason="waiting for bytes to pass every hop, as far as it is not hidden",
        )
    )
    stages.append(
        Stage(
            name="bus bandwidth",
            bandwidth=prediction.bus_bandwidth,
            reason="launch, before any byte flows",
        )
    )
    return tuple(stages)


def communicator(choice: Choice) -> Communicator | None:
    """What NCCL found out about the group's machines; None for libraries that search no graphs."""
    facts = choice.facts
    return facts.communicator if isinstance(facts, NcclFacts) else None


def graphs(found: Communicator) -> dict[str, Graph]:
    """The graphs that NCCL searched, by name, after all ranks have agreed on them."""
    each = {
        "ring": found.ring,
        "tree": found.tree,
        "nvls": found.nvls,
        "collnet_chain": found.collnet_chain,
        "collnet_direct": found.collnet_direct,
    }
    return {name: graph for name, graph in each.items() if graph is not None}


def planned_rate(choice: Choice) -> BytesPerSecond:
    """Channels times the rate of one, as NCCL's graph search found them, bytes/s.

    0 without a search, and where it found nothing: NCCL then writes 0.1 GB/s, which is no rate.
    """
    found = communicator(choice)
    if found is None:
        return 0.0
    algorithm = choice.chosen.algorithm
    graph = graphs(found).get("nvls" if algorithm == "nvls_tree" else algorithm)
    if graph is None or graph.bw_intra <= NOTHING_FOUND:
        return 0.0
    one = graph.bw_intra if found.nodes == 1 else graph.bw_inter
    return graph.channels * one * 1e9


def switch_points(
    choose: Callable[[Bytes], tuple[str, str]], *, low: Bytes = 8, high: Bytes = 8 * GIB
) -> tuple[Switch, ...]:
    """Sizes from which another (algorithm, protocol) is chosen, to the byte.

    Powers of two are compared first, then each change is bisected; a choice that holds only between
    two powers of two and is the same at both is not seen.
    """
    found: list[Switch] = []
    size, before = low, choose(low)
    while size < high:
        following = min(2 * size, high)
        after = choose(following)
        found += _between(choose, size, before, following, after)
        size, before = following, after
    return tuple(found)


def _between(
    choose: Callable[[Bytes], tuple[str, str]],
    low: Bytes,
    before: tuple[str, str],
    high: Bytes,
    after: tuple[str, str],
) -> list[Switch]:
    if before == after:
        return []
    if high - low <= 1:
        return [Switch(nbytes=high, before=before, after=after)]
    middle = (low + high) // 2
    chosen = choose(middle)
    return _between(choose, low, before, middle, chosen) + _between(
        choose, middle, chosen, high, after
    )
