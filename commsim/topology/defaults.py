"""What a cluster file leaves open, filled from the parts and from how such machines are built."""

from __future__ import annotations

from commsim.topology import parts
from commsim.topology.parts import CpuPart, GpuPart
from commsim.topology.spec import ClusterSpec, NicsSpec, NodeSpec
from commsim.units import BytesPerSecond

C2C_LINKS_OF_A_GRACE = 10


def cpu_vendor(node: NodeSpec, part: GpuPart) -> str:
    """intel, amd, grace or other: as stated, else what such GPUs are sold with."""
    if node.cpu:
        return node.cpu
    if part.c2c_count:
        return "grace"
    return "amd" if part.vendor == "amd" else "intel"


def cpu_part(node: NodeSpec, part: GpuPart) -> CpuPart:
    """The CPU generation: as stated, else the one of the GPU's time and PCIe generation."""
    if node.cpu_part:
        return parts.cpu(node.cpu_part)
    vendor = cpu_vendor(node, part)
    generation = node.pcie[0] if node.pcie else part.pcie_generation
    if vendor == "intel":
        if generation <= 3:
            name = "xeon-skylake"
        elif generation == 4:
            name = "xeon-icelake" if part.year <= 2022 else "xeon-sapphire-rapids"
        elif generation == 6:
            name = "xeon-granite-rapids"
        else:
            hopper_time = part.capability == 90 or part.year <= 2023
            name = "xeon-sapphire-rapids" if hopper_time else "xeon-emerald-rapids"
    elif vendor == "amd":
        if part.mesh == "mi250x":
            name = "epyc-trento"
        elif generation <= 4:
            name = "epyc-rome" if part.year <= 2020 else "epyc-milan"
        else:
            hopper_time = part.capability == 90 or part.year <= 2024
            name = "epyc-genoa" if hopper_time else "epyc-turin"
    else:
        name = vendor
    return parts.cpu(name)


def sockets(node: NodeSpec, part: GpuPart) -> int:
    """CPUs of the machine: as stated; one Grace for ten C2C links; one for two GPUs; else two."""
    if node.sockets:
        return node.sockets
    gpus = node.gpus or 1
    if part.c2c_count and cpu_vendor(node, part) == "grace":
        return -(-gpus * part.c2c_count // C2C_LINKS_OF_A_GRACE)
    return 1 if gpus <= 2 or part.mesh == "mi250x" else 2


def numa_of_socket(node: NodeSpec, part: GpuPart) -> int:
    """NUMA nodes of one CPU: as stated, else one (four beside MI250X)."""
    return node.numa or (4 if part.mesh == "mi250x" else 1)


def pcie_switches(node: NodeSpec, part: GpuPart) -> int:
    """How many PCIe switches the GPUs hang under; 0: on the CPU's root ports."""
    gpus, nics = node.gpus or 1, node.nics
    if node.pcie_switches is not None:
        return min(node.pcie_switches, gpus)
    if part.c2c_count:
        return gpus if nics and nics.attach == "switch" else 0
    if node.interconnect == "pcie-host":
        return 0
    if nics and nics.placement == "per-pcie-switch" and nics.count <= gpus:
        return nics.count
    if node.interconnect == "pcie-switch":
        return -(-gpus // 4)
    if node.interconnect == "nvlink-pairs":
        return 0
    own_nic = nics is not None and placement(node, part) == "per-gpu" and nics.count >= gpus
    if part.pcie_generation >= 5 or (gpus <= 4 and own_nic):
        return gpus
    if gpus <= 4 and part.pcie_generation == 4 and part.vendor == "nvidia":
        return 0  # four-GPU boards (HGX A100 4-GPU) reach the CPU without a switch
    return -(-gpus // 2)


def placement(node: NodeSpec, part: GpuPart) -> str:
    """Where the NICs hang: as stated, else by their number."""
    if node.nics is None:
        return ""
    if node.nics.placement:
        return node.nics.placement
    if node.nics.count == 1:
        return "single"
    return "per-gpu" if node.nics.count >= (node.gpus or 1) else "per-pcie-switch"


def nic_pcie(nics: NicsSpec) -> tuple[int, int]:
    """(generation, lanes) of a NIC card: as stated, by its part, else what carries its rate."""
    if nics.pcie:
        return nics.pcie
    if nics.part and nics.ports_per_card == 1:
        part = parts.nic(nics.part)
        if part.rate >= nic_rate(nics):
            return part.pcie_generation, part.pcie_width
    needed = nic_rate(nics) * nics.ports_per_card
    for generation, width in ((3, 8), (3, 16), (4, 16), (5, 16)):
        if parts.pcie_bandwidth(generation, width) >= needed:
            return generation, width
    return 6, 16


def nic_rate(nics: NicsSpec) -> BytesPerSecond:
    """Bytes/s of one NIC in one direction: as stated, else its part's."""
    return nics.rate if nics.rate is not None else parts.nic(nics.part or "").rate


def default_domain(spec: ClusterSpec, part: GpuPart) -> int:
    """GPUs in one NVLink or xGMI domain where the file does not say: what the parts are sold as."""
    gpus = spec.node.gpus or 1
    kind = spec.node.interconnect
    if spec.node.mig or kind in ("pcie-switch", "pcie-host", "nvlink-c2c"):
        return 1
    if kind == "nvlink-pairs":
        return min(2, gpus)
    if kind == "nvswitch" and part.domain > 16:
        return part.domain
    if kind == "xgmi-mesh":
        return min(gpus, part.domain)
    return gpus
