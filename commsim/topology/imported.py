"""Machines that come as a graph (NCCL XML, nvidia-smi, rocm-smi), in a cluster file's words.

Such sources leave things out: the GPU's name, link rates, NIC rates. The GPU must then be stated,
unless the source tells its compute capability: NCCL's choice needs no more, so a GPU of that
capability stands in, and a note says so, as for every rate that is taken from the catalogue.
"""

from __future__ import annotations

import importlib
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from commsim.errors import SpecError, UnnamedGpuError
from commsim.topology import parts
from commsim.topology.mesh import scale_up_pairs
from commsim.topology.node import Nic, NodeLink, NodeTopology, NvSwitch
from commsim.topology.parts import GpuPart
from commsim.topology.spec_problems import parse
from commsim.units import BytesPerSecond, format_rate, parse_rate

# The GPU that stands in where a source tells only the compute capability: the most sold one first.
_USUAL = (
    "H100-SXM5-80GB",
    "A100-SXM4-80GB",
    "V100-SXM2-32GB",
    "B200-SXM-180GB",
    "B300-SXM-288GB",
    "GH200-96GB",
    "GB200-NVL72",
    "GB300-NVL72",
    "A100-PCIe-80GB",
    "H100-PCIe-80GB",
    "H800-SXM5-80GB",
    "RTX-3090",
    "L40S",
    "A10",
    "T4",
    "V100-PCIe-32GB",
    "RTX-8000",
    "RTX-PRO-6000-Server",
    "GB10",
)

