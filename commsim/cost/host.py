"""What a collective of a host-based library (Gloo, MPI) costs, in s.

    duration = launch + staging + copying + (host^p + network^p)^(1/p)
    host     = rounds x hop + messages x message + handled x byte + reduced x reduce_byte
    copying  = (copied + prepared) x copy_byte, before and after all else, in turns
    network  = max(port bytes / port rate, middle bytes / middle rate, own bytes / own rate)
               / efficiency, the bytes with min(queue, what is sent ahead of a word of readiness)

`host` is what the processes do (L, o and G of LogGP: Alexandrov et al., SPAA 1995,
10.1145/215399.215427), with what Traffic counts for the busiest process; where ranks outnumber
cores, the average process times ranks per core if that is more. `network` is the physical bound
over the share of the line rate that TCP data reaches: the bytes through the busiest machine's port,
those between the halves of the cluster, and those over a rank's own link where it has one. p says
how far the two overlap: 1 not at all, infinity entirely. Bulk data both ways over one Gloo
connection delays itself: the port's time grows by 1 + duplex x peers^-duplex_decay. GPU buffers are
copied to the host first and back at the end. Ignored: congestion control, loss, other traffic, NUMA
placement, caches, memory bandwidth shared by ranks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from commsim.collectives.collective import Collective
from commsim.cost.bound import WIDE
from commsim.cost.calibrated import WIDEN, Case, calibrated_class, uncovered
from commsim.cost.cost import Cost, Pace, assumed
from commsim.cost.host_traffic import Layout, Traffic, traffic
from commsim.cost.profile import Profile, shipped
from commsim.libraries.host import HostFacts
from commsim.libraries.library import Candidate
from commsim.topology.capacity import host_share
from commsim.topology.cluster import Cluster
from commsim.topology.placement import Placement
from commsim.units import BytesPerSecond, Seconds, format_rate

SHORTEST = 1e-300  # s, so that nothing over nothing is nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Wires:
    """What the operation's bytes go through. port: one machine's network port(s), one direction;
    cut: between the halves of the cluster, one direction; staging: one device to or from host
    memory (inf: the data lies there). cores: how many of the ranks' processes run at once. burst:
    bytes that pass unshaped after a pause (a token bucket)."""

    port: BytesPerSecond = math.inf
    cut: BytesPerSecond = math.inf
    own: BytesPerSecond = math.inf
    staging: BytesPerSecond = math.inf
    cores: float = math.inf
    burst: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Where the time goes, s: they make up the duration as the module's formula says.

    middle, aside: whether the network's narrowest place is the middle of the cluster, or a rank's
    own link; else it is a machine's port.
    """

    launch: Seconds
    latency: Seconds
    processing: Seconds
    network: Seconds
    overlap: float
    copying: Seconds = 0.0
    middle: Any = False
    aside: Any = False

    @property
    def host(self) -> Seconds:
        return self.latency + self.processing

    @property
    def duration(self) -> Any:
        return self.launch + self.copying + join(self.host, self.network, self.overlap)


def join(a: Any, b: Any, p: Any) -> Any:
    """(a^p + b^p)^(1/p), s: a + b at p = 1, the larger at infinity."""
    large, small = np.maximum(a, b), np.minimum(a, b)
    return large * (1 + (small / np.maximum(large, SHORTEST)) ** p) ** (1 / p)


def parts(moved: Traffic, wires: Wires, n: int, tag: str, k: Mapping[str, Any]) -> Parts:
    """The parts of the duration in s of `moved` over `wires` with constants `k`.

    tag: "algorithm.operation", for the constants that belong to one. Everything but the tag may
    hold numpy arrays of equal length: a fit passes them, and so both use the same lines.
    """
    crowd = np.maximum(1.0, n / wires.cores)
    far, near = moved.far, 1 - moved.far

    def busiest(most: Any, mean: Any) -> Any:
        return np.maximum(most, mean * crowd)

    hop = moved.far_rounds * k["hop"] + (1 - moved.far_rounds) * k["local_hop"]
    message = far * k["message"] + near * k["local_message"]
    byte = far * k["byte"] + near * k["local_byte"]
    latency = moved.rounds * hop
    latency += busiest(moved.messages, moved.mean_messages) * message
    processing = busiest(moved.handled, moved.mean_handled) * byte
    processing += crowd * moved.reduced * k["reduce_byte"]
    acknowledged = 1 + moved.duplex * k.get("acknowledgements", 0.0)
    ahead = np.minimum(moved.ahead, k.get("queue", 0.0))
    port, cut, own = (
        np.maximum(0.0, nbytes * acknowledged + ahead - wires.burst) / rate
        for nbytes, rate in (
            (moved.node, wires.port), (moved.cut, wires.cut), (moved.own, wires.own)
        )
    )  # fmt: skip
    both_ways = np.maximum(moved.peers, 1) ** -k.get("duplex_decay", 0.0) * (moved.peers != 0)
    delay = 1 + k.get(f"duplex.{tag}", 0.0) * both_ways
    port, own = port * delay, own * delay
    # processes that copy at the same time wait for a core
    turns, first = (
        np.maximum(1.0, np.ceil(copiers / wires.cores)) for copiers in (moved.copiers, n)
    )
    return Parts(
        launch=k["launch"] * crowd, latency=latency, processing=processing,
        copying=(turns * moved.copied + first * moved.prepared)
        * k.get(f"copy_byte.{tag}", k["copy_byte"]),
        network=np.maximum(np.maximum(port, cut), own) / k["efficiency"],
        middle=cut > np.maximum(port, own), aside=own > np.maximum(port, cut),
        overlap=k.get(f"overlap.{tag}", k["overlap"]),
    )  # fmt: skip


