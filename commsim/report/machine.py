"""What a machine's records say, put for a reader: rates, distances, a picture of the tree."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from commsim.topology.capacity import (
    Local,
    host_ring_bandwidth,
    nic_distance,
    scale_up_bandwidth,
    scale_up_links,
)
from commsim.topology.node import Gpu, NodeTopology
from commsim.units import BytesPerSecond, format_rate

# capacity.nic_distance's words, in nvidia-smi's letters.
DISTANCES = {1: "PIX", 2: "PXB", 3: "PHB", 4: "SYS"}


def gpu_rate(node: NodeTopology, local: Local) -> BytesPerSecond:
    """What each of these GPUs sends to the others, bytes/s: NVLink or xGMI, else a PCIe ring."""
    return scale_up_bandwidth(node, local) or host_ring_bandwidth(node, local)


def distance(node: NodeTopology, gpu: int, nic: int) -> str:
    """How far a NIC is from a GPU: PIX, PXB, PHB or SYS as nvidia-smi says, ? where unknown."""
    return DISTANCES.get(nic_distance(node, gpu, nic)[1], "?")


def gpu_words(node: NodeTopology) -> str:
    """`8 x H100-SXM5-80GB`."""
    parts = Counter(gpu.part or "unnamed GPU" for gpu in node.gpus)
    return ", ".join(f"{count} x {part}" for part, count in parts.items())


def nic_words(node: NodeTopology) -> str:
    """`8 x 50 GB/s` (`8 x unknown`), and whether data goes through host memory; `none`."""
    kinds = Counter((nic.rate, nic.gpudirect) for nic in node.nics)
    words = [
        f"{count} x {_rate(rate)}{'' if direct else ' through host memory'}"
        for (rate, direct), count in kinds.items()
    ]
    return ", ".join(words) or "none"


def machine_words(node: NodeTopology) -> str:
    """One line: the GPUs, their NVLink or xGMI, the NICs."""
    links = Counter(scale_up_words(node, gpu) or "no NVLink" for gpu in node.gpus)
    return f"{gpu_words(node)}; {', '.join(links)}; NICs {nic_words(node)}"


def scale_up_words(node: NodeTopology, gpu: Gpu) -> str:
    """`450 GB/s NVLink to the NVSwitch`, `18 NVLinks` without a rate; "" without such links."""
    mine = [
        link
        for link in node.links
        if gpu.name in (link.source, link.target) and link.kind in ("nvlink", "xgmi")
    ]
    if not mine:
        return ""
    word = "xGMI" if any(link.kind == "xgmi" for link in mine) else "NVLink"
    through = " to the NVSwitch" if node.nvswitch is not None else ""
    rate = sum(scale_up_links(node).get(gpu.name, {}).values())
    if not rate:
        return f"{sum(link.width for link in mine)} {word}s{through}, rate unknown"
    return f"{format_rate(rate)} {word}{through}"


def _rate(rate: BytesPerSecond) -> str:
    return format_rate(rate) if rate else "unknown"


def picture(node: NodeTopology) -> tuple[str, ...]:
    """The machine as a tree of text, each device with the rate of its links per direction."""
    above = {link.source: link.target for link in node.links if link.kind == "pcie"}
    gpus = {gpu.name for gpu in node.gpus}
    for link in node.links:
        if link.kind == "c2c":
            gpu, cpu = sorted((link.source, link.target), key=lambda end: end not in gpus)
            above.setdefault(gpu, cpu)
    devices = dict.fromkeys(
        [switch.name for switch in node.switches]
        + [gpu.name for gpu in node.gpus]
        + [nic.card for nic in node.nics]
    )
    below: dict[str, list[str]] = defaultdict(list)
    for device in devices:
        if device in above:
            below[above[device]].append(device)
    tops = [cpu.name for cpu in node.cpus] + [d for d in devices if d not in above]
    lines: list[str] = []
    for top in tops:
        lines += [_label(node, top), *_branches(node, top, below, "")]
    return tuple(lines)


def _branches(
    node: NodeTopology, top: str, below: Mapping[str, list[str]], indent: str
) -> list[str]:
    lines: list[str] = []
    children = below.get(top, [])
    for index, child in enumerate(children):
        last = index == len(children) - 1
        lines.append(f"{indent}{'└─ ' if last else '├─ '}{_label(node, child)}")
        lines += _branches(node, child, below, indent + ("   " if last else "│  "))
    return lines


def _label(node: NodeTopology, device: str) -> str:
    """A device's line in the picture: its name, what it is, and its links."""
    words = [device]
    words += [f"({c.vendor} {c.arch}, NUMA {c.numa})" for c in node.cpus if c.name == device]
    words += [f"({gpu.part})" for gpu in node.gpus if gpu.name == device and gpu.part]
    links = [
        f"{_rate(link.bandwidth)} {'C2C' if link.kind == 'c2c' else 'PCIe'}"
        for link in node.links
        if (link.kind == "pcie" and link.source == device)
        or (
            (link.kind == "c2c" and device in (link.source, link.target))
            and any(gpu.name == device for gpu in node.gpus)
        )
    ]
    links += [w for gpu in node.gpus if gpu.name == device and (w := scale_up_words(node, gpu))]
    ports = [f"{nic.name} {_rate(nic.rate)}" for nic in node.nics if nic.card == device]
    text = " ".join(words)
    if links:
        text += f": {', '.join(links)}"
    if ports:
        text += f"; ports {', '.join(ports)}"
    return text
