"""What a collective of a host-based library (Gloo, MPI) costs, in s.

    duration = launch + staging + ((host)^p + (network)^p)^(1/p)
    host     = rounds x hop + messages x message + handled x byte + copied x copy_byte + reduced x
    reduce_byte network  = max(bytes through the busiest machine's port / port rate, bytes across
    the middle / cut rate) / efficiency

`host` is what the processes do (LogGP's L, o and G: Alexandrov et al., SPAA 1995,
10.1145/215399.215427), with what Traffic counts for the busiest process; where ranks outnumber
cores, the average process times ranks per core if that is more. `network` is the physical bound
over the share of the line rate that TCP reaches. p says how far the two overlap: 1 not at all,
infinity entirely. Two bulk streams over one Gloo connection delay each other: the port's time x (1
+ duplex x peers^-duplex_decay). GPU buffers are first copied to the host and back. Ignored:
congestion control, packet loss, other traffic, NUMA placement, memory bandwidth shared by ranks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from commsim.collectives.collective import Collective
from commsim.cost.cost import Cost
from commsim.cost.host_traffic import Layout, Traffic, traffic
from commsim.cost.profile import Profile, shipped
from commsim.libraries.host import HostFacts
from commsim.libraries.library import Candidate
from commsim.topology.capacity import host_share
from commsim.topology.cluster import Cluster
from commsim.topology.placement import Placement
from commsim.units import BytesPerSecond, Seconds, format_rate

UNCUT = ("single-switch", "direct")  # fabrics whose middle is no narrower than their ports


@dataclass(frozen=True, slots=True, kw_only=True)
class Wires:
    """What the operation's bytes go through. port: one machine's network port(s), one direction;
    cut: between the halves of the cluster, one direction; staging: one device to or from host
    memory (inf: the data lies there). cores: how many of the ranks' processes run at once. burst:
    bytes that pass unshaped after a pause (a token bucket)."""

    port: BytesPerSecond = math.inf
    cut: BytesPerSecond = math.inf
    staging: BytesPerSecond = math.inf
    cores: float = math.inf
    burst: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Where the time goes, s: they make up the duration as the module's formula says."""

    launch: Seconds
    latency: Seconds
    processing: Seconds
    network: Seconds
    staging: Seconds
    overlap: float

    @property
    def host(self) -> Seconds:
        return self.latency + self.processing

    @property
    def duration(self) -> Seconds:
        return self.launch + self.staging + join(self.host, self.network, self.overlap)


def join(a: Seconds, b: Seconds, p: float) -> Seconds:
    """(a^p + b^p)^(1/p), s: a + b at p = 1, the larger at infinity."""
    large, small = max(a, b), min(a, b)
    return large * (1 + (small / large) ** p) ** (1 / p) if small > 0 else large


def parts(
    moved: Traffic, wires: Wires, n: int, tag: str, k: Mapping[str, float], asks: bool = False
) -> Parts:
    """The parts of the duration in s of `moved` over `wires` with constants `k`.

    tag: "algorithm.operation", for the constants that belong to one. asks: every message first asks
    the receiver.
    """
    crowd = max(1.0, n / wires.cores)
    far, near = moved.far, 1 - moved.far

    def busiest(most: float, mean: float) -> float:
        return max(most, mean * crowd)

    hop = moved.far_rounds * k["hop"] + (1 - moved.far_rounds) * k["local_hop"]
    message = far * k["message"] + near * k["local_message"]
    byte = far * k["byte"] + near * k["local_byte"]
    latency = (3 if asks else 1) * moved.rounds * hop
    latency += busiest(moved.messages, moved.mean_messages) * message
    processing = busiest(moved.handled, moved.mean_handled) * byte
    processing += crowd * (moved.copied * k["copy_byte"] + moved.reduced * k["reduce_byte"])
    port = max(0.0, moved.node - wires.burst) / wires.port
    if moved.peers:
        port *= 1 + k.get(f"duplex.{tag}", 0.0) * moved.peers ** -k.get("duplex_decay", 0.0)
    network = max(port, max(0.0, moved.cut - wires.burst) / wires.cut) / k["efficiency"]
    return Parts(
        launch=k["launch"] * crowd, latency=latency, processing=processing, network=network,
        staging=0.0, overlap=k.get(f"overlap.{tag}", k["overlap"]),
    )  # fmt: skip


# ---- from a cluster ----