# ---- from a cluster ----


@lru_cache(maxsize=1024)
def wires_of(
    cluster: Cluster, placement: Placement, ranks: tuple[int, ...] | None, interfaces: int
) -> Wires:
    """What the cluster offers these ranks: the first NICs of a machine, their part of what flows
    between the halves of the machines, and the slowest device's share of its path to the host (for
    ranks that are processes of a CPU: their own link, if the machine names any)."""
    node = cluster.node
    cards = {link.source: link.bandwidth for link in node.links if link.kind == "pcie"}
    rates = [min(nic.rate, cards.get(nic.card, math.inf)) for nic in node.nics[:interfaces]]
    port = sum(rates) if rates and placement.hosts > 1 else math.inf
    cut = math.inf
    wide = cluster.fabric.kind in WIDE and cluster.fabric.oversubscription <= 1
    if port < math.inf and not wide:
        half = _halves(cluster, ranks)
        cut = cluster.cut_bandwidth(*half) * port / sum(nic.rate for nic in node.nics)
    shares = (host_share(node, local) for local, _ in placement.hosts_by_set)
    staging = min((share for share in shares if share > 0), default=math.inf)
    if on_host(cluster):
        return Wires(port=port, cut=cut, own=staging)
    return Wires(port=port, cut=cut, staging=staging)


