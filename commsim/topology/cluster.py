"""A cluster: equal machines (NodeTopology) joined by a fabric, and the ranks on them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from commsim.topology.node import NodeTopology
from commsim.units import BytesPerSecond

if TYPE_CHECKING:
    import networkx as nx

    from commsim.topology.parts import GpuPart


@dataclass(frozen=True, kw_only=True)
class Fabric:
    """How machines are joined. scale_up_domain: GPUs in one NVLink (or xGMI) domain."""

    kind: str = "rail-optimized"
    transport: str = "infiniband"
    oversubscription: float = 1.0
    sharp: bool = False
    scale_up_domain: int = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class Cluster:
    """`nodes` equal machines; rank r is GPU r % gpus_per_node of node r // gpus_per_node.

    notes: every default that was used and every assumption made, one sentence each.
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

    @property
    def gpus_per_node(self) -> int:
        return len(self.node.gpus)

    @property
    def n_ranks(self) -> int:
        return self.nodes * len(self.node.gpus)

    @property
    def hosts_per_domain(self) -> int:
        """Machines that share one NVLink domain (18 in an NVL72 rack of 4-GPU trays), at least 1."""
        return max(1, self.fabric.scale_up_domain // len(self.node.gpus))

    @cached_property
    def graph(self) -> nx.DiGraph:
        """Every device, switch and directed link of the cluster."""
        raise NotImplementedError

    def routes(self, source: int, target: int) -> tuple[tuple[str, ...], ...]:
        """Every equal-cost shortest route between two ranks, as vertex names (ECMP picks one per flow)."""
        raise NotImplementedError

    def cut_bandwidth(self, sources: tuple[int, ...], targets: tuple[int, ...]) -> BytesPerSecond:
        """What can flow at once from one group of ranks to another, bytes/s in that direction."""
        raise NotImplementedError