@lru_cache(maxsize=1024)
def wires_of(cluster: Cluster, placement: Placement, interfaces: int) -> Wires:
    """What the cluster offers these ranks: the NICs used, half of the machines' NICs over the
    oversubscription, and the slowest device's share of its path to host memory."""
    node = cluster.node
    cards = {link.source: link.bandwidth for link in node.links if link.kind == "pcie"}
    rates = [min(nic.rate, cards.get(nic.card, math.inf)) for nic in node.nics[:interfaces]]
    port = sum(rates) if rates and placement.hosts > 1 else math.inf
    over = 1.0 if cluster.fabric.kind in UNCUT else max(1.0, cluster.fabric.oversubscription)
    cut = port * (placement.hosts // 2) / over if over > 1 else math.inf
    shares = (host_share(node, local) for local, _ in placement.hosts_by_set)
    staging = min((s for s in shares if s > 0), default=math.inf)
    return Wires(port=port, cut=cut, staging=math.inf if on_host(cluster) else staging)


def on_host(cluster: Cluster) -> bool:
    """Whether the ranks' buffers already lie in host memory: the devices are CPUs."""
    return all(gpu.part.lower().startswith("cpu") for gpu in cluster.node.gpus)


def layout_of(collective: Collective, facts: HostFacts) -> Layout:
    """The group as Traffic counts it."""
    at = facts.placement
    return Layout(
        n=at.n, hosts=at.hosts, per_host=at.max_per_host, near=at.max_per_host if at.packed else 1,
        crossings=facts.crossings, segment=facts.segment, itemsize=collective.itemsize,
        one_way=collective.operation == "send_recv" and collective.root is not None,
    )  # fmt: skip


def staged(operation: str, n: int, nbytes: int) -> tuple[float, float]:
    """Bytes that the busiest rank copies from, and to, its device."""
    part = nbytes / n
    return {
        "all_gather": (part, nbytes), "gather": (part, nbytes),
        "reduce_scatter": (nbytes, part), "scatter": (nbytes, part), "barrier": (0.0, 0.0),
    }.get(operation, (float(nbytes), float(nbytes)))  # fmt: skip


def cost(
    collective: Collective,
    cluster: Cluster,
    candidate: Candidate,
    facts: HostFacts,
    profile: Profile | None = None,
) -> Cost:
    """What `candidate` takes for `collective`, in s, and where the time goes (the module's
    formula).

    profile: constants of the library (None: those that come with commsim).
    """
    book = profile or shipped(facts.library)
    k = book.values(())
    at = layout_of(collective, facts)
    wires = wires_of(cluster, facts.placement, facts.interfaces)
    size = 0.0 if collective.operation == "barrier" else float(collective.nbytes)
    tag = f"{candidate.algorithm}.{collective.operation}"
    found: list[Parts] = []
    if facts.two_level:
        inside = replace(at, n=at.per_host, hosts=1, near=at.per_host, crossings=0)
        moved = traffic("release_gather", collective.operation, size, inside)
        found.append(parts(moved, replace(wires, port=math.inf, cut=math.inf), at.n, tag, k))
        at = replace(at, n=at.hosts, per_host=1, near=1, crossings=1)
    moved = traffic(candidate.algorithm, collective.operation, size, at)
    asks = 0 < facts.eager_limit < moved.largest
    found.append(parts(moved, wires, at.n, tag, k, asks))
    into, out = staged(collective.operation, facts.placement.n, collective.nbytes)
    return _sum(found, (into + out) / wires.staging, collective, cluster, facts, wires, book)


def _sum(
    found: list[Parts],
    staging: Seconds,
    collective: Collective,
    cluster: Cluster,
    facts: HostFacts,
    wires: Wires,
    book: Profile,
) -> Cost:
    launch = found[0].launch
    joined = sum(join(p.host, p.network, p.overlap) for p in found)
    network, latency = sum(p.network for p in found), sum(p.latency for p in found)
    processing = sum(p.processing for p in found)
    hidden = joined - network - latency - processing
    duration = launch + staging + joined
    pieces = {
        f"network port at {format_rate(wires.port)}": network,
        "a process's TCP stack" if facts.placement.hosts > 1 else "memory copies between processes": processing,
        "messages waiting for one another": latency + launch,
        f"device to host memory at {format_rate(wires.staging)}": staging,
    }  # fmt: skip
    regime = (
        "bandwidth"
        if network + processing + staging > 0.8 * duration
        else "latency" if latency + launch > 0.8 * duration else "middle"
    )  # fmt: skip
    reasons, notes = _doubts(collective, cluster, facts, wires, staging)
    low, high = book.spreads[regime].low, book.spreads[regime].high
    return Cost(
        duration=duration,
        breakdown=(
            ("launch", launch), ("staging", staging), ("latency", latency),
            ("processing", processing), ("network", network), ("overlap", hidden),
        ),
        bottleneck=max(pieces, key=lambda name: pieces[name]),
        spread=(math.exp(low), math.exp(high)), extrapolated=reasons, notes=notes,
    )  # fmt: skip


LAB_RANKS = 8
LAB_RATE = 250e6
LAB_OPERATIONS = {
    "gloo": frozenset({"gather", "scatter", "reduce"}),
    "mpi": frozenset({"gather", "scatter", "reduce"}),
}


def _doubts(
    collective: Collective, cluster: Cluster, facts: HostFacts, wires: Wires, staging: Seconds
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Why the constants are used outside what they were fitted on, and what was assumed."""
    at = facts.placement
    doubts, notes = [], []
    if at.n > LAB_RANKS:
        doubts.append(f"{at.n} ranks: constants were fitted on 2 to {LAB_RANKS}")
    if at.hosts > 1 and wires.port > LAB_RATE:
        doubts.append(
            f"network ports of {format_rate(wires.port)}: constants were fitted on up to {format_rate(LAB_RATE)}"
        )
    if staging:
        doubts.append("device buffers: copies to host memory at the bus's rate, not measured")
    if collective.operation in LAB_OPERATIONS.get(facts.library, ()):
        doubts.append(f"{collective.operation}: not among the operations measured")
    if at.hosts > 1 and not cluster.node.nics:
        doubts.append(
            f"{cluster.name} names no network: machines are taken to reach each other as fast as one process can send"
        )
    if at.hosts > 1 and cluster.node.nics:
        used = min(facts.interfaces, len(cluster.node.nics))
        notes.append(
            f"a machine's ranks share {used} of its {len(cluster.node.nics)} network ports, over TCP"
        )
        if cluster.fabric.transport not in ("tcp",):
            notes.append(
                f"transport {cluster.fabric.transport}: modelled as TCP over it, not as its native messaging"
            )
    notes.append("every rank is taken to have a CPU core of its own")
    return tuple(doubts), tuple(notes)