# What NICs are sold beside GPUs of a PCIe generation (ConnectX-5, 6, 7, 8): one port.
_USUAL_NIC = {3: "100Gbit/s", 4: "200Gbit/s", 5: "400Gbit/s", 6: "800Gbit/s"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """What the caller says where a file is silent."""

    gpu: str | None = None
    gpus: int = 0
    interconnect: str | None = None
    nic_rate: str | None = None


def read_machine(path: Path, stated: Stated) -> tuple[NodeTopology, GpuPart, tuple[str, ...]]:
    """The machine of a file, its GPU, and notes on what the file left open."""
    notes: list[str] = []
    reader = _reader(path)
    module: Any = importlib.import_module(f"commsim.topology.importers.{reader}")
    extra = {"gpus": stated.gpus} if reader == "nccl_xml" else {}
    node = cast(NodeTopology, module.read(path, **extra))
    if not node.gpus:
        raise SpecError(
            [
                f"{path.name}: marks no GPU; state which and how many, as --gpu H100-SXM5-80GB"
                " --set node.gpus=8 (from Python: the overrides node.gpu and node.gpus)"
            ]
        )
    guessed = stated.gpu is None and not node.gpus[0].part
    if stated.gpu is not None:
        part = parts.gpu(stated.gpu)
    elif not guessed:
        part = parts.gpu(node.gpus[0].part)
    else:
        part = _stand_in(node, path.name)
        notes.append(
            f"node.gpu: {path.name} does not name it, {part.name} stands in for a GPU of compute "
            f"capability {part.capability / 10:g}; state node.gpu if it is another"
        )
    if reader != "nccl_xml":  # text holds no rates: they come with the part
        node = cast(NodeTopology, module.read(path, gpu=part.name))
    node = replace(
        node,
        gpus=tuple(
            g if g.part else replace(g, part=part.name, capability=g.capability or part.capability)
            for g in node.gpus
        ),
    )
    if reader == "nccl_xml" or stated.interconnect is not None:
        node = _with_scale_up(node, part, stated.interconnect, guessed, path.name, notes)
    elif part.sxm and len(node.gpus) > 1 and not _scale_up(node):
        notes.append(
            f"node.interconnect: {path.name} shows no NVLink or xGMI between {part.name}, and none "
            "is taken (`nvidia-smi topo -mp` leaves NVLink out, -m shows it); state"
            ' node.interconnect, such as "nvswitch", if there is'
        )
    return _with_rates(node, part, stated.nic_rate, path.name, notes), part, tuple(notes)


def _scale_up(node: NodeTopology) -> bool:
    return any(link.kind in ("nvlink", "xgmi") for link in node.links)


def _with_scale_up(
    node: NodeTopology,
    part: GpuPart,
    stated: str | None,
    guessed: bool,
    where: str,
    notes: list[str],
) -> NodeTopology:
    """The machine with NVLink or xGMI where the file, as those of clouds, is a PCIe tree only."""
    if _scale_up(node):
        if stated is not None:
            raise SpecError([f"override node.interconnect: {where} tells the links"])
        return node
    gpus = len(node.gpus)
    kind = stated
    if kind is None:
        # A module without NVLink does not exist; a part that is only a guess proves nothing.
        if guessed or not part.sxm or part.c2c_count or gpus == 1:
            return node
        cube = part.link_kind == "nvlink2" and gpus <= 8
        kind = "xgmi-mesh" if part.vendor == "amd" else "nvlink-mesh" if cube else "nvswitch"
        notes.append(
            f'node.interconnect: {where} shows none, "{kind}" taken, as {part.name} is sold;'
            " state node.interconnect if it is another"
        )
    if kind not in ("nvswitch", "nvlink-mesh", "nvlink-pairs", "xgmi-mesh"):
        return node
    tables = {"gpu": part.name, "gpus": gpus, "interconnect": kind}
    checked = parse({"node": tables}, where)
    names = [gpu.name for gpu in node.gpus]
    if kind == "nvswitch":
        switch = node.nvswitch or NvSwitch()
        ends = [(name, switch.name, part.link_count) for name in names]
        node = replace(node, nvswitch=switch)
    else:
        pairs = scale_up_pairs(checked.node, part)
        ends = [(names[i], names[j], count) for (i, j), count in pairs.items()]
    word = "xgmi" if part.vendor == "amd" else "nvlink"
    links = tuple(
        NodeLink(source=a, target=b, kind=word, bandwidth=count * part.link_rate, width=count)
        for a, b, count in ends
    )
    return replace(node, links=(*links, *node.links))


def _with_rates(
    node: NodeTopology, part: GpuPart, stated: str | None, where: str, notes: list[str]
) -> NodeTopology:
    """The machine with a rate for each NIC: the file's own, else as stated, else the usual one."""
    if not node.nics and stated is not None:
        raise SpecError([f"override node.nics.rate: {where} shows no NIC"])
    if all(nic.rate for nic in node.nics) and stated is None:
        return node
    usual = parse_rate(_USUAL_NIC.get(part.pcie_generation, "400Gbit/s"))
    share, odd = divmod(len(node.nics), len(node.gpus))
    if share > 1 and not odd:  # several NICs for each GPU share what one usually has
        usual /= share
    rate = usual if stated is None else parse_rate(stated)
    if stated is None:
        notes.append(
            f"node.nics.rate: {where} does not tell it, {format_rate(rate)} taken;"
            " state node.nics.rate if it is another"
        )
    nics = tuple(_rated(nic, rate, stated is not None) for nic in node.nics)
    return replace(node, nics=nics)


def _rated(nic: Nic, rate: BytesPerSecond, always: bool) -> Nic:
    return nic if nic.rate and not always else replace(nic, rate=rate)


def _reader(path: Path) -> str:
    if path.suffix == ".xml":
        return "nccl_xml"
    try:
        text = path.read_bytes().decode("utf-8", errors="replace")
    except OSError as error:
        raise SpecError([f"{path}: cannot be read: {error.strerror or error}"]) from None
    amd = "ROCm" in text or "XGMI" in text or "Link Type between" in text
    return "rocm_smi" if amd else "nvidia_smi"


def unnamed_machine(path: Path) -> NodeTopology:
    """The machine of a file that does not name its GPU: devices and links, rates 0 (not known)."""
    module: Any = importlib.import_module(f"commsim.topology.importers.{_reader(path)}")
    return cast(NodeTopology, module.read(path))


def _stand_in(node: NodeTopology, where: str) -> GpuPart:
    """A GPU of the capability that the source tells; UnnamedGpuError where it tells none."""
    gpu = node.gpus[0]
    alike = [p for p in map(parts.gpu, _USUAL) if p.capability == gpu.capability]
    if not gpu.capability or not alike:
        raise UnnamedGpuError(
            [
                f"{where}: node.gpu: the file does not name the GPU, and nothing is guessed; "
                "state it as --gpu H100-SXM5-80GB (from Python: the override node.gpu)"
            ]
        )
    mine = [link for link in node.links if gpu.name in (link.source, link.target)]
    links = sum(link.width for link in mine if link.kind == "nvlink")
    grace = any(link.kind == "c2c" for link in mine)
    pairs = len(node.gpus) > 2 and interconnect_of(node) == "nvlink-pairs"

    def unlike(part: GpuPart) -> tuple[bool, bool, bool, int]:
        return (
            grace != bool(part.c2c_count),
            part.sxm if not links else part.link_count == 0,
            pairs and not part.bridge,
            abs(part.link_count - links),
        )

    return min(alike, key=unlike)


def interconnect_of(node: NodeTopology) -> str:
    """The cluster file's word for what joins the GPUs of a machine."""
    names = {g.name for g in node.gpus}
    direct = [link for link in node.links if {link.source, link.target} <= names]
    if node.nvswitch is not None:
        return "nvswitch"
    if any(link.kind == "xgmi" for link in direct):
        return "xgmi-mesh"
    if any(link.kind == "nvlink" for link in direct):
        peers = Counter(end for link in direct for end in {link.source, link.target})
        return "nvlink-pairs" if max(peers.values()) == 1 else "nvlink-mesh"
    if any(link.kind == "c2c" for link in node.links):
        return "nvlink-c2c"
    parents = {link.source: link.target for link in node.links if link.kind == "pcie"}
    switches = {s.name for s in node.switches}
    shared = Counter(parents.get(name, "") for name in names)
    under = any(parent in switches and count > 1 for parent, count in shared.items())
    return "pcie-switch" if under else "pcie-host"


def island(node: NodeTopology) -> int:
    """GPUs of the largest group that NVLink or xGMI joins inside a machine."""
    group = {g.name: {g.name} for g in node.gpus}
    if node.nvswitch is not None:
        group[node.nvswitch.name] = set()
    for link in node.links:
        if link.kind in ("nvlink", "xgmi") and link.source in group and link.target in group:
            joined = group[link.source] | group[link.target]
            for name, members in list(group.items()):
                if members & joined or name in (link.source, link.target):
                    group[name] = joined
    return max(len(members) for members in group.values())


def placement_of(node: NodeTopology) -> str:
    """The cluster file's word for where the NICs hang."""
    if not node.nics:
        return ""
    parents = {link.source: link.target for link in node.links if link.kind == "pcie"}
    switches = {s.name for s in node.switches}
    c2c = any(link.kind == "c2c" for link in node.links)
    own = c2c and len(node.nics) >= len(node.gpus)
    if own or any(parents.get(nic.card, "") in switches for nic in node.nics):
        return "per-gpu" if len(node.nics) >= len(node.gpus) else "per-pcie-switch"
    return "single" if len(node.nics) == 1 else "per-socket"
