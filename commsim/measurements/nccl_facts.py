"""What single lines of an NCCL_DEBUG=INFO log say, as records. All carry the line, from 1.

Base units: NCCL's us, GB/s (10^9) and Mbit/s became seconds and bytes per second. `host` is empty
where the line has no prefix.
"""

from __future__ import annotations

from dataclasses import dataclass

from commsim.units import Bytes, BytesPerSecond, Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """Where a fact stands: line, host and CUDA device as printed, and the communicator's id.

    The communicator is the last that this process and device had begun to make; empty if unknown.
    Where a version prints no ids, `8 ranks` stands for all of that size.
    """

    line: int
    host: str = ""
    device: int | None = None
    communicator: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Version(Fact):
    """The version of `what`: nccl, cuda_driver, cuda_runtime, libfabric, aws_ofi_nccl, plugin."""

    what: str
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank(Fact):
    """A rank that joined a communicator of `size`; nodes and local ranks where printed."""

    rank: int
    size: int
    nodes: int | None = None
    local_ranks: int | None = None
    bus: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin(Fact):
    """A plug-in's part. kind: net or collnet (loaded), p2p (for the network), path (its file),
    missing (a library or a symbol not found), failed, or used: the network of a communicator.
    """

    kind: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Affinity(Fact):
    """The CPUs that a GPU's threads run on, as printed: a list of numbers or a hexadecimal mask."""

    gpu: int
    cpus: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Nic(Fact):
    """A NIC that a network may use. link: IB, RoCE or empty; sharp: its switches can reduce."""

    network: str
    index: int
    name: str
    port: int | None = None
    link: str = ""
    sharp: bool = False
    bandwidth: BytesPerSecond | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuDirect(Fact):
    """Whether NICs read and write GPU memory, for what NCCL names (`HCA 0 'mlx5_0'`)."""

    subject: str
    enabled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection(Fact):
    """One way between two ranks. transport: P2P, SHM, NET or COLLNET; via: all that is printed.

    gpudirect is None where no NIC takes part. source is None on one side of CollNet.
    """

    channel: int
    source: int | None
    destination: int | None
    direction: str
    transport: str
    via: str
    network: str = ""
    nic: int | None = None
    gpudirect: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ring(Fact):
    """The ranks of a channel's ring in order; not complete where NCCL cut the list."""

    channel: int
    channels: int
    order: tuple[int, ...]
    complete: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RingPlace(Fact):
    """A rank's neighbours in a channel's ring."""

    channel: int
    previous: int
    rank: int
    following: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TreePlace(Fact):
    """A rank's parent (None: the root) and children in a channel's tree."""

    channel: int
    rank: int
    parent: int | None
    children: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelCounts(Fact):
    """How many channels each kind of communication has; None where the version prints none."""

    coll: int
    collnet: int | None
    nvls: int | None
    p2p: int
    p2p_per_peer: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchedGraph(Fact):
    """A result of NCCL's search; bandwidths are per channel. paths: one per channel, as printed."""

    pattern: int
    cross_nic: int
    channels: int
    bandwidth_intra: BytesPerSecond
    bandwidth_inter: BytesPerSecond
    type_intra: str
    type_inter: str
    same_channels: bool | None
    paths: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyPath(Fact):
    """NCCL's path from one part of the machine to another, its weakest link and its type."""

    source: str
    target: str
    hops: int
    bandwidth: BytesPerSecond
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningEntry(Fact):
    """One entry of the tuning table; a bandwidth of 0 means that NCCL never takes it."""

    operation: str
    algorithm: str
    protocol: str
    latency: Seconds
    bandwidth: BytesPerSecond
    threads: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadThresholds(Fact):
    """The rows that `threadThresholds` prints: bytes per thread, per group of protocols."""

    thresholds: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting(Fact):
    """An environment variable that NCCL took."""

    name: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen(Fact):
    """What one call got. operation: empty where not printed; duration: NCCL's own estimate."""

    operation: str
    nbytes: Bytes
    algorithm: str
    protocol: str
    channels: tuple[int, int] | None = None
    duration: Seconds | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Multicast(Fact):
    """Whether a GPU can be part of NVLink multicast (NVLS), and with how many channels."""

    gpu: int
    available: bool
    channels: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned(Fact):
    """A line of level WARN (or ERROR), with the place in NCCL's source where printed."""

    place: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark(Fact):
    """A line worth keeping as it is. kind: collnet, nvls, network, peer or topology."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that may explain a slow run, and the lines that show it. kind: one word."""

    kind: str
    text: str
    lines: tuple[int, ...]
