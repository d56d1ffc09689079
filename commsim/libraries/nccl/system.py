"""NCCL's view of one NVLink domain: vertices, directed links with NCCL's own bandwidths, and their
order.

NCCL does not use a machine's physical rates but a table per generation, and it walks links in a
fixed order (NVLink, PCIe down, PCIe up, sockets; wider first), which decides every tie of the later
search. Bandwidths are kept in 1/1000 GB/s, the grain to which NCCL rounds what is left of a link.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from commsim.libraries.nccl.graph import PathType
from commsim.topology.node import Cpu, NodeLink, NodeTopology

Version = tuple[int, int]

GPU, DEV, PCI, NVS, CPU, NIC, NET = range(7)

LOCAL_BW = 5_000_000  # "infinite", 5000 GB/s
_PCIE_UNITS = ((2.5, 15), (5.0, 30), (8.0, 60), (16.0, 120), (32.0, 240), (64.0, 480))


@dataclass(slots=True)
class Link:
    """One direction of a link; `index` counts links over the whole system."""

    target: int
    kind: PathType
    bandwidth: float
    index: int = -1


@dataclass(slots=True)
class Vertex:
    """A device as NCCL counts them. `index` is its place among those of its kind; `host` its
    machine.
    """

    kind: int
    index: int
    host: int
    links: list[Link] = field(default_factory=list)
    cpu: Cpu | None = None
    capability: int = 0


@dataclass(slots=True)
class GpuInfo:
    """A rank's GPU: rank inside the domain, CUDA device number, vertex."""

    rank: int
    dev: int
    capability: int
    gpudirect: bool
    vertex: int
    device: int  # vertex that carries its PCIe and NVLink links (itself before 2.30)
    host: int


@dataclass(slots=True)
class NetInfo:
    """A network device. `adapter` and `port` tell which devices share one NIC's rate."""

    nic: int
    adapter: str
    port: int
    speed: float  # GB/s
    latency: float  # us
    gpudirect: bool
    collnet: bool
    vertex: int
    host: int


@dataclass(slots=True)
class System:
    """One domain: vertices, and the GPUs, networks and CPUs among them in NCCL's order."""

    version: Version
    vertices: list[Vertex] = field(default_factory=list)
    gpus: list[GpuInfo] = field(default_factory=list)
    nets: list[NetInfo] = field(default_factory=list)
    cpus: list[int] = field(default_factory=list)
    nvswitch: int = -1
    hosts: int = 1
    peer_access: bool = True

    def add(self, kind: int, host: int, index: int) -> int:
        self.vertices.append(Vertex(kind, index, host))
        return len(self.vertices) - 1

    def connect(self, source: int, target: int, kind: PathType, bandwidth: float) -> None:
        """Adds to the link source -> target; links stay in descending order of bandwidth."""
        links = self.vertices[source].links
        at = next(
            (i for i, k in enumerate(links) if k.target == target and k.kind == kind), len(links)
        )
        if at == len(links):
            links.append(Link(target, kind, 0.0))
        link = links[at]
        link.bandwidth += bandwidth
        while at > 0 and links[at - 1].bandwidth < link.bandwidth:
            links[at] = links[at - 1]
            at -= 1
        links[at] = link

    def join(self, a: int, b: int, kind: PathType, bandwidth: float) -> None:
        self.connect(a, b, kind, bandwidth)
        self.connect(b, a, kind, bandwidth)


def nvlink_bandwidth(capability: int, version: Version) -> float:
    """What NCCL counts for one NVLink of a GPU of this compute capability, 1/1000 GB/s."""
    if capability >= 100 and version >= (2, 25):
        return 40_100 if version >= (2, 27) else 40_000
    if capability >= 90:
        return 20_600 if version >= (2, 20) else 20_000
    if capability == 86:
        return 12_000
    if 60 <= capability < 70:
        return 18_000
    return 20_000


def pcie_bandwidth(link: NodeLink) -> float:
    """What NCCL counts for a PCIe link, 1/1000 GB/s: width x units per lane / 80.

    An unknown speed counts as Gen3 and an unknown width as 16 lanes. A NIC that hangs on a CPU
    without any PCIe link is given NCCL's "infinite" bandwidth.
    """
    if link.bandwidth * 1e-6 >= LOCAL_BW:
        return LOCAL_BW
    units = next((u for s, u in _PCIE_UNITS if abs(s - link.speed) < 1e-9), 60)
    return 1000 * (link.width or 16) * units / 80