def _halves(
    cluster: Cluster, ranks: tuple[int, ...] | None
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Every rank of the first and of the second half of the machines in use."""
    size = cluster.gpus_per_node
    hosts = range(cluster.nodes) if ranks is None else sorted({rank // size for rank in ranks})
    every = [tuple(range(host * size, (host + 1) * size)) for host in hosts]
    middle = len(every) // 2
    first, second = every[:middle], every[len(every) - middle :]
    return sum_of(first), sum_of(second)


def sum_of(groups: list[tuple[int, ...]]) -> tuple[int, ...]:
    """The groups' ranks in one tuple."""
    return tuple(rank for group in groups for rank in group)


def on_host(cluster: Cluster) -> bool:
    """Whether the ranks' buffers lie in host memory already: the devices are CPUs by name."""
    return all(gpu.part.lower().startswith("cpu") for gpu in cluster.node.gpus)


def layout_of(collective: Collective, facts: HostFacts) -> Layout:
    """The group as Traffic counts it."""
    at = facts.placement
    return Layout(
        n=at.n, hosts=at.hosts, per_host=at.max_per_host,
        near=at.max_per_host if at.packed else 1,
        crossings=facts.crossings, segment=facts.segment, itemsize=collective.itemsize,
        one_way=collective.operation == "send_recv" and collective.root is not None,
    )  # fmt: skip


def staged(operation: str, n: int, nbytes: int) -> float:
    """Bytes that the busiest rank copies from and to its device."""
    if operation == "barrier":
        return 0.0
    if operation in ("all_gather", "gather", "reduce_scatter", "scatter"):
        return nbytes + nbytes / n
    return 2.0 * nbytes


def cost(
    collective: Collective,
    cluster: Cluster,
    candidate: Candidate,
    facts: HostFacts,
    profile: Profile | None = None,
    wires: Wires | None = None,
) -> Cost:
    """What `candidate` takes for `collective`, in s, and where the time goes.

    profile: the library's constants (None: those that come with commsim). wires: what the bytes go
    through (None: as the cluster says, with a core for every rank).
    """
    book, found, wires = _found(collective, cluster, candidate, facts, profile, wires)
    group = facts.placement
    staging = staged(collective.operation, group.n, collective.nbytes) / wires.staging
    pieces = pieces_of(found, staging)
    by = _correction(collective, cluster, candidate, facts, book, pieces)
    low, high, doubts = _spread(collective, cluster, candidate, facts, wires, book, pieces)
    pieces = {name: by * piece for name, piece in pieces.items()}
    return Cost(
        duration=sum(pieces.values()), breakdown=tuple(pieces.items()),
        bottleneck=_bottleneck(pieces, found[-1], wires, group),
        spread=(low, high), extrapolated=doubts,
        notes=_notes(cluster, facts) + assumed(collective),
    )  # fmt: skip


def _found(
    collective: Collective,
    cluster: Cluster,
    candidate: Candidate,
    facts: HostFacts,
    profile: Profile | None,
    given: Wires | None = None,
) -> tuple[Profile, list[Parts], Wires]:
    """The constants, the phases of the operation one after the other, what they go through."""
    book = profile or shipped(facts.library)
    k = book.values(())
    stages, wires = phases(collective, cluster, candidate, facts, given)
    return book, [parts(*stage, k) for stage in stages], wires


Phase = tuple[Traffic, Wires, int, str]
"""What `parts` takes: bytes moved, through what, by how many ranks, and the tag."""


def phases(
    collective: Collective,
    cluster: Cluster,
    candidate: Candidate,
    facts: HostFacts,
    given: Wires | None = None,
) -> tuple[list[Phase], Wires]:
    """The phases of the operation, one after the other, and what the last goes through."""
    at, group = layout_of(collective, facts), facts.placement
    wires = given or wires_of(cluster, group, collective.ranks, facts.interfaces)
    size = 0.0 if collective.operation == "barrier" else float(collective.nbytes)
    tag = f"{candidate.algorithm}.{collective.operation}"
    found: list[Phase] = []
    if facts.two_level:
        inside = replace(at, n=at.per_host, hosts=1, near=at.per_host, crossings=0)
        moved = traffic("release_gather", collective.operation, size, inside)
        found.append((moved, Wires(), group.max_per_host, tag))
        at = replace(at, n=at.hosts, per_host=1, near=1, crossings=1)
    moved = traffic(candidate.algorithm, collective.operation, size, at)
    found.append((moved, wires, at.n, tag))
    return found, wires


def case_of(
    operation: str, cluster: Cluster, candidate: Candidate, facts: HostFacts, wires: Wires
) -> Case:
    """What a calibration tells apart; the hardware is known by its network port."""
    port = format_rate(wires.port) if wires.port < math.inf else "local"
    return Case(
        hardware=f"{facts.library} host/{port}", operation=operation,
        ranks=facts.placement.n, nodes=facts.placement.hosts,
        algorithm=candidate.algorithm, protocol=candidate.protocol,
    )  # fmt: skip


def _correction(
    collective: Collective,
    cluster: Cluster,
    candidate: Candidate,
    facts: HostFacts,
    book: Profile,
    pieces: Mapping[str, Seconds],
) -> float:
    """What the profile's own measurements make of the formula's duration: a factor, with which the
    bytes still take their time on the wire."""
    if book.calibration is None:
        return 1.0
    wires = wires_of(cluster, facts.placement, collective.ranks, facts.interfaces)

    def curve(nbytes: int) -> Seconds:
        asked = replace(collective, nbytes=nbytes, splits=None)
        _, found, _ = _found(asked, cluster, candidate, facts, book)
        staging = staged(collective.operation, facts.placement.n, nbytes) / wires.staging
        return sum(pieces_of(found, staging).values())

    case = case_of(collective.operation, cluster, candidate, facts, wires)
    key = (case, collective.dtype, wires, facts)
    by = book.calibration.factor(case, collective.nbytes, curve, key)
    least = pieces["network"] * book.values(())["efficiency"]
    return max(by, least / sum(pieces.values()))


def pace(
    collective: Collective,
    cluster: Cluster,
    candidate: Candidate,
    facts: HostFacts,
    profile: Profile | None = None,
) -> Pace:
    """What `candidate` takes beyond its bytes on the network, from the same constants as `cost`."""
    book, _, _ = _found(collective, cluster, candidate, facts, profile)
    k = book.values(())
    whole = cost(collective, cluster, candidate, facts, profile)
    pieces = dict(whole.breakdown)
    return Pace(
        launch=pieces["launch"],
        duration=whole.duration,
        transfer=pieces["network"],
        local_hop=k["local_hop"] + k["local_message"],
        net_hop=k["hop"] + k["message"],
        local_share=1.0,
        net_share=k["efficiency"],
    )


def pieces_of(found: list[Parts], staging: Seconds) -> dict[str, Seconds]:
    """Where the time goes, s: the network in full, the processes with what it does not hide."""
    network = sum(p.network for p in found)
    shown = sum(join(p.host, p.network, p.overlap) for p in found) - network
    host = sum(p.host for p in found)
    share = max(0.0, shown) / host if host else 0.0
    pieces = {
        "launch": found[0].launch,
        "staging": staging,
        "copying": sum(p.copying for p in found),
        "latency": share * sum(p.latency for p in found),
        "processing": share * sum(p.processing for p in found),
        "network": network,
    }
    return {name: float(piece) for name, piece in pieces.items()}


def _bottleneck(pieces: Mapping[str, Seconds], last: Parts, wires: Wires, at: Placement) -> str:
    largest = max(pieces, key=lambda name: pieces[name])
    network = f"a machine's network port at {format_rate(wires.port)}"
    if last.middle:
        network = f"the fabric between halves of the machines at {format_rate(wires.cut)}"
    elif last.aside:
        network = f"a rank's own link at {format_rate(wires.own)}"
    stack = "one process's TCP stack" if at.hosts > 1 else "copies between processes of a machine"
    return {
        "launch": "starting the operation in each process",
        "staging": f"copies between device and host memory at {format_rate(wires.staging)}",
        "copying": "copies in each process's memory",
        "latency": "messages that wait for one another",
        "processing": stack,
        "network": network,
    }[largest]


def regime(waiting: Seconds, duration: Seconds) -> str:
    """latency, middle or bandwidth, by the share of the duration that no byte is moved in."""
    share = waiting / duration
    return "latency" if share > 0.8 else "bandwidth" if share < 0.2 else "middle"


def _spread(
    collective: Collective,
    cluster: Cluster,
    candidate: Candidate,
    facts: HostFacts,
    wires: Wires,
    book: Profile,
    pieces: Mapping[str, Seconds],
) -> tuple[float, float, tuple[str, ...]]:
    """ln(end / duration) of the interval: held-out quantiles, wider for each doubt; the doubts."""
    doubts = _doubts(collective, cluster, facts, wires, book)
    found = book.spreads[regime(pieces["launch"] + pieces["latency"], sum(pieces.values()))]
    if book.calibration:
        case = case_of(collective.operation, cluster, candidate, facts, wires)
        outside = uncovered(book.calibration.covered, case, collective.nbytes)
        if outside is None:
            doubts += (f"the profile was not calibrated on {case.operation} of {case.hardware}",)
        else:
            doubts = outside
            kind = calibrated_class(case.nodes, collective.nbytes)
            found = book.spreads.get(kind) or book.spreads["calibrated"]
    widen = WIDEN ** len(doubts)
    return found.low * widen, found.high * widen, doubts


def _doubts(
    collective: Collective, cluster: Cluster, facts: HostFacts, wires: Wires, book: Profile
) -> tuple[str, ...]:
    """Why the constants are used outside what they were fitted on."""
    at, doubts = facts.placement, []
    most, fastest = int(book.fitted["max_ranks"][0]), float(book.fitted["max_port"][0])
    if at.n > most:
        doubts.append(f"{at.n} ranks: profile {book.name} was fitted on up to {most}")
    if at.hosts > 1 and not cluster.node.nics:
        doubts.append(
            f"{cluster.name} names no network: only the processes' TCP stack limits what they send"
        )
    elif at.hosts > 1 and wires.port > fastest:
        doubts.append(
            f"a network port of {format_rate(wires.port)}: profile {book.name} was fitted on up to "
            f"{format_rate(fastest)}"
        )
    if wires.staging < math.inf and collective.operation != "barrier":
        doubts.append("copies between device and host memory: at the bus's rate, never measured")
    if collective.operation not in book.fitted["operation"]:
        doubts.append(f"{collective.operation}: profile {book.name} was not fitted on it")
    return tuple(doubts)


def _notes(cluster: Cluster, facts: HostFacts) -> tuple[str, ...]:
    """What was assumed."""
    notes = ["every rank is taken to have a CPU core of its own"]
    ports = len(cluster.node.nics)
    if facts.placement.hosts > 1 and ports:
        used = min(facts.interfaces, ports)
        notes.append(f"TCP over {used} of a machine's {ports} network ports, shared by its ranks")
        if cluster.fabric.transport != "tcp":
            notes.append(f"{cluster.fabric.transport} is used as a network for TCP, not natively")
    return tuple(notes)
