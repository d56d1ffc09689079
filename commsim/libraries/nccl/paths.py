"""NCCL's paths: for every pair of devices of a domain the route, its bandwidth and how far it
counts.

A path is found breadth first; then pairs without peer-to-peer are led through a CPU, NICs may be
reached through a peer GPU (PXN), and NICs without GPUDirect through the host. Sections 1.3 to 1.8
of docs/nccl.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from commsim.libraries.nccl.graph import PathType
from commsim.libraries.nccl.settings import Settings, max_channels
from commsim.libraries.nccl.system import CPU, DEV, GPU, LOCAL_BW, PCI, System

_LOC, _NVL, _NVB, _C2C, _PXB = (
    PathType.LOC,
    PathType.NVL,
    PathType.NVB,
    PathType.C2C,
    PathType.PXB,
)
_P2C, _PXN, _PHB, _SYS, _NET, _DIS = (
    PathType.P2C,
    PathType.PXN,
    PathType.PHB,
    PathType.SYS,
    PathType.NET,
    PathType.DIS,
)


@dataclass(slots=True)
class Path:
    """A route between two devices: links in order, bandwidth in 1/1000 GB/s, distance class.

    `via` is the place of the GPU that relays to the NIC (PXN), -1 otherwise.
    """

    links: tuple[int, ...] = ()
    bandwidth: float = 0.0
    type: PathType = _DIS
    via: int = -1

    @property
    def hops(self) -> int:
        return len(self.links)


Rows = list[list[Path]]


@dataclass(slots=True)
class Paths:
    """All paths of a system, as [place of source][place of target]."""

    gpu_gpu: Rows = field(default_factory=list)
    gpu_net: Rows = field(default_factory=list)
    net_gpu: Rows = field(default_factory=list)
    gpu_cpu: Rows = field(default_factory=list)
    cpu_gpu: Rows = field(default_factory=list)
    net_cpu: Rows = field(default_factory=list)
    cpu_net: Rows = field(default_factory=list)
    gpu_nvs: list[Path] = field(default_factory=list)
    nvs_gpu: list[Path] = field(default_factory=list)
    closest_gpu: list[int] = field(default_factory=list)  # of each net, -1: none
    nets_near: dict[int, list[int]] = field(
        default_factory=dict
    )  # of each GPU, kept by `local_nets`
    gpus_near: dict[int, list[int]] = field(
        default_factory=dict
    )  # of each net, kept by `local_gpus`


def _merge(a: PathType, b: PathType, system: System) -> PathType:
    far, near = max(a, b), min(a, b)
    if far == _PHB and near == _C2C and system.version >= (2, 27):
        return _P2C
    return far


def _towards(
    system: System, base: int, settings: Settings, reverse: dict[tuple[int, int, PathType], int]
) -> list[Path | None]:
    """The path from every vertex to `base`, breadth first."""
    vertices = system.vertices
    by_type = system.version >= (2, 30)
    relay = DEV if by_type else GPU
    found: list[Path | None] = [None] * len(vertices)
    found[base] = Path((), LOCAL_BW, _LOC)
    base_kind = vertices[base].kind
    frontier = [base]
    while frontier:
        following: dict[int, None] = {}
        for v in frontier:
            path = found[v]
            assert path is not None
            kind_here = vertices[v].kind
            hops = len(path.links)
            for link in vertices[v].links:
                t = link.target
                far = vertices[t]
                if v != base and kind_here == relay:
                    relays = (
                        settings.nvb
                        and link.kind == _NVL
                        and far.kind == relay
                        and hops <= (2 if by_type else 1)
                        and (not by_type or base_kind == GPU)
                    )
                    if by_type:
                        own = far.kind == GPU or (hops == 1 and base_kind == GPU)
                        if not (relays or own):
                            continue
                    elif not relays:
                        continue
                bandwidth = min(path.bandwidth, link.bandwidth)
                kind = _LOC if link.kind == _NET else link.kind
                if kind_here == PCI and far.kind == PCI:
                    kind = _PXB
                if link.kind == PathType.PIX and CPU in (kind_here, far.kind):
                    kind = _PHB
                if kind_here == relay and path.type == _NVL and kind == _NVL:
                    kind = _NVB  # one GPU already lies between
                kind = max(path.type, kind)
                known = found[t]
                if known is not None:
                    if by_type:
                        better = (kind, -bandwidth, hops + 1) < (
                            known.type,
                            -known.bandwidth,
                            len(known.links),
                        )
                    else:
                        better = len(known.links) > hops and known.bandwidth < bandwidth
                    if not better:
                        continue
                found[t] = Path((reverse[t, v, link.kind], *path.links), bandwidth, kind)
                following[t] = None
        frontier = list(following)
    return found


def local(row: list[Path]) -> list[int]:
    """The places that a row reaches with the highest bandwidth and, of those, the closest type."""
    best = max((p.bandwidth for p in row), default=0.0)
    if best <= 0:
        return []
    near = min(p.type for p in row if p.bandwidth == best)
    return [i for i, p in enumerate(row) if p.bandwidth == best and p.type == near]


def local_nets(paths: Paths, gpu: int) -> list[int]:
    """The nets (places) that are local to this GPU."""
    if gpu not in paths.nets_near:
        paths.nets_near[gpu] = local(paths.gpu_net[gpu])
    return paths.nets_near[gpu]


def local_gpus(paths: Paths, net: int) -> list[int]:
    """The GPUs (places) that are local to this net."""
    if net not in paths.gpus_near:
        paths.gpus_near[net] = local(paths.net_gpu[net])
    return paths.gpus_near[net]


def _set_gpu_net(paths: Paths, gpu: int, net: int, path: Path) -> None:
    paths.gpu_net[gpu][net] = path
    paths.nets_near.pop(gpu, None)


def local_net(system: System, paths: Paths, gpu: int, channel: int) -> int:
    """The network device that this GPU uses for this channel (place), -1 where it reaches none."""
    nets = local_nets(paths, gpu)
    if not nets:
        return -1
    sharers = max(1, len(local_gpus(paths, nets[0])))
    count = len(nets)
    net = system.gpus[gpu].dev
    if count & (count - 1) == 0:  # mirrored within log2(count) bits, to spread neighbours
        bits = count.bit_length() - 1
        net = sum(1 << (bits - 1 - b) for b in range(bits) if net >> b & 1)
    return nets[(net + channel % -(-count // sharers)) % count]


def _closest_gpu(system: System, paths: Paths, net: int) -> int:
    candidates = local_gpus(paths, net)
    if not candidates:
        return -1
    # a GPU's devices repeat after at most as many channels as it has local nets
    horizon = min(
        max_channels(system.version), max(len(local_nets(paths, g)) for g in candidates) or 1
    )
    for channel in range(horizon):
        for g in candidates:
            if local_net(system, paths, g, channel) == net:
                return g
    return -1


def _local_cpu(paths: Paths, gpu: int) -> int:
    return next(iter(local(paths.gpu_cpu[gpu])), -1)


def _rows(found: list[list[Path | None]], sources: list[int]) -> Rows:
    """Rows [source][target] out of per-target tables; a pair without route is DIS."""
    return [[table[s] or Path() for table in found] for s in sources]


def compute(system: System, settings: Settings) -> Paths:
    """Every path of the system, after the rules on peer-to-peer, PXN and GPUDirect."""
    gpus = [g.vertex for g in system.gpus]
    nets = [n.vertex for n in system.nets]
    reverse = {
        (source, link.target, link.kind): link.index
        for source, vertex in enumerate(system.vertices)
        for link in vertex.links
    }
    to_gpu = [_towards(system, v, settings, reverse) for v in gpus]
    to_net = [_towards(system, v, settings, reverse) for v in nets]
    to_cpu = [_towards(system, v, settings, reverse) for v in system.cpus]
    paths = Paths(
        gpu_gpu=_rows(to_gpu, gpus),
        net_gpu=_rows(to_gpu, nets),
        cpu_gpu=_rows(to_gpu, system.cpus),
        gpu_net=_rows(to_net, gpus),
        cpu_net=_rows(to_net, system.cpus),
        gpu_cpu=_rows(to_cpu, gpus),
        net_cpu=_rows(to_cpu, nets),
    )
    if system.nvswitch >= 0:
        to_nvs = _towards(system, system.nvswitch, settings, reverse)
        paths.gpu_nvs = [to_nvs[v] or Path() for v in gpus]
        paths.nvs_gpu = [table[system.nvswitch] or Path() for table in to_gpu]
    _peers(system, paths, settings)
    if system.version >= (2, 27):
        _coherent_nets(system, paths)
    _networks(system, paths, settings)
    paths.closest_gpu = [_closest_gpu(system, paths, n) for n in range(len(nets))]
    return paths


def p2p_level(system: System, settings: Settings) -> PathType:
    """The farthest path type over which GPUs read each other's memory."""
    if settings.p2p_level is not None:
        return settings.p2p_level
    cpu = system.vertices[system.cpus[0]].cpu
    assert cpu is not None
    if system.version <= (2, 22):
        far = cpu.arch == "arm64" or (cpu.arch == "x86_64" and cpu.vendor in ("intel", "zhaoxin"))
        return _PXB if far else _SYS
    amd = cpu.arch == "x86_64" and cpu.vendor == "amd"
    return _SYS if amd and len(system.gpus) <= 2 else _PXB