def socket_bandwidth(cpu: Cpu, version: Version) -> float:
    """What NCCL counts between two CPUs, 1/1000 GB/s."""
    if cpu.arch == "ppc64":
        return 32_000
    if cpu.arch == "arm64":
        return 6_000
    if cpu.vendor == "intel":
        if cpu.family == 6 and version >= (2, 26):
            if cpu.model >= 0xCF:
                return 40_000
            if cpu.model >= 0x8F:
                return 22_000
        return 10_000 if cpu.family == 6 and cpu.model >= 0x55 else 6_000
    if cpu.vendor == "amd":
        return 16_000 if version >= (2, 19) else LOCAL_BW
    if cpu.vendor == "zhaoxin":
        return 9_000 if cpu.family == 7 and cpu.model == 0x5B else 6_000
    return LOCAL_BW


def build(
    node: NodeTopology, hosts: tuple[tuple[int, ...], ...], version: Version, nics: tuple[int, ...]
) -> System:
    """The system of one domain: `hosts` lists per machine the GPUs (places in node.gpus) its ranks
    use.
    """
    system = System(version, hosts=len(hosts), peer_access=node.gpu_peer_access is not False)
    first_rank = 0
    built = []
    for host, local in enumerate(hosts):
        built.append(_Host(system, node, host, local, first_rank, nics))
        first_rank += len(local)
    for each in built:
        each.devices()
    for each in built:
        each.nvlinks()
    for each in built:
        each.coherent()
    for each in built:
        each.sockets()
    for root in system.cpus:
        _uplinks_last(system, root, -1)
    count = 0
    for vertex in system.vertices:
        for link in vertex.links:
            link.index = count
            count += 1
    return system


