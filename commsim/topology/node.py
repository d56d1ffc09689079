"""One machine as records: GPUs, NICs, CPUs, PCIe switches, NVSwitch, and the links between them.

Every source of a machine (cluster file, preset, NCCL XML, nvidia-smi) ends in a NodeTopology, and
everything that needs a machine (graph, NCCL's path finder, cost) starts from one. The order of
devices and links is the order in which NCCL would meet them, which decides its ties.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from commsim.units import BytesPerSecond, Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpu:
    """One NUMA node. vendor: intel, amd, arm, zhaoxin, ibm, other; arch: x86_64, arm64, ppc64.
    family and model are CPUID's (base + 16 x extended): Sapphire Rapids is 6 / 143."""

    name: str
    numa: int
    arch: str
    vendor: str
    family: int = 0
    model: int = 0
    part: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PcieSwitch:
    """A PCIe switch or bridge. capacity: bytes/s that it passes on in all (inf: blocks nothing)."""

    name: str
    busid: str = ""
    capacity: BytesPerSecond = field(default=math.inf, repr=False)  # no search depends on it


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU (or GCD, or MIG slice), a rank's device.

    index: CUDA device number. part: its name in the catalogue ("" where the source does not say).
    capability: compute capability x 10 (0: not NVIDIA).
    """

    name: str
    index: int
    part: str
    capability: int = 0
    gpudirect: bool = True
    busid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nic:
    """One network port as NCCL counts devices.

    card: the PCIe function it sits on, which is the link's end; several ports may share one card,
    whose PCIe link they then share. rate: one direction.
    """

    name: str
    index: int
    card: str
    rate: BytesPerSecond
    gpudirect: bool = True
    port: int = 1
    guid: str = ""
    latency: Seconds = 0.0
    collnet: bool = False
    part: str = ""
    busid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NvSwitch:
    """All NVSwitches of the machine (or NVLink domain) as one, as NCCL merges them.

    capacity: bytes/s that they pass on for this machine in all (inf: they block nothing).
    """

    name: str = "nvswitch"
    capacity: BytesPerSecond = field(default=math.inf, repr=False)  # no search depends on it


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLink:
    """A cable or bus; both directions have `bandwidth` each.

    kind: nvlink (GPU-GPU or GPU-NVSwitch), xgmi (GPU-GPU), pcie (source is the child, target its
    parent: the switch or CPU above), c2c (GPU-CPU), socket (CPU-CPU). width: PCIe lanes, or number
    of NVLinks/xGMI links bundled. speed: per-lane transfer rate in GT/s for pcie (0: the source
    does not say).
    """

    source: str
    target: str
    kind: str
    bandwidth: BytesPerSecond
    latency: Seconds = 0.0
    width: int = 1
    speed: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTopology:
    """A machine.

    gpu_peer_access: None: what the PCIe path allows; False: the driver refuses peer-to-peer over
    PCIe (GeForce, or `p2p = false`).
    """

    gpus: tuple[Gpu, ...]
    nics: tuple[Nic, ...] = ()
    cpus: tuple[Cpu, ...] = ()
    switches: tuple[PcieSwitch, ...] = ()
    nvswitch: NvSwitch | None = None
    links: tuple[NodeLink, ...] = ()
    gpu_peer_access: bool | None = None


def without_nics(node: NodeTopology, dead: Collection[int]) -> NodeTopology:
    """The machine as a library sees it without some of its NICs (indices of node.nics)."""
    kept = [nic for i, nic in enumerate(node.nics) if i not in dead]
    gone = {name for nic in node.nics for name in (nic.name, nic.card)}
    gone -= {name for nic in kept for name in (nic.name, nic.card)}
    return replace(
        node,
        nics=tuple(replace(nic, index=i) for i, nic in enumerate(kept)),
        links=tuple(k for k in node.links if gone.isdisjoint((k.source, k.target))),
    )