def peer_to_peer(system: System, paths: Paths, settings: Settings, a: int, b: int) -> bool:
    """Whether GPU a may use GPU b's memory directly."""
    if a == b:
        return True
    path = paths.gpu_gpu[a][b]
    if path.type > p2p_level(system, settings):
        return False
    same_host = system.gpus[a].host == system.gpus[b].host
    return system.peer_access or not same_host or path.type <= _NVB


def _peers(system: System, paths: Paths, settings: Settings) -> None:
    n = len(system.gpus)
    # What each GPU has to a NIC without crossing a host bridge.
    outside = [
        max((p.bandwidth for p in row if p.type <= _PXB), default=0.0) for row in paths.gpu_net
    ]
    if not settings.net_intra or not outside:
        outside = [0.0] * n
    for g in range(n):
        for p in range(n):
            if not peer_to_peer(system, paths, settings, p, g):
                cpu = _local_cpu(paths, g)
                if cpu >= 0:
                    first, second = paths.gpu_cpu[p][cpu], paths.cpu_gpu[cpu][g]
                    paths.gpu_gpu[p][g] = _concatenate(first, second, system)
        for p in range(n):
            nets = min(outside[p], outside[g])
            if p != g and _over_network(system, paths, settings, p, g, nets):
                path = paths.gpu_gpu[p][g]
                paths.gpu_gpu[p][g] = Path(path.links, path.bandwidth, _NET)


