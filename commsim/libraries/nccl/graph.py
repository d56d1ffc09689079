"""What NCCL's graph search finds, and what its tuner reads: the contract between search and tuning.

Bandwidths here are NCCL's own GB/s per channel and latencies microseconds, as NCCL counts and
prints them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class PathType(IntEnum):
    """Distance between two devices, nearest first (numbers of NCCL 2.27+)."""

    LOC, NVL, NVB, C2C, PIX, PXB, P2C, PXN, PHB, SYS, NET, DIS = range(12)


class Pattern(IntEnum):
    """Shape of a channel inside a node."""

    BALANCED_TREE = 1
    SPLIT_TREE = 2
    TREE = 3
    RING = 4
    NVLS = 5
    COLLNET_DIRECT = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """One searched graph of one node.

    orders: per channel the GPUs' local positions (0 .. local ranks - 1) in order (NVLS, CollNet:
    the head first or only). nets: per channel entry and exit NIC (index into node.nics), empty on
    one node.
    """

    pattern: Pattern
    channels: int
    bw_intra: float
    bw_inter: float
    type_intra: PathType
    type_inter: PathType
    same_channels: bool
    cross_nic: int = 0
    latency_inter: float = 0.0
    hops: int = 0
    orders: tuple[tuple[int, ...], ...] = ()
    nets: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGraphs:
    """One NCCL node before alignment: its ranks and its own graphs.

    ranks: numbers inside the domain, ascending; a position in an order is a place in here.
    """

    ranks: tuple[int, ...]
    ring: Graph
    tree: Graph
    nvls: Graph | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainGraphs:
    """`count` consecutive equal NVLink domains (machines, or racks) of `ranks` ranks each."""

    count: int
    ranks: int
    nodes: tuple[NodeGraphs, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Communicator:
    """Everything the tuner needs to know of a communicator.

    nodes: NCCL's node count (NVLink domains from 2.21). channels: the communicator's count after
    all duplication; coll_channels: those that collectives use. min_net_bandwidth: the slowest NIC
    path of a rank, GB/s. nvls_chunk, nvls_tree_max_chunk: bytes. domains: every node's own graphs,
    from which rings and trees follow. Graphs are None where not searched.
    """

    n: int
    nodes: int
    max_local_ranks: int
    min_local_ranks: int
    min_capability: int
    max_capability: int
    cpu_arch: str
    cpu_vendor: str
    cpu_model: str
    nvswitch: bool
    ring: Graph
    tree: Graph
    nvls: Graph | None = None
    collnet_chain: Graph | None = None
    collnet_direct: Graph | None = None
    nvls_support: bool = False
    nvls_channels: int = 0
    channels: int = 0
    coll_channels: int = 0
    p2p_channels: int = 0
    p2p_channels_per_peer: int = 0
    mnnvl: bool = False
    min_net_bandwidth: float = 0.0
    all_nvlink: bool = False
    all_direct_p2p: bool = False
    max_bw: float = 0.0
    total_bw: float = 0.0
    nic_count: int = 0
    collnet: bool = False
    nvls_chunk: int = 0
    nvls_tree_max_chunk: int = 0
    domains: tuple[DomainGraphs, ...] = ()
