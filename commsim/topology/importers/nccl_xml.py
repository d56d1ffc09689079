"""A machine from NCCL's topology XML (NCCL_TOPO_FILE, NCCL_TOPO_DUMP_FILE).

Complete files name every GPU, NVLink and network port. The files that clouds ship hold only the
PCIe tree: there GPUs and NICs are known by their PCI class, and what the file cannot say (compute
capability, NVLinks, NIC rate, sometimes even which function is a GPU) the caller may add.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

from commsim.errors import SpecError
from commsim.topology.elements import Element, parse
from commsim.topology.node import Cpu, Gpu, Nic, NodeLink, NodeTopology, NvSwitch, PcieSwitch
from commsim.units import BytesPerSecond

# Spellings of link_speed that NCCL knows; any other counts as 8 GT/s in its tables.
_KNOWN_SPEEDS = re.compile(r"(2\.5|5|8|16|32) GT/s|(2\.5|5\.0|8\.0|16\.0|32\.0|64\.0) GT/s PCIe")
_NUMBER = re.compile(r"\s*(\d+(?:\.\d+)?)\s*GT/s")
_BUSID = re.compile(r"[0-9a-f]+:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]", re.IGNORECASE)
_VENDORS = {
    "GenuineIntel": "intel",
    "AuthenticAMD": "amd",
    "CentaurHauls": "zhaoxin",
    "  Shanghai  ": "zhaoxin",
}
_ARCHITECTURES = ("x86_64", "arm64", "ppc64")
# PCI ids of GPUs that cloud files name (pci-ids.ucw.cz): part, compute capability x 10
_DEVICES = {
    "0x1db1": ("V100-SXM2-16GB", 70),
    "0x1db5": ("V100-SXM2-32GB", 70),
    "0x20b0": ("A100-SXM4-40GB", 80),
    "0x20b2": ("A100-SXM4-80GB", 80),
    "0x20b5": ("A100-PCIe-80GB", 80),
    "0x2330": ("H100-SXM5-80GB", 90),
    "0x2335": ("H200-SXM-141GB", 90),
    "0x2901": ("B200-SXM-180GB", 100),
}
_OTHERS = {"graphs": "a graph file, from NCCL_GRAPH_DUMP_FILE"}
_UNKNOWN_LANES, _UNKNOWN_SPEED = 16, 8.0  # what NCCL assumes
_DIRECT: BytesPerSecond = 5e12  # a NIC on a CPU without PCIe: NCCL's "infinite" 5000 GB/s


def read(
    path: str | os.PathLike[str],
    *,
    part: str = "",
    capability: int = 0,
    gpus: int = 0,
    nvlinks: int = 0,
    nvswitch: bool = False,
    nic_rate: BytesPerSecond = 0.0,
) -> NodeTopology:
    """The machine in an NCCL topology file; link bandwidths in bytes/s of one direction.

    The keywords add what the file leaves out and never replace what it says. part, capability: of
    every GPU whose `gpu` element is missing. gpus: how many GPUs there are, for files that mark
    none: one under each PCIe switch if there are as many switches, else the first functions of
    unknown class, else spread over the CPUs. nvlinks: NVLinks of each GPU to the NVSwitch (with
    nvswitch=True) where the file has no nvlink element. nic_rate: of NICs without a `net` element
    (else their rate is 0: not known). Without any GPU the result has `gpus=()`.

    NodeLink.speed is the transfer rate as NCCL understands the text (0: it would fall back to 8
    GT/s), while `bandwidth` follows the number in the text. Raises SpecError with every problem
    found.
    """
    root = parse(path, "system", "give the file that NCCL_TOPO_DUMP_FILE writes", _OTHERS)
    reader = _Reader(Path(path).name, part, capability, nvlinks, nic_rate)
    return reader.machine(root, gpus, nvswitch)


class _Reader:
    """Collects devices and links in the order of the file."""

    def __init__(
        self, file: str, part: str, capability: int, nvlinks: int, nic_rate: BytesPerSecond
    ) -> None:
        self.file, self.part, self.capability = file, part, capability
        self.nvlinks, self.nic_rate = nvlinks, nic_rate
        self.problems: list[str] = []
        self.gpus: list[Gpu] = []
        self.nics: list[Nic] = []
        self.cpus: list[Cpu] = []
        self.switches: list[PcieSwitch] = []
        self.pcie: list[NodeLink] = []
        self.nvlink: list[tuple[str, str, int, int, bool]] = []
        self.c2c: list[NodeLink] = []
        self.unknown: list[str] = []
        self.unnumbered: list[str] = []
        self.cards: dict[str, str] = {}

    def problem(self, element: Element, text: str) -> None:
        self.problems.append(f"{self.file}: line {element.line}: {text}")

    def number(self, element: Element, name: str, default: float) -> float:
        text = element.attributes.get(name)
        if text is None or not text.strip():
            return default
        try:
            return float(int(text, 0))
        except ValueError:
            pass
        try:
            return float(text)
        except ValueError:
            self.problem(
                element, f"<{element.tag}> {name}: found {text!r}, expected a number; correct it"
            )
            return default

    def machine(self, root: Element, wanted: int, nvswitch: bool) -> NodeTopology:
        version = self.number(root, "version", 1)
        if version > 1:
            self.problem(
                root, f"<system> version: found {version:g}, expected 1; NCCL refuses newer files"
            )
        cpus = root.all("cpu")
        if not cpus:
            self.problem(
                root,
                "<system> has no <cpu>, so no device; expected at least one; dump the file again",
            )
        for element in cpus:
            self.cpu(element)
        if self.problems:
            raise SpecError(self.problems)
        self.number_gpus()
        if not self.gpus and wanted:
            self.place(wanted)
        elif wanted and len(self.gpus) != wanted:
            raise SpecError(
                [
                    f"{self.file}: holds {len(self.gpus)} GPUs, expected {wanted};"
                    " leave out the number of GPUs or give the right file"
                ]
            )
        links = self.links(nvswitch)
        switched = any(NVSWITCH in (k.source, k.target) for k in links)
        for name in self.unknown:
            self.switches.append(PcieSwitch(name=name, busid=name))
        gpus = sorted(self.gpus, key=lambda g: g.index)
        names = {g.name: f"gpu{g.index}" for g in gpus}
        if len(set(names.values())) < len(gpus):
            raise SpecError(
                [
                    f"{self.file}: two GPUs have the same bus id or dev number, expected each once;"
                    " renumber them"
                ]
            )
        links = [
            replace(k, source=names.get(k.source, k.source), target=names.get(k.target, k.target))
            for k in links
        ]
        return NodeTopology(
            gpus=tuple(replace(g, name=names[g.name]) for g in gpus),
            nics=tuple(sorted(self.nics, key=lambda n: n.index)),
            cpus=tuple(self.cpus),
            switches=tuple(self.switches),
            nvswitch=NvSwitch(name=NVSWITCH) if switched else None,
            links=tuple(links),
        )

    def cpu(self, element: Element) -> None:
        if "numaid" not in element.attributes:
            self.problem(element, '<cpu> has no numaid, expected one such as "0"; add it')
        numa = int(self.number(element, "numaid", len(self.cpus)))
        arch = element.attributes.get("arch", "x86_64")
        if arch not in _ARCHITECTURES:
            self.problem(
                element,
                f"<cpu> arch: found {arch!r}, expected one of {', '.join(_ARCHITECTURES)};"
                " correct it",
            )
        vendor = {"arm64": "arm", "ppc64": "ibm"}.get(
            arch, _VENDORS.get(element.attributes.get("vendor", ""), "other")
        )
        x86 = arch == "x86_64"
        name = f"cpu{numa}"
        if any(c.name == name for c in self.cpus):
            self.problem(
                element,
                f"<cpu> numaid {numa} occurs twice, expected the CPUs of one machine;"
                " split the file",
            )
        self.cpus.append(
            Cpu(
                name=name,
                numa=numa,
                arch=arch,
                vendor=vendor,
                family=int(self.number(element, "familyid", 0)) if x86 else 0,
                model=int(self.number(element, "modelid", 0)) if x86 else 0,
            )
        )
        for child in element.children:
            if child.tag == "pci":
                self.pci(child, name, "")
            elif child.tag == "nic":
                card = f"{name}-nic"
                if card not in self.cards:
                    self.cards[card] = card
                    self.pcie.append(
                        NodeLink(source=card, target=name, kind="pcie", bandwidth=_DIRECT, width=0)
                    )
                self.nets(child, card, "")

    def pci(self, element: Element, parent: str, merged: str) -> None:
        busid = element.attributes.get("busid", "").lower()
        if not _BUSID.fullmatch(busid):
            self.problem(
                element,
                f'<pci> busid: found {busid!r}, expected one such as "0000:07:00.0"; correct it',
            )
            return
        kind = (
            element.attributes.get("class", "")[:4].lower()
            + element.attributes.get("class", "")[4:6].lower()
        )
        below = element.all("pci")
        gpu = element.all("gpu")
        if gpu or kind.startswith("0x03"):
            self.link(element, busid, parent)
            self.gpu(gpu[0] if gpu else None, element, busid)
        elif element.all("nic") or kind.startswith("0x02"):
            card = self.card(element, busid, parent)
            nics = element.all("nic")
            for nic in nics:
                self.nets(nic, card, busid)
            if not nics:
                self.nic(None, card, busid)
        elif below or kind in ("0x0604", "0x0801"):
            family = _broadcom(element)
            if merged and family == merged:
                for child in below:  # seen as one switch with the one above
                    self.pci(child, parent, "")
                return
            name = f"switch-{busid}"  # some files give a switch the bus id of a device below it
            self.switches.append(PcieSwitch(name=name, busid=busid))
            self.link(element, name, parent)
            for child in below:
                self.pci(child, name, family)
        elif not kind:
            self.link(element, busid, parent)
            self.unknown.append(busid)

    def card(self, element: Element, busid: str, parent: str) -> str:
        """The PCIe function of a NIC; other functions of the device share the first one's link."""
        device = busid.rsplit(".", 1)[0]
        if device not in self.cards:
            self.cards[device] = f"card-{busid}"
            self.link(element, self.cards[device], parent)
        return self.cards[device]

    def link(self, element: Element, child: str, parent: str) -> None:
        text = element.attributes.get("link_speed", "")
        number = _NUMBER.match(text)
        known = _KNOWN_SPEEDS.fullmatch(text.strip())
        width = int(self.number(element, "link_width", 0))
        physical = float(number[1]) if number else _UNKNOWN_SPEED
        lanes = width or _UNKNOWN_LANES
        self.pcie.append(
            NodeLink(
                source=child,
                target=parent,
                kind="pcie",
                bandwidth=_pcie_bandwidth(physical, lanes),
                width=lanes,
                speed=float(number[1]) if number and known else 0.0,
            )
        )

    def gpu(self, element: Element | None, pci: Element, busid: str) -> None:
        known = _DEVICES.get(pci.attributes.get("device", "").lower(), ("", 0))
        if pci.attributes.get("vendor", "0x10de").lower() != "0x10de":
            known = ("", 0)
        index = -1
        capability = self.capability or known[1]
        direct = True
        if element is not None:
            index = int(self.number(element, "dev", -1))
            capability = int(self.number(element, "sm", capability))
            direct = self.number(element, "gdr", 1) != 0
            for link in element.all("nvlink"):
                self.nvlinks_of(link, busid, capability)
            for link in element.all("c2c"):
                rate = self.number(link, "bw", 0) * 1e6
                count = int(self.number(link, "count", 1))
                self.c2c.append(
                    NodeLink(
                        source=busid,
                        target=self.cpus[-1].name,
                        kind="c2c",
                        bandwidth=rate * count,
                        width=count,
                    )
                )
        if index < 0:
            self.unnumbered.append(busid)
        self.gpus.append(
            Gpu(
                name=busid,
                index=index,
                part=self.part or (known[0] if capability == known[1] else ""),
                capability=capability,
                gpudirect=direct,
                busid=busid,
            )
        )

    def nvlinks_of(self, element: Element, busid: str, capability: int) -> None:
        target = element.attributes.get("target", "").lower()
        kind = element.attributes.get("tclass", "").lower()
        count = int(self.number(element, "count", 1))
        if target == busid:
            return  # some cloud files let a GPU point at itself
        to = NVSWITCH if kind in ("0x068000", "") else target
        if kind == "0x068001":
            to = self.cpus[-1].name
        self.nvlink.append((busid, to, count, capability, kind.startswith("0x03")))

    def nets(self, nic: Element, card: str, busid: str) -> None:
        for net in nic.all("net"):
            if net.attributes.get("keep") == "0":
                continue
            self.nic(net, card, busid)

    def nic(self, net: Element | None, card: str, busid: str) -> None:
        if net is None:
            index = len(self.nics)
            self.nics.append(
                Nic(name=busid, index=index, card=card, rate=self.nic_rate, busid=busid)
            )
            return
        index = int(self.number(net, "dev", len(self.nics)))
        if any(n.index == index for n in self.nics):
            self.problem(
                net, f"<net> dev: {index} occurs twice, expected each number once; renumber"
            )
        speed = self.number(net, "speed", 0)
        self.nics.append(
            Nic(
                name=net.attributes.get("name", f"net{index}"),
                index=index,
                card=card,
                rate=(speed if speed > 0 else 10000) * 1e6 / 8,
                gpudirect=self.number(net, "gdr", 0) != 0,
                port=int(self.number(net, "port", 0)),
                guid=net.attributes.get("guid", ""),
                latency=self.number(net, "latency", 0) * 1e-6,
                collnet=self.number(net, "coll", 0) != 0,
                busid=busid,
            )
        )

    def number_gpus(self) -> None:
        """CUDA numbers GPUs by bus id where the file does not."""
        if not self.unnumbered:
            return
        taken = {g.index for g in self.gpus}
        free = (i for i in range(len(self.gpus) + len(taken)) if i not in taken)
        given = {busid: next(free) for busid in sorted(self.unnumbered)}
        self.gpus = [replace(g, index=given.get(g.name, g.index)) for g in self.gpus]

    def place(self, wanted: int) -> None:
        """Puts GPUs that the file does not mark where they most likely are."""
        parents = dict.fromkeys(k.target for k in self.pcie if k.target not in self._cpu_names())
        places: list[tuple[str, str]]
        if len(parents) == wanted:
            places = [(f"gpu{i}", parent) for i, parent in enumerate(parents)]
        elif len(self.unknown) >= wanted:
            places = [(name, "") for name in self.unknown[:wanted]]
        else:
            spread = [self.cpus[i * len(self.cpus) // wanted].name for i in range(wanted)]
            places = [(f"gpu{i}", parent) for i, parent in enumerate(spread)]
        fastest = max(self.pcie, key=lambda k: k.bandwidth, default=None)
        for index, (name, parent) in enumerate(places):
            if parent:
                speed = fastest.speed if fastest else 0.0
                bandwidth = (
                    fastest.bandwidth
                    if fastest
                    else _pcie_bandwidth(_UNKNOWN_SPEED, _UNKNOWN_LANES)
                )
                link = NodeLink(
                    source=name,
                    target=parent,
                    kind="pcie",
                    bandwidth=bandwidth,
                    width=_UNKNOWN_LANES,
                    speed=speed,
                )
                at = next((i for i, k in enumerate(self.pcie) if k.target == parent), 0)
                self.pcie.insert(at, link)
            busid = "" if parent else name
            self.gpus.append(
                Gpu(
                    name=name,
                    index=index,
                    part=self.part,
                    capability=self.capability,
                    busid=busid,
                )
            )
        chosen = {name for name, _ in places}
        for busid in [u for u in self.unknown if u not in chosen]:
            self.nic(None, busid, busid)
        self.unknown = []

    def _cpu_names(self) -> set[str]:
        return {c.name for c in self.cpus}

    def links(self, nvswitch: bool) -> list[NodeLink]:
        """NVLinks first, then PCIe, C2C and sockets; an NVLink between two GPUs, told by both,
        once.
        """
        found: dict[tuple[str, str], NodeLink] = {}
        names = {g.name for g in self.gpus}
        for source, target, count, capability, to_gpu in self.nvlink:
            if to_gpu and target not in names:
                continue  # a GPU that this file does not hold
            key = (source, target)
            if (target, source) in found:
                continue
            width = count + (found[key].width if key in found else 0)
            found[key] = NodeLink(
                source=source,
                target=target,
                kind="nvlink",
                bandwidth=width * nvlink_rate(capability),
                width=width,
            )
        if not found and self.nvlinks and nvswitch:
            for gpu in sorted(self.gpus, key=lambda g: g.index):
                found[gpu.name, NVSWITCH] = NodeLink(
                    source=gpu.name,
                    target=NVSWITCH,
                    kind="nvlink",
                    bandwidth=self.nvlinks * nvlink_rate(gpu.capability),
                    width=self.nvlinks,
                )
        sockets = [
            NodeLink(source=a.name, target=b.name, kind="socket", bandwidth=_socket_bandwidth(a))
            for i, a in enumerate(self.cpus)
            for b in self.cpus[i + 1 :]
        ]
        return [*found.values(), *self.pcie, *self.c2c, *sockets]


NVSWITCH = "nvswitch"


def nvlink_rate(capability: int) -> BytesPerSecond:
    """Bytes/s of one NVLink in one direction by the data sheets of the generations: 20 GB/s on
    P100, 25 GB/s on V100, A100 and H100, 50 GB/s on Blackwell; 14 GB/s on the GA102 boards (RTX 30,
    A40).
    """
    if capability >= 100:
        return 50e9
    if capability == 86:
        return 14.0625e9
    return 20e9 if 0 < capability < 70 else 25e9


def _pcie_bandwidth(speed: float, lanes: int) -> BytesPerSecond:
    """Transfer rate x lanes x line code / 8: 8b/10b up to 5 GT/s, 128b/130b up to 32 GT/s, flits
    above.
    """
    code = 0.8 if speed <= 5 else 128 / 130 if speed <= 32 else 242 / 256
    return speed * 1e9 * lanes * code / 8


def _socket_bandwidth(cpu: Cpu) -> BytesPerSecond:
    """One direction between two NUMA nodes, bytes/s, as large as current inter-socket links are.

    Three UPI links of Skylake to Ice Lake (10.4 to 11.2 GT/s x 20 lanes): 62.4 GB/s; of Sapphire
    Rapids and later (16 to 24 GT/s): 96 GB/s; three to four xGMI links between EPYCs: 96 GB/s; QPI
    of Broadwell: 38.4 GB/s.
    """
    if cpu.vendor == "intel":
        if cpu.model >= 0x8F:
            return 96e9
        return 62.4e9 if cpu.model >= 0x55 else 38.4e9
    return 96e9


def _broadcom(element: Element) -> str:
    """Switch generation of Broadcom's two-level switches, which NCCL sees as one; empty for any
    other.
    """
    ids = [
        element.attributes.get(name, "").lower()
        for name in ("vendor", "device", "subsystem_vendor", "subsystem_device")
    ]
    if ids[0] != "0x1000" or ids[2] != "0x1000":
        return ""
    if ids[1] == "0xc010" and ids[3].startswith("0xa0"):
        return "gen4"
    if ids[1] == "0xc030" and ids[3][:3] in ("0x0", "0x1"):
        return "gen5"
    return ""
