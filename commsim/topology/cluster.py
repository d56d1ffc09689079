"""A cluster: equal machines (NodeTopology) joined by a fabric, and the ranks on them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from commsim.topology.cut import find_cut
from commsim.topology.graph import build_graph
from commsim.topology.node import NodeTopology
from commsim.topology.routing import find_routes
from commsim.topology.subnet import Subnet
from commsim.topology.wiring import Site, Wiring, fabric_module, switch_latency, switch_ports
from commsim.units import BytesPerSecond

if TYPE_CHECKING:
    import networkx as nx

    from commsim.topology.parts import GpuPart


@dataclass(frozen=True, kw_only=True)
class Fabric:
    """How machines are joined. scale_up_domain: GPUs in one NVLink (or xGMI) domain.

    subnet: the cables of a network that exists, where kind is "cabled".
    """

    kind: str = "rail-optimized"
    transport: str = "infiniband"
    oversubscription: float = 1.0
    sharp: bool = False
    scale_up_domain: int = 0
    subnet: Subnet | None = None

    def widened(self, factor: float) -> Fabric:
        """The fabric with `factor` times the bandwidth between its switches."""
        if self.subnet is not None:
            return replace(self, subnet=self.subnet.widened(factor))
        return replace(self, oversubscription=self.oversubscription / factor)

    @property
    def unlimited(self) -> Fabric:
        """The fabric if it carried all that the NICs can send."""
        kind = "rail-optimized" if self.subnet else self.kind
        return replace(self, kind=kind, oversubscription=1.0, subnet=None)


@dataclass(frozen=True, kw_only=True, eq=False)
class Cluster:
    """`nodes` equal machines; rank r is GPU r % gpus_per_node of node r // gpus_per_node.

    notes: every default that was used and every assumption made, one sentence each. profile: a
    calibration of this cluster's collectives that `predict` takes where it is not given another.
    """

    name: str
    nodes: int
    node: NodeTopology
    fabric: Fabric
    gpu: GpuPart
    interconnect: str
    nic_placement: str = ""
    default_library: str = "nccl@2.30.7"
    notes: tuple[str, ...] = ()
    price_per_gpu_hour: float | None = None
    profile: object = None

    @property
    def gpus_per_node(self) -> int:
        return len(self.node.gpus)

    @property
    def n_ranks(self) -> int:
        return self.nodes * len(self.node.gpus)

    @property
    def hosts_per_domain(self) -> int:
        """Machines that share one NVLink domain (18 in an NVL72 rack of 4-GPU trays), or 1."""
        return max(1, self.fabric.scale_up_domain // len(self.node.gpus))

    @cached_property
    def site(self) -> Site:
        """What the fabric joins: the machines, their NICs, and the switches it is built from."""
        rates = tuple(nic.rate for nic in self.node.nics)
        return Site(
            nodes=self.nodes,
            nics=tuple(nic.name for nic in self.node.nics),
            rates=rates,
            oversubscription=self.fabric.oversubscription,
            ports=switch_ports(self.fabric.transport, max(rates, default=0.0)),
            latency=switch_latency(self.fabric.transport),
            subnet=self.fabric.subnet,
        )

    @cached_property
    def wiring(self) -> Wiring:
        """Switches and cables of the fabric; none without NICs."""
        return fabric_module(self.fabric.kind).wire(self.site) if self.node.nics else Wiring()

    @cached_property
    def bisection_share(self) -> float:
        """The share of its NICs' bandwidth that any half of the machines can send to the other."""
        return fabric_module(self.fabric.kind).bisection(self.site) if self.node.nics else 1.0

    @cached_property
    def fabric_neighbours(self) -> dict[str, tuple[str, ...]]:
        """NICs and switches of the fabric, each with the vertices at the far ends of its cables."""
        found: dict[str, dict[str, None]] = {}
        for cable in self.wiring.cables:
            found.setdefault(cable.source, {})[cable.target] = None
            found.setdefault(cable.target, {})[cable.source] = None
        return {vertex: tuple(others) for vertex, others in found.items()}

    @cached_property
    def graph(self) -> nx.DiGraph:
        """Every device, switch and directed link of the cluster, as `build_graph` describes."""
        return build_graph(self)

    def routes(self, source: int, target: int) -> tuple[tuple[str, ...], ...]:
        """The equal-cost shortest routes between two ranks, as vertex names; of very many the first
        1,024.

        ECMP picks one per flow. NVLink before PCIe before network; UnreachableError if none leads
        there.
        """
        return find_routes(self, source, target)

    def cut_bandwidth(self, sources: tuple[int, ...], targets: tuple[int, ...]) -> BytesPerSecond:
        """What can flow at once from one group of ranks to another, bytes/s in that direction."""
        return find_cut(self, sources, targets)