def _concatenate(first: Path, second: Path, system: System) -> Path:
    return Path(
        first.links + second.links,
        min(first.bandwidth, second.bandwidth),
        _merge(first.type, second.type, system),
    )


def _over_network(
    system: System, paths: Paths, settings: Settings, a: int, b: int, outside: float
) -> bool:
    """Whether the pair has neither peer-to-peer nor shared memory: the network is faster, or
    nothing works.

    NCCL prefers the network when both GPUs reach a NIC without crossing a host bridge and that
    (`outside`) is faster than the path between them.
    """
    direct = peer_to_peer(system, paths, settings, a, b)
    path = paths.gpu_gpu[a][b]
    if direct and path.type == _NVB:
        return False
    if outside > path.bandwidth:
        return True
    if direct:
        return False
    return not settings.shm or system.gpus[a].host != system.gpus[b].host


def _coherent_nets(system: System, paths: Paths) -> None:
    near = [_local_cpu(paths, g) for g in range(len(system.gpus))]
    for n in range(len(system.nets)):
        for g in range(len(system.gpus)):
            cpu = near[g]
            if cpu < 0:
                continue
            if _merge(paths.gpu_cpu[g][cpu].type, paths.net_cpu[n][cpu].type, system) == _P2C:
                for path in (paths.gpu_net[g][n], paths.net_gpu[n][g]):
                    path.type = min(_P2C, path.type)
    paths.nets_near.clear()
    paths.gpus_near.clear()


