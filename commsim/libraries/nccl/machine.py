"""One NCCL node as its graph searches see it: links with what is left, and the orders in which to
try.

Bandwidths are 1/1000 GB/s.
"""

from __future__ import annotations

from dataclasses import dataclass

from commsim.libraries.nccl.graph import PathType, Pattern
from commsim.libraries.nccl.paths import Path, Paths, local_net
from commsim.libraries.nccl.settings import Settings, max_channels
from commsim.libraries.nccl.system import GPU, LOCAL_BW, NVS, System

TREES = (Pattern.BALANCED_TREE, Pattern.SPLIT_TREE, Pattern.TREE)


@dataclass(frozen=True, slots=True)
class Found:
    """A graph during the search. Bandwidths in 1/1000 GB/s; orders hold GPU places."""

    pattern: Pattern
    min_channels: int
    max_channels: int
    collnet: bool = False
    channels: int = 0
    bw_intra: float = 0.0
    bw_inter: float = 0.0
    type_intra: PathType = PathType.LOC
    type_inter: PathType = PathType.PIX
    same: bool = True
    cross: int = 0
    latency: float = 0.0
    hops: int = 0
    orders: tuple[tuple[int, ...], ...] = ()
    nets: tuple[tuple[int, int], ...] = ()


class Machine:
    """What all searches on one NCCL node share: its system, paths and orders in which to try."""

    def __init__(self, system: System, paths: Paths, settings: Settings, inter: bool) -> None:
        self.system, self.paths, self.settings, self.inter = system, paths, settings, inter
        self.version = system.version
        self.n = len(system.gpus)
        self.capability = min(g.capability for g in system.gpus)
        self.remaining: list[float] = []
        self.source: list[int] = []
        for at, vertex in enumerate(system.vertices):
            for link in vertex.links:
                while len(self.remaining) <= link.index:
                    self.remaining.append(0.0)
                    self.source.append(-1)
                self.remaining[link.index] = link.bandwidth
                self.source[link.index] = at
        self.target = [-1] * len(self.remaining)
        self.kind = [PathType.LOC] * len(self.remaining)
        self.back = [-1] * len(self.remaining)
        ends: dict[tuple[int, int, PathType], int] = {}
        for at, vertex in enumerate(system.vertices):
            for link in vertex.links:
                self.target[link.index], self.kind[link.index] = link.target, link.kind
                ends[at, link.target, link.kind] = link.index
        for (a, b, kind), index in ends.items():
            self.back[index] = ends.get((b, a, kind), -1)
        nets = system.nets
        self.same_port = [
            [k for k, b in enumerate(nets) if (b.adapter, b.port) == (a.adapter, a.port)]
            for a in nets
        ]
        self.exact = all(float(b).is_integer() for b in self.remaining)
        self.max_bw, self.total_bw = self._bandwidths()
        # AMD's machines join all GPUs pairwise, and RCCL brings their channels along instead of
        # searching them: zigzag chains, whose rotations use every direct link exactly once.
        self.zigzag = self.capability == 0 and all(
            p.type <= PathType.NVL for row in paths.gpu_gpu for p in row
        )
        self.gpu_order: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
        self.net_order: dict[tuple[PathType, int], list[int]] = {}
        self.kept: dict[tuple[int, float], tuple[tuple[int, float], ...]] = {}
        self.switched: dict[
            tuple[int, float, PathType], tuple[tuple[tuple[int, float], ...], int]
        ] = {}

    def _bandwidths(self) -> tuple[float, float]:
        if not self.inter and self.n == 1:
            return LOCAL_BW, LOCAL_BW
        rows = self.paths.gpu_net if self.inter else self.paths.gpu_gpu
        highest = max((p.bandwidth for row in rows for p in row if p.links), default=0.0)
        total = 0.0
        for gpu in self.system.gpus:
            links = self.system.vertices[gpu.device].links
            nvlink = sum(k.bandwidth for k in links if k.kind == PathType.NVL)
            pcie = next((k.bandwidth for k in reversed(links) if k.kind == PathType.PIX), 0.0)
            total = max(total, nvlink, pcie)
        return highest, total

    def charges(self, path: Path, start: int, bandwidth: float) -> tuple[tuple[int, float], ...]:
        """What a flow of this bandwidth takes from each link of the path."""
        vertices = self.system.vertices
        over_pcie = bandwidth
        if path.type == PathType.PHB and start == GPU:
            for index in path.links:
                cpu = vertices[self.target[index]].cpu
                if cpu is not None and cpu.arch == "x86_64" and cpu.vendor == "intel":
                    over_pcie = bandwidth * 6 / 5
        taken = []
        for index in path.links:
            amount = over_pcie if self.kind[index] == PathType.PIX else bandwidth
            taken.append((index, amount))
            far = vertices[self.target[index]]
            reverse = 0.0
            if start != GPU and 0 < far.capability < 80 and self.kind[index] != PathType.LOC:
                reverse += amount / 8
            if far.cpu is not None and far.cpu.arch == "ppc64":
                reverse += amount if self.kind[index] == PathType.NVL else 0.0
            if reverse:
                taken.append((self.back[index], reverse))
        return tuple((i, int(a) if float(a).is_integer() else a) for i, a in taken)

    def multicast(
        self, head: int, bandwidth: float, limit: PathType
    ) -> tuple[tuple[tuple[int, float], ...], int]:
        """What one NVLS channel takes from each link, and its hops; nothing where a path is too
        far.
        """
        key = (head, bandwidth, limit)
        if key not in self.switched:
            taken: list[tuple[int, float]] = []
            hops = 0
            ways = [(p, NVS, g) for g, p in enumerate(self.paths.nvs_gpu)]
            ways += [(p, GPU, g) for g, p in enumerate(self.paths.gpu_nvs)]
            for path, start, g in ways:
                if path.type >= PathType.DIS or (g != head and path.type > limit):
                    taken, hops = [], 0
                    break
                weight = 2 if g == head else 1
                taken += self.charges(path, start, weight * bandwidth)
                hops += weight * path.hops
            self.switched[key] = (tuple(taken), hops)
        return self.switched[key]

    def pcie_of(self, gpu: int) -> float:
        for link in self.system.vertices[self.system.gpus[gpu].device].links:
            if link.kind == PathType.PIX:
                for down in self.system.vertices[link.target].links:
                    if down.target == self.system.gpus[gpu].device:
                        return min(link.bandwidth, down.bandwidth)
        return -1000.0

    def successors(self, gpu: int, net: int) -> list[tuple[int, int, int]]:
        """(GPU, bandwidth, hops) of every other GPU that can be reached, in NCCL's order of
        preference.
        """
        key = (gpu, net)
        if key not in self.gpu_order:
            scored = []
            for i in range(1, self.n):
                g = (gpu + i) % self.n
                path = self.paths.gpu_gpu[gpu][g]
                if not path.links:
                    continue
                bandwidth = int(path.bandwidth // 1000)
                score: tuple[int, ...] = (-bandwidth, path.hops, i)
                if net >= 0:
                    back = self.paths.net_gpu[net][g]
                    pcie = int(self.pcie_of(g) / 1000)
                    score = (-int(back.bandwidth // 1000), -pcie, back.hops, *score)
                scored.append((score, (g, bandwidth, path.hops)))
            self.gpu_order[key] = [each for _, each in sorted(scored)]
        return self.gpu_order[key]

    def candidates(self, limit: PathType, gpu: int) -> list[int]:
        """NICs to try for one GPU (or all: -1): their own devices, then all others by type up to
        `limit`.
        """
        key = (limit, gpu)
        if key not in self.net_order:
            gpus = range(self.n) if gpu < 0 else [gpu]
            found: dict[int, None] = {}
            if self.system.hosts > 1:
                devices = [self._devices(g) for g in gpus]
                for c in range(max((len(d) for d in devices), default=0)):
                    found |= {d[c]: None for d in devices if c < len(d)}
            else:
                for g in gpus:
                    found |= dict.fromkeys(self._devices(g))
            for kind in PathType:
                if kind > limit:
                    break
                for g in gpus:
                    row = self.paths.gpu_net[g]
                    found |= {n: None for n, p in enumerate(row) if p.type == kind}
            self.net_order[key] = list(found)
        return self.net_order[key]

    def _devices(self, gpu: int) -> list[int]:
        nets: list[int] = []
        for channel in range(max_channels(self.version)):
            net = local_net(self.system, self.paths, gpu, channel)
            if net < 0 or (nets and net == nets[0]):
                break
            nets.append(net)
        return nets