class _Host:
    """Builds one machine's part of a system, in the order in which NCCL meets its devices.

    Every rank reads the machine with only its own GPU (and all NICs) and rank after rank the
    pictures are laid over each other: a branch comes in the order of the first rank that sees it.
    """

    def __init__(
        self,
        system: System,
        node: NodeTopology,
        host: int,
        local: tuple[int, ...],
        first_rank: int,
        nics: tuple[int, ...],
    ) -> None:
        self.system, self.node, self.host = system, node, host
        self.ranks = {node.gpus[g].name: first_rank + i for i, g in enumerate(local)}
        self.gpus = {node.gpus[g].name: node.gpus[g] for g in local}
        self.ports: dict[str, list[int]] = {}
        for i in nics:
            self.ports.setdefault(node.nics[i].card, []).append(i)
        self.cpus = {c.name: c for c in node.cpus}
        self.switches = {s.name for s in node.switches}
        self.children: dict[str, list[tuple[str, NodeLink | None]]] = {}
        self.vertex: dict[str, int] = {}
        placed = set()
        for link in node.links:
            if link.kind == "pcie":
                self.children.setdefault(link.target, []).append((link.source, link))
                placed.add(link.source)
        if not self.cpus:
            self.cpus = {"cpu": Cpu(name="cpu", numa=0, arch="x86_64", vendor="other")}
        home = next(iter(self.cpus))
        for name in [*self.gpus, *self.ports]:
            if name not in placed:
                self.children.setdefault(home, []).append((name, None))
        self.first: dict[str, int] = {}

    def seen(self, name: str) -> int:
        """The first rank that sees this branch; a huge number where no rank does."""
        if name not in self.first:
            own = [self.ranks[name]] if name in self.ranks else [-1] if name in self.ports else []
            below = [self.seen(child) for child, _ in self.children.get(name, ())]
            self.first[name] = min(own + below, default=1 << 30)
        return self.first[name]

    def ordered(
        self, names: list[tuple[str, NodeLink | None]]
    ) -> list[tuple[str, NodeLink | None]]:
        start = min(self.ranks.values())
        kept = [(n, k) for n, k in names if self.seen(n) < 1 << 30]
        if self.system.version < (2, 19):
            return kept  # every rank saw all GPUs of its host
        return sorted(kept, key=lambda each: max(start, self.seen(each[0])))

    def devices(self) -> None:
        for name, _ in self.ordered([(c, None) for c in self.cpus]):
            vertex = self.system.add(CPU, self.host, len(self.system.cpus))
            self.system.vertices[vertex].cpu = self.cpus[name]
            self.system.cpus.append(vertex)
            self.vertex[name] = vertex
            self.below(name)

    def below(self, parent: str) -> None:
        for name, link in self.ordered(self.children.get(parent, [])):
            bandwidth = pcie_bandwidth(link) if link else LOCAL_BW
            if name in self.gpus:
                vertex = self.gpu(name)
            elif name in self.ports:
                vertex = self.nic(name)
            else:
                vertex = self.system.add(PCI, self.host, 0)
                self.vertex[name] = vertex
                self.below(name)
            self.system.join(vertex, self.vertex[parent], PathType.PIX, bandwidth)

    def gpu(self, name: str) -> int:
        """Adds a GPU; returns the vertex that carries its links."""
        gpu, system = self.gpus[name], self.system
        device = vertex = system.add(GPU, self.host, len(system.gpus))
        if system.version >= (2, 30):  # the physical device is a vertex of its own
            device = system.add(DEV, self.host, len(system.gpus))
            system.join(vertex, device, PathType.LOC, LOCAL_BW)
        for v in {vertex, device}:
            system.vertices[v].capability = gpu.capability
        system.gpus.append(
            GpuInfo(
                self.ranks[name],
                gpu.index,
                gpu.capability,
                gpu.gpudirect,
                vertex,
                device,
                self.host,
            )
        )
        self.vertex[name] = device
        return device

    def nic(self, card: str) -> int:
        system = self.system
        vertex = system.add(NIC, self.host, 0)
        self.vertex[card] = vertex
        for i in self.ports[card]:
            nic = self.node.nics[i]
            net = system.add(NET, self.host, len(system.nets))
            speed = nic.rate / 1e9 if nic.rate > 0 else 1.25
            system.join(vertex, net, PathType.NET, 1000 * speed)
            system.nets.append(
                NetInfo(
                    self.host * len(self.node.nics) + i,
                    f"{self.host}/{nic.guid or i}",
                    nic.port,
                    speed,
                    nic.latency * 1e6,
                    nic.gpudirect,
                    nic.collnet,
                    net,
                    self.host,
                )
            )
        return vertex

    def nvlinks(self) -> None:
        system = self.system
        found: dict[str, list[tuple[str, NodeLink]]] = {}
        for link in self.node.links:
            if link.kind in ("nvlink", "xgmi"):
                found.setdefault(link.source, []).append((link.target, link))
                found.setdefault(link.target, []).append((link.source, link))
        for name in [n for n in self.vertex if n in self.gpus]:
            source = self.vertex[name]
            gpu = self.gpus[name]
            for other, link in found.get(name, ()):
                bandwidth = (
                    link.width * nvlink_bandwidth(gpu.capability, system.version)
                    if gpu.capability
                    else link.bandwidth * 1e-6
                )
                if self.node.nvswitch is not None and other == self.node.nvswitch.name:
                    if system.nvswitch < 0:
                        system.nvswitch = system.add(NVS, -1, 0)
                    system.join(source, system.nvswitch, PathType.NVL, bandwidth)
                elif other in self.gpus:
                    system.connect(source, self.vertex[other], PathType.NVL, bandwidth)
                elif other in self.cpus and other in self.vertex:
                    system.join(source, self.vertex[other], PathType.NVL, bandwidth)

    def coherent(self) -> None:
        kind = PathType.C2C if self.system.version >= (2, 26) else PathType.NVL
        for link in self.node.links:
            if link.kind != "c2c":
                continue
            ends = (link.source, link.target)
            if all(e in self.vertex for e in ends):
                a, b = (self.vertex[e] for e in ends)
                self.system.join(a, b, kind, link.bandwidth * 1e-6)

    def sockets(self) -> None:
        system = self.system
        mine = [v for v in system.cpus if system.vertices[v].host == self.host]
        for a in mine:
            for b in mine:
                cpu = system.vertices[a].cpu
                if a != b and cpu is not None:
                    system.connect(a, b, PathType.SYS, socket_bandwidth(cpu, system.version))


def keep(system: System, places: list[int]) -> System:
    """The same system with only these GPUs; everything else stays where it was."""
    gone = {g.vertex for i, g in enumerate(system.gpus) if i not in places}
    gone |= {g.device for i, g in enumerate(system.gpus) if i not in places}
    vertices = [
        replace(v, links=[k for k in v.links if k.target not in gone] if i not in gone else [])
        for i, v in enumerate(system.vertices)
    ]
    return replace(system, vertices=vertices, gpus=[system.gpus[i] for i in places])


def _uplinks_last(system: System, vertex: int, parent: int) -> None:
    links = system.vertices[vertex].links
    if parent >= 0:
        at = next(i for i, k in enumerate(links) if k.target == parent)
        links.append(links.pop(at))
    for link in list(links):
        if link.kind == PathType.PIX and link.target != parent:
            _uplinks_last(system, link.target, vertex)