def _networks(system: System, paths: Paths, settings: Settings) -> None:
    for n in range(len(system.nets)):
        for g in range(len(system.gpus)):
            if system.gpus[g].host != system.nets[n].host:
                continue  # a rack: the NIC of another machine is out of reach
            if settings.pxn:
                _relay(system, paths, settings, g, n)
            path = paths.gpu_net[g][n]
            if path.type < _PHB and not gpudirect(system, paths, settings, g, n, read=False):
                cpu = _local_cpu(paths, g)
                if cpu >= 0:
                    inward = _concatenate(paths.net_cpu[n][cpu], paths.cpu_gpu[cpu][g], system)
                    outward = _concatenate(paths.gpu_cpu[g][cpu], paths.cpu_net[cpu][n], system)
                    paths.net_gpu[n][g] = inward
                    paths.gpus_near.pop(n, None)
                    _set_gpu_net(paths, g, n, outward)


def _relay(system: System, paths: Paths, settings: Settings, g: int, n: int) -> None:
    peer = _closest_gpu(system, paths, n)
    if peer in (-1, g):
        return
    first, second, own = paths.gpu_gpu[g][peer], paths.gpu_net[peer][n], paths.gpu_net[g][n]
    old = system.version <= (2, 26)
    reach = _P2C if settings.pxn_c2c and not old else _PXB
    if second.type > reach or paths.gpu_gpu[peer][g].type > _NVL:
        return
    if system.gpus[peer].host != system.gpus[g].host:
        return
    if second.bandwidth <= own.bandwidth and own.type <= (_PXB if old else _PXN):
        return
    if system.version >= (2, 30) and not gpudirect(system, paths, settings, peer, n, read=False):
        return
    bandwidth = min(first.bandwidth, second.bandwidth)
    _set_gpu_net(paths, g, n, Path(first.links + second.links, bandwidth, _PXN, peer))


def gpudirect(
    system: System, paths: Paths, settings: Settings, g: int, n: int, *, read: bool
) -> bool:
    """Whether the NIC may read (or write) this GPU's memory directly."""
    gpu = system.gpus[g]
    if not (gpu.gpudirect and system.nets[n].gpudirect):
        return False
    if read:
        if settings.gdr_read == 0:
            return False
        if settings.gdr_read is None and (0 < gpu.capability < 80 or system.version <= (2, 18)):
            others = [p for i, p in enumerate(paths.gpu_gpu[g]) if i != g]
            if others and all(p.type != _NVL for p in others):
                return False
    level = settings.gdr_level
    if level is None:
        level = _P2C if system.version >= (2, 29) and settings.gdr_c2c else _PXB
    path = paths.gpu_net[g][n]
    distance = paths.gpu_net[path.via][n].type if path.type == _PXN else path.type
    if distance == _P2C and settings.gdr_c2c:
        return True
    return distance <= level


def islands(system: System, paths: Paths, settings: Settings) -> list[list[int]]:
    """The GPUs (places) that end up in one NCCL node together, by lowest member."""
    belongs: list[int] = []
    for g in range(len(system.gpus)):
        near = [belongs[p] for p in range(g) if paths.gpu_gpu[g][p].type < _NET]
        belongs.append(min([g, *near]))
    return [[g for g, d in enumerate(belongs) if d == k] for k in sorted(set(belongs))]
