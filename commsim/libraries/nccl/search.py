"""NCCL's graph search: the channels of one NCCL node for one pattern.

`search` walks NCCL's ladder of relaxations (section 2.3 of docs/nccl.md), duplicates channels and tries
to raise bandwidth (2.4); `_Attempt` is one backtracking search for a fixed speed, type limit and
pattern (2.5), with NCCL's visiting order and budgets, which decide the outcome on irregular machines.
Bandwidths in here are 1/1000 GB/s.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from commsim.libraries.nccl.graph import Graph, PathType, Pattern
from commsim.libraries.nccl.paths import Path, Paths, local, local_gpus, local_net
from commsim.libraries.nccl.settings import Settings, Version, max_channels
from commsim.libraries.nccl.system import GPU, LOCAL_BW, NET, NVS, System

_TREES = (Pattern.BALANCED_TREE, Pattern.SPLIT_TREE, Pattern.TREE)
_CROSSABLE = (Pattern.RING, Pattern.BALANCED_TREE, Pattern.SPLIT_TREE)
_BUDGET, _BUDGET_SAME, _BUDGET_FIRST = 1 << 14, 1 << 8, 1 << 10
_CUT = -2  # a search that ended early, its use of the budget unknown
_BROKE = -3  # a search that the budget over all searches no longer allows

_INTRA = (40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3)
_INTER = (48, 30, 28, 24, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3, 2.4, 1.2, 0.24, 0.12)
_TAIL_90 = (20, 17.5, 15, 12, 6, 3, 2.4, 1.2, 0.24, 0.12)
_TAIL_100 = (48, 45.1, 42, 40, 30, 24, 22, *_TAIL_90)


def speeds(capability: int, version: Version, inter: bool) -> tuple[float, ...]:
    """Speeds that a channel may have, GB/s, fastest first."""
    if capability >= 100 and version >= (2, 25):
        if version <= (2, 26):
            return _speeds_90(version, True) if inter else (90, 80, 70, 60, 50, 40, 30, 24, 20, 19)
        if version <= (2, 28):
            intra: tuple[float, ...] = (90, 80, 70, 60, 50, 40, 30, 24, 20, 19, 18)
            return (96, *_TAIL_100) if inter else intra
        if inter:
            return (96, 86, 80, *_TAIL_100) if version >= (2, 30) else (96, 80, *_TAIL_100)
        return (90, 80, 70, 60, 50, 45, 40, 30, 24, 20, 19, 18)
    if capability >= 90:
        return _speeds_90(version, inter)
    return _INTER if inter else _INTRA


def _speeds_90(version: Version, inter: bool) -> tuple[float, ...]:
    if inter:
        return (48, 45, 42, 40, 30, 24, *((22,) if version >= (2, 19) else ()), *_TAIL_90)
    if version <= (2, 18):
        return (60, 40, 30, 24, 20, 15, 12, 6, 3)
    return (60, 50, 40, 30, 24, 20, 15, 12, *((11,) if version >= (2, 21) else ()), 6, 3)


@dataclass(frozen=True, slots=True)
class _Found:
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
    """What all searches on one NCCL node share: its system, paths and the orders in which to try."""

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
        """What one NVLS channel takes from each link, and its hops; nothing where a path is too far."""
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
        """(GPU, bandwidth, hops) of every other GPU that can be reached, in NCCL's order of preference."""
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
        """NICs to try for one GPU (or all: -1): their own devices, then all others by type up to `limit`."""
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


class _Ceiling:
    """An upper bound on what a search can find, from the capacity of NICs and of the GPUs' links."""

    def __init__(self, machine: Machine) -> None:
        self.m = machine
        system, paths = machine.system, machine.paths
        self.inside = [
            sum(k.bandwidth for k in system.vertices[g.device].links if k.kind == PathType.NVL)
            for g in system.gpus
        ]
        self.around = [
            sum(k.bandwidth for k in system.vertices[g.device].links if k.kind != PathType.LOC)
            for g in system.gpus
        ]
        self.shared: dict[tuple[str, int], float] = {}
        self.cards: dict[int, list[float]] = {}
        self.uplink: dict[int, float] = {}
        for net in system.nets:
            key = (net.adapter, net.port)
            self.shared[key] = max(self.shared.get(key, 0.0), net.speed)
            for link in system.vertices[net.vertex].links:
                self.cards.setdefault(link.target, []).append(link.bandwidth)
        for card in self.cards:
            links = system.vertices[card].links
            self.uplink[card] = sum(k.bandwidth for k in links if k.kind != PathType.NET)
        far = 1 << 30

        def least(rows: list[list[Path]]) -> int:
            return min((p.hops for row in rows for p in row if p.links), default=far)

        self.cuts = self._cuts()
        self.enter, self.leave = least(paths.net_gpu), least(paths.gpu_net)
        self.step = least(paths.gpu_gpu) if machine.n > 1 else 0

    def _cuts(self) -> list[tuple[list[float], bool]]:
        """Sets of GPUs that every channel must leave: the links out of each, and whether NICs lie outside.

        The sets are the islands that NVLink joins and, where no NVLink leads out of it, what hangs on one CPU.
        """
        m = self.m
        system, rows, everyone = m.system, m.paths.gpu_gpu, range(m.n)
        island = list(everyone)
        for g in everyone:
            for p in everyone:
                if rows[g][p].type <= PathType.NVB and island[g] != island[p]:
                    old, new = max(island[g], island[p]), min(island[g], island[p])
                    island = [new if i == old else i for i in island]
        cuts: list[tuple[list[float], bool]] = []
        if len(set(island)) < 2:
            return cuts
        for each in set(island):
            devices = [
                system.vertices[system.gpus[g].device] for g in everyone if island[g] == each
            ]
            links = [k for v in devices for k in v.links]
            inside = (PathType.NVL, PathType.LOC)
            cuts.append(([k.bandwidth for k in links if k.kind not in inside], True))
        homes = [next(iter(local(row)), -1) for row in m.paths.gpu_cpu]
        for cpu in set(homes):
            members = {island[g] for g in everyone if homes[g] == cpu}
            others = {island[g] for g in everyone if homes[g] != cpu}
            if cpu >= 0 and others and not members & others:
                links = system.vertices[system.cpus[cpu]].links
                cuts.append(([k.bandwidth for k in links if k.kind == PathType.SYS], False))
        return cuts

    def channels(self, goal: _Found) -> int:
        """At most so many channels fit."""
        m, most = self.m, float(goal.max_channels)
        if m.inter:
            whole = int(goal.bw_inter // 1000)
            if whole:
                most = min(most, sum(s // whole for s in self.shared.values()))
            fit = 0.0
            for card, ports in self.cards.items():
                ways = sum(_times(b, goal.bw_inter) for b in ports)
                fit += min(ways, _times(self.uplink[card], goal.bw_inter))
            most = min(most, fit)
        if m.n > 1:
            steps = m.n if goal.pattern == Pattern.RING and not m.inter else m.n - 1
            room = self.inside if goal.type_intra <= PathType.NVB else self.around
            most = min(most, _times(sum(room), steps * goal.bw_intra))
            for links, nics_outside in self.cuts:
                ways = sum(_times(b, goal.bw_intra) for b in links)
                out = goal.pattern == Pattern.RING and (nics_outside or not m.inter)
                most = min(most, ways if out else 2 * ways)
        return int(most)

    def hopeless(self, goal: _Found, best: _Found) -> bool:
        """Whether no search for this goal can beat `best`."""
        if goal.pattern in (Pattern.NVLS, Pattern.COLLNET_DIRECT):
            return False
        count = self.channels(goal)
        if count < max(1, goal.min_channels):
            return True
        if best.channels == 0:
            return False
        old = best.channels * best.bw_intra
        if self.m.version <= (2, 18):
            old *= 1 - (best.cross - goal.cross) * 0.15
        if count * goal.bw_intra != old:
            return count * goal.bw_intra < old
        if goal.pattern != best.pattern or goal.cross != best.cross:
            return True
        each = self.step * (self.m.n - 1)
        if self.m.inter:
            twice = goal.pattern == Pattern.BALANCED_TREE
            each += self.enter + self.leave * (2 if twice else 1)
        elif goal.pattern == Pattern.RING:
            each += self.step
        return goal.hops + count * each >= best.hops


def _times(capacity: float, amount: float) -> int:
    return int(capacity / amount + 1e-9)


class _Attempt:
    """One backtracking search with fixed speed, types, pattern and crossing; improves `best`."""

    def __init__(
        self,
        machine: Machine,
        goal: _Found,
        best: _Found,
        budget: int,
        ceiling: _Ceiling | None = None,
    ) -> None:
        self.m, self.goal, self.best, self.time = machine, goal, best, budget
        self.ceiling = ceiling
        self.n = machine.n
        self.left = machine.remaining
        self.speed = [n.speed for n in machine.system.nets]
        self.channels = 0
        self.hops: float = goal.hops
        self.bw_inter = goal.bw_inter
        self.latency = goal.latency
        self.orders: list[list[int]] = []
        self.used: list[list[bool]] = []
        self.entry: list[int] = []
        self.exit: list[int] = []
        self.kept = machine.kept
        self.edges: list[list[tuple[tuple[tuple[int, float], ...], int] | None]] = [
            [None] * self.n for _ in range(self.n)
        ]
        pattern = goal.pattern
        self.tree = pattern in _TREES
        self.back_net = -1
        self.back_first = -1
        if machine.inter:
            self.back_net = (
                self.n - 1 if pattern == Pattern.RING else 1 if pattern == Pattern.SPLIT_TREE else 0
            )
        elif pattern == Pattern.RING:
            self.back_first = self.n - 1

    # Paths

    def take(
        self, path: Path, reverse: Path | None, start: int, bandwidth: float, limit: PathType
    ) -> bool:
        """Consumes a path; False (and nothing taken) where a link or the type limit forbids it."""
        if path.type >= PathType.DIS or path.type > limit:
            return False
        if self.tree and reverse is not None and reverse.type > limit:
            return False
        left = self.left
        charges = self.charges(path, start, bandwidth)
        for index, amount in charges:
            if left[index] < amount:
                return False
        if self.m.exact:
            for index, amount in charges:
                left[index] -= amount
        else:
            for index, amount in charges:
                left[index] = _rounded(left[index] - amount)
        return True

    def give(self, path: Path, start: int, bandwidth: float) -> None:
        left = self.left
        for index, amount in self.charges(path, start, bandwidth):
            left[index] = left[index] + amount if self.m.exact else _rounded(left[index] + amount)

    def charges(self, path: Path, start: int, bandwidth: float) -> tuple[tuple[int, float], ...]:
        key = (id(path), bandwidth)
        charges = self.kept.get(key)
        if charges is None:
            charges = self.kept[key] = self.m.charges(path, start, bandwidth)
        return charges

    def edge(self, a: int, b: int) -> tuple[tuple[tuple[int, float], ...], int]:
        """What a hop from GPU a to GPU b takes from each link, and its hops; -1 where it is too far."""
        rows, limit = self.m.paths.gpu_gpu, self.goal.type_intra
        path = rows[a][b]
        far = path.type >= PathType.DIS or path.type > limit
        if far or (self.tree and rows[b][a].type > limit):
            return (), -1
        return self.charges(path, GPU, self.goal.bw_intra), path.hops

    # Search

    def run(self) -> _Found:
        self.start()
        return self.best

    @property
    def cut(self) -> bool:
        """Whether the walk ended early because nothing better can exist."""
        return self.time == _CUT

    def start(self) -> None:
        if self.m.inter:
            self.from_nets()
        else:
            self.from_gpus()

    def open(self) -> None:
        self.orders.append([-1] * self.n)
        self.used.append([False] * self.n)
        self.entry.append(-1)
        self.exit.append(-1)

    def close(self) -> None:
        self.orders.pop()
        self.used.pop()
        self.entry.pop()
        self.exit.pop()

    def from_gpus(self) -> None:
        c = self.channels
        self.open()
        if self.goal.pattern == Pattern.NVLS:
            self.enter(c, 0)
        else:
            if c == 0:
                self.enter(0, 1)
            else:
                self.enter(self.orders[c - 1][0], 2)
            if not self.goal.same or c == 0:
                for g in range(self.n):
                    self.enter(g, 0)
        self.close()

    def enter(self, gpu: int, forced: int) -> None:
        """Starts a channel of a single node at this GPU. forced: 0 free, 1 order 0, 1, 2, ..., 2 replay."""
        used = self.used[-1]
        used[gpu] = True
        self.at(gpu, 0, self.back_net, self.back_first, forced)
        used[gpu] = False

    def enter_from(self, net: int, gpu: int, forced: int) -> None:
        paths, goal = self.m.paths, self.goal
        path = paths.net_gpu[net][gpu]
        if not self.take(path, paths.gpu_net[gpu][net], NET, self.bw_inter, goal.type_inter):
            return
        self.hops += path.hops
        used = self.used[-1]
        used[gpu] = True
        self.at(gpu, 0, self.back_net, self.back_first, forced)
        used[gpu] = False
        self.give(path, NET, self.bw_inter)
        self.hops -= path.hops

    def from_nets(self) -> None:
        machine, goal = self.m, self.goal
        nets = machine.system.nets
        bandwidth = int(self.bw_inter // 1000)
        candidates = machine.candidates(goal.type_inter, -1)
        count = len(candidates)
        c = self.channels
        heads = goal.pattern in (Pattern.NVLS, Pattern.COLLNET_DIRECT)
        found = False
        offset = c if machine.version >= (2, 21) else 0
        self.open()
        for i in range(count):
            if heads and found:
                break
            n = candidates[(offset + i) % count]
            net = nets[n]
            if goal.collnet and not net.collnet:
                continue
            if self.speed[n] < bandwidth:
                continue
            if goal.pattern == Pattern.RING and goal.cross == 2 and c & 1 and n != self.exit[c - 1]:
                continue
            self.entry[c] = n
            self.latency = net.latency
            shared = [
                k
                for k, other in enumerate(nets)
                if other.adapter == net.adapter and other.port == net.port
            ]
            for k in shared:
                self.speed[k] -= bandwidth
            if heads:
                gpu = machine.paths.closest_gpu[n]
                if c < count and gpu >= 0 and all(o[0] != gpu for o in self.orders[:c]):
                    self.enter_from(n, gpu, 0)
                    found = True
            elif c > 0 and goal.same:
                self.enter_from(n, self.orders[c - 1][0], 2)
            else:
                self.from_net(n)
            for k in shared:
                self.speed[k] += bandwidth
        self.close()

    def from_net(self, n: int) -> None:
        machine = self.m
        if self.channels == 0 and machine.system.nvswitch < 0:
            saved, self.time = self.time, _BUDGET_FIRST
            self.enter_from(n, 0, 1)
            self.time = self.time if self.time in (-1, _CUT) else saved
        closest = machine.paths.closest_gpu[n]
        if closest >= 0:
            self.enter_from(n, closest, 0)
        for g in local_gpus(machine.paths, n):
            if g != closest:
                self.enter_from(n, g, 0)

    def at(self, gpu: int, step: int, back_net: int, back_first: int, forced: int) -> None:
        """One visit: `gpu` is the step-th of the channel; go on from it in every allowed way."""
        if self.time <= 0:
            return
        self.time -= 1
        n, c, goal = self.n, self.channels, self.goal
        order = self.orders[c]
        order[step] = gpu
        if step == back_net:
            self.to_net(gpu, step, back_first, forced)
        elif goal.pattern == Pattern.NVLS:
            self.nvls(gpu)
        elif goal.pattern == Pattern.COLLNET_DIRECT:
            self.collnet_direct(gpu)
        elif step < n - 1:
            if forced == 1:
                following = [step + 1]
            elif forced == 2:
                following = [self.orders[c - 1][step + 1]]
            else:
                following = self.following(gpu, step, back_net)
            row = self.edges[gpu]
            used, left, exact = self.used[c], self.left, self.m.exact
            for g in following:
                edge = row[g]
                if edge is None:
                    edge = row[g] = self.edge(gpu, g)
                charges, hops = edge
                for index, amount in charges:
                    if left[index] < amount:
                        break
                else:
                    if hops < 0:
                        continue
                    for index, amount in charges:
                        left[index] -= amount
                        if not exact:
                            left[index] = _rounded(left[index])
                    self.hops += hops
                    used[g] = True
                    self.at(g, step + 1, back_net, back_first, forced)
                    used[g] = False
                    for index, amount in charges:
                        left[index] += amount
                        if not exact:
                            left[index] = _rounded(left[index])
                    self.hops -= hops
                    if self.time <= 0:
                        return
        elif step == back_first:
            first = order[0]
            path = self.m.paths.gpu_gpu[gpu][first]
            reverse = self.m.paths.gpu_gpu[first][gpu]
            if self.take(path, reverse, GPU, goal.bw_intra, goal.type_intra):
                self.hops += path.hops
                self.complete()
                self.give(path, GPU, goal.bw_intra)
                self.hops -= path.hops
        else:
            self.complete()

    def to_net(self, gpu: int, step: int, back_first: int, forced: int) -> None:
        machine, goal, c = self.m, self.goal, self.channels
        nets = machine.system.nets
        entry = self.entry[c]
        start = nets[entry]
        balanced = goal.pattern == Pattern.BALANCED_TREE
        for n in machine.candidates(goal.type_inter, gpu):
            net = nets[n]
            if goal.pattern == Pattern.TREE and n != entry:
                continue
            if goal.pattern == Pattern.RING and goal.cross == 2:
                if c & 1 and n != self.entry[c - 1]:
                    continue
            elif goal.cross == 0 and (net.adapter != start.adapter or net.port != start.port):
                continue
            again = -1
            bandwidth = self.bw_inter
            if balanced:
                if step == 0:
                    again = 1
                elif n != self.exit[c]:
                    continue
                bandwidth = bandwidth / 2
            path = machine.paths.gpu_net[gpu][n]
            reverse = machine.paths.net_gpu[n][gpu]
            if self.take(path, reverse, GPU, bandwidth, goal.type_inter):
                self.hops += path.hops
                self.exit[c] = n
                self.at(gpu, step, again, back_first, forced)
                self.give(path, GPU, bandwidth)
                self.hops -= path.hops
                if self.time <= 0:
                    return

    def following(self, gpu: int, step: int, back_net: int) -> list[int]:
        machine, c, n = self.m, self.channels, self.n
        used = self.used[c]
        switched = machine.system.nvswitch >= 0
        neighbours: list[int] = []
        if switched:
            before, after = (gpu - 1) % n, (gpu + 1) % n
            if self.goal.pattern == Pattern.RING:
                neighbours = [before, after] if before != after else [after]
            elif self.goal.pattern in (Pattern.SPLIT_TREE, Pattern.BALANCED_TREE):
                neighbours = [after, before] if before != after else [after]
            else:
                neighbours = [after]
            row = machine.paths.gpu_gpu[gpu]
            neighbours = [g for g in neighbours if not used[g] and g != gpu and row[g].links]
            if machine.version >= (2, 21):
                return neighbours
        net = self.entry[c] if back_net >= 0 else -1
        order = [each for each in machine.successors(gpu, net) if not used[each[0]]]
        if back_net >= 0 and back_net != step + 1 and len({each[1:] for each in order}) <= 1:
            order.reverse()
        following = [each[0] for each in order]
        if machine.zigzag and machine.inter:
            wanted = (gpu + (step + 1 if step % 2 == 0 else -step - 1)) % n
            following.sort(key=lambda g: g != wanted)
        if switched:
            following = [*neighbours, *(g for g in following if g not in neighbours)]
        return following

    def nvls(self, head: int) -> None:
        """Every GPU hears the switch once and speaks to it once, the head twice."""
        machine, left = self.m, self.left
        charges, hops = machine.multicast(head, self.goal.bw_intra, self.goal.type_intra)
        if not charges or any(left[index] < amount for index, amount in charges):
            return
        for index, amount in charges:
            left[index] = _rounded(left[index] - amount)
        self.hops += hops
        self.complete()
        self.hops -= hops
        for index, amount in charges:
            left[index] = _rounded(left[index] + amount)

    def collnet_direct(self, head: int) -> None:
        rows, goal, n = self.m.paths.gpu_gpu, self.goal, self.n
        others = [g for g in range(n) if g != head]
        share = goal.bw_intra / max(1, n - 1)
        limit = PathType.DIS if n > 2 else goal.type_intra
        done: list[Path] = []
        for path in [rows[head][g] for g in others] + [rows[g][head] for g in others]:
            if not self.take(path, None, GPU, share, limit):
                break
            done.append(path)
        else:
            self.orders[self.channels][1:] = others
            self.complete()
        for path in reversed(done):
            self.give(path, GPU, share)

    def complete(self) -> None:
        if self.time <= 0:
            return
        self.time -= 1
        goal = self.goal
        self.channels += 1
        if self.better():
            self.best = replace(
                goal,
                channels=self.channels,
                bw_inter=self.bw_inter,
                latency=self.latency,
                hops=int(self.hops),
                orders=tuple(map(tuple, self.orders)),
                nets=tuple(zip(self.entry, self.exit, strict=True)),
            )
            if self.channels == goal.max_channels:
                self.time = -1
            elif self.ceiling is not None and self.ceiling.hopeless(goal, self.best):
                self.time = _CUT
        if self.channels < goal.max_channels:
            self.start()
        self.channels -= 1

    def better(self) -> bool:
        goal, best, c = self.goal, self.best, self.channels
        if c < goal.min_channels:
            return False
        if goal.pattern == Pattern.NVLS:
            if best.channels < c <= self.n:
                return True
            if self.m.version <= (2, 18):
                return c * goal.bw_intra > best.channels * best.bw_intra
            return c * goal.bw_inter > best.channels * best.bw_inter
        new, old = c * goal.bw_intra, best.channels * best.bw_intra
        if self.m.version <= (2, 18):  # 15 % bonus where no channel changes NICs
            old *= 1 - (best.cross - goal.cross) * 0.15
        if new != old:
            return new > old
        return goal.pattern == best.pattern and goal.cross == best.cross and self.hops < best.hops


def _rounded(value: float) -> float:
    """To the nearest 1/1000 GB/s, halves away from zero."""
    return float(int(value + 0.5) if value >= 0 else -int(0.5 - value))


@contextmanager
def _deep(depth: int) -> Iterator[None]:
    """Room for a recursion of this depth (a channel after the other, each as deep as it has GPUs)."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, depth))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def _types(version: Version) -> list[PathType]:
    missing: set[PathType] = set()
    if version <= (2, 25):
        missing.add(PathType.C2C)
    if version <= (2, 26):
        missing.add(PathType.P2C)
    return [t for t in PathType if t not in missing]


class _Ladder:
    """The loop over relaxations for one graph."""

    def __init__(
        self, machine: Machine, pattern: Pattern, low: int, high: int, collnet: bool
    ) -> None:
        self.m = machine
        self.types = _types(machine.version)
        m, system, n = machine, machine.system, machine.n
        if pattern == Pattern.NVLS:
            arity = 8 if m.version <= (2, 20) else 32 if m.version >= (2, 25) else n
            high = min(arity, n)
            low = high if not m.inter else low
        elif pattern == Pattern.COLLNET_DIRECT:
            high = min(8, n)
        if n == 1 and pattern != Pattern.RING:
            pattern = Pattern.TREE
        if pattern == Pattern.RING and self.two_islands() and high >= 2 and low == 1:
            low = 2
        cross = m.settings.cross_nic
        crossable = m.inter and len(system.nets) > 1 and pattern in _CROSSABLE
        self.cross = cross if crossable else 0
        self.min_intra, self.max_intra, self.min_inter, self.max_inter = self.type_limits()
        self.try_same = pattern != Pattern.NVLS
        self.best = _Found(
            pattern,
            low,
            high,
            collnet,
            type_intra=self.min_intra,
            type_inter=self.min_inter,
            same=self.try_same,
            cross=1 if self.cross == 1 else 0,
        )
        self.speeds = [s * 1000 for s in speeds(m.capability, m.version, m.inter)]
        paths = m.paths
        inside = [paths.gpu_nvs, paths.nvs_gpu, *paths.gpu_gpu]
        self.intra_types = {p.type for row in inside for p in row}
        self.inter_types = {p.type for row in [*paths.gpu_net, *paths.net_gpu] for p in row}
        self.walked: dict[tuple[object, ...], int] = {}  # budget left by searches already made
        self.open: dict[tuple[object, ...], _Found] = {}  # those of which it is not known
        self.bill: list[tuple[int, tuple[object, ...], bool]] = []  # budget, which, refunded
        self.doubtful = False
        self.ceiling = _Ceiling(m)

    def two_islands(self) -> bool:
        if self.m.version < (2, 26):
            return False
        n, rows = self.m.n, self.m.paths.gpu_gpu
        island = list(range(n))
        for g in range(n):
            for p in range(g + 1, n):
                if rows[g][p].type == PathType.NVL:
                    island[p] = island[g]
        return sum(island.count(i) > 1 for i in set(island)) == 2

    def type_limits(self) -> tuple[PathType, PathType, PathType, PathType]:
        m = self.m
        if m.version <= (2, 24):
            near = PathType.NVL if m.n > 1 else PathType.LOC
            return near, PathType.SYS, PathType.PIX, PathType.SYS
        near, far = PathType.LOC, PathType.SYS
        between = [p.type for g, r in enumerate(m.paths.gpu_gpu) for i, p in enumerate(r) if i != g]
        if m.n > 1:
            near, far = min([*between, PathType.SYS]), max(between)
        near_net, far_net = PathType.PIX, PathType.SYS
        if m.inter and m.system.nets:
            outside = [p.type for row in m.paths.gpu_net for p in row]
            near_net, far_net = min([*outside, PathType.SYS]), max(outside)
            far = far_net
        return near, far, near_net, far_net

    def up(self, kind: PathType) -> PathType:
        return self.types[self.types.index(kind) + 1]

    def attempt(self, goal: _Found) -> int:
        """Searches and keeps what is better; returns the budget left (-1: nothing can be better, `_CUT`: not known).

        Two kinds of walk are left out. A type limit that admits no further path only repeats an earlier
        walk. And where the capacity of the links leaves no hope of anything better, only the budget that
        NCCL would have burnt is of interest; it is found out later, if it ever matters (`_affordable`).
        """
        budget = _BUDGET_SAME if goal.same else _BUDGET
        intra = max((t for t in self.intra_types if t <= goal.type_intra), default=PathType.LOC)
        inter = max((t for t in self.inter_types if t <= goal.type_inter), default=PathType.LOC)
        key = (goal.pattern, goal.same, goal.cross, goal.bw_intra, goal.bw_inter, intra, inter)
        self.bill.append((budget, key, False))
        if key in self.walked:
            return self.walked[key]
        if self.ceiling.hopeless(goal, self.best):
            self.walked[key] = _CUT
            self.open[key] = goal
            return _CUT
        if self.doubtful and not self.affordable(exactly=True):
            return _BROKE
        search = _Attempt(self.m, goal, self.best, budget, self.ceiling)
        self.best = search.run()
        self.walked[key] = search.time
        if search.time == _CUT:
            self.open[key] = goal
        return search.time

    def affordable(self, exactly: bool) -> bool:
        """Whether the budget over all searches still lasts. Not exactly: True where it may or may not."""
        pessimist = optimist = 5 << 16 if self.m.version <= (2, 18) else 1 << 19
        bill = self.bill[:-1] if exactly else self.bill
        for budget, key, refund in bill:
            time = self.walked[key]
            if exactly and time == _CUT:
                goal = self.open.pop(key)
                search = _Attempt(self.m, goal, self.best, budget)
                search.run()
                time = self.walked[key] = search.time
            pessimist -= budget
            optimist -= budget
            if refund:
                pessimist += max(time, 0)
                optimist += budget if time == _CUT else max(time, 0)
                if optimist < 0 and self.best.channels:
                    return False
        self.doubtful = pessimist < 0
        return True

    def climb(self) -> None:
        m = self.m
        amd = False
        cpu = m.system.vertices[m.system.cpus[0]].cpu
        if cpu is not None and m.version >= (2, 19):
            amd = cpu.arch == "x86_64" and cpu.vendor == "amd"
        total = m.total_bw
        if m.n > 1 and self.best.pattern != Pattern.RING:
            total = total * m.n / (m.n - 1)
        speeds = self.speeds
        last = len(speeds) - 1
        at = 0
        low = self.best.min_channels
        while at < last and (speeds[at] > m.max_bw or speeds[at] * low > total):
            at += 1
        goal = replace(self.best, bw_intra=speeds[at], bw_inter=speeds[at])
        while True:
            time = self.attempt(goal)
            best = self.best
            if time in (-1, _BROKE) or best.channels * best.bw_inter >= m.total_bw:
                return
            if goal.same and not (amd and goal.type_intra == PathType.SYS):
                goal = replace(goal, same=False)
                continue
            goal = replace(goal, same=self.try_same)
            budget, key, _ = self.bill[-1]
            self.bill[-1] = (budget, key, True)
            if not self.affordable(exactly=False):
                return
            if (m.capability >= 90 or m.zigzag) and goal.pattern == Pattern.BALANCED_TREE:
                goal = replace(goal, pattern=Pattern.TREE)
                continue
            goal = replace(goal, pattern=best.pattern)
            far = goal.type_inter if m.inter else self.max_intra
            if goal.type_intra < far and (not best.channels or goal.type_intra < best.type_intra):
                goal = replace(goal, type_intra=self.up(goal.type_intra))
                if goal.type_intra < PathType.DIS:
                    continue
            goal = replace(goal, type_intra=self.min_intra)
            if (
                m.inter
                and goal.type_inter < self.max_inter
                and (
                    not best.channels
                    or goal.type_inter < best.type_inter
                    or goal.type_inter < PathType.PXN
                )
            ):
                goal = replace(goal, type_inter=self.up(goal.type_inter))
                if goal.type_inter < PathType.DIS:
                    continue
            goal = replace(goal, type_inter=self.min_inter)
            if (
                self.cross == 2
                and goal.cross == 0
                and best.pattern in (Pattern.RING, Pattern.BALANCED_TREE)
            ):
                goal = replace(goal, cross=2 if m.version >= (2, 23) else 1)
                continue
            goal = replace(goal, cross=1 if self.cross == 1 else 0)
            if at < last and (not best.channels or speeds[at + 1] / best.bw_inter > 0.49):
                at += 1
                goal = replace(goal, bw_intra=speeds[at], bw_inter=speeds[at])
                continue
            return

    def duplicate(self) -> None:
        best, m = self.best, self.m
        if best.channels == 0 or best.pattern == Pattern.NVLS or best.bw_intra < 25_000:
            return
        if m.capability > 80 and best.bw_intra < 50_000 and best.channels > 4:
            return
        count = min(best.channels * 2, best.max_channels)
        times = -(-count // best.channels)
        extra = count - best.channels
        self.best = replace(
            best,
            channels=count,
            bw_intra=best.bw_intra / times,
            bw_inter=best.bw_inter / times,
            orders=best.orders + best.orders[:extra],
            nets=best.nets + best.nets[:extra],
        )

    def raise_speed(self) -> None:
        m, speeds = self.m, self.speeds
        old = m.version <= (2, 18)
        if old and self.best.pattern not in _TREES:
            return
        at = 0
        while at < len(speeds) - 1 and speeds[at] > self.best.bw_inter:
            at += 1
        goal = replace(
            self.best,
            bw_intra=speeds[at],
            bw_inter=speeds[at],
            min_channels=self.best.channels,
        )
        time = -1
        while at > 0:
            best = self.best
            if time != 0 and best.pattern == Pattern.RING:
                at -= 1
                goal = replace(goal, bw_intra=speeds[at], bw_inter=speeds[at])
            elif (
                best.pattern == Pattern.NVLS
                and goal.bw_inter == best.bw_inter
                and goal.bw_inter < 2 * goal.bw_intra
            ):
                at -= 1
                goal = replace(goal, bw_inter=speeds[at])
            elif goal.bw_intra == best.bw_intra and goal.bw_intra < 2 * goal.bw_inter:
                at -= 1
                goal = replace(goal, bw_intra=speeds[at])
            else:
                return
            if self.ceiling.hopeless(goal, best):
                return  # and so is any higher speed
            search = _Attempt(
                m,
                goal,
                best,
                _BUDGET_SAME if goal.same else _BUDGET,
                None if best.pattern == Pattern.RING else self.ceiling,
            )
            self.best = search.run()
            time = search.time

    def result(self) -> Graph | None:
        best, system = self.best, self.m.system
        if best.channels == 0:
            if best.collnet or best.pattern == Pattern.NVLS:
                return None
            best = replace(
                best,
                channels=1,
                bw_intra=100,
                bw_inter=100,
                type_intra=PathType.SYS,
                type_inter=PathType.SYS,
                orders=(tuple(range(self.m.n)),),
                nets=((0, 0),) if system.nets else (),
            )
        ranked = sorted(g.rank for g in system.gpus)
        place = [ranked.index(g.rank) for g in system.gpus]
        headed = best.pattern == Pattern.NVLS
        orders = tuple(
            (place[o[0]],) if headed else tuple(place[g] for g in o) for o in best.orders
        )
        nets: tuple[tuple[int, int], ...] = ()
        if self.m.inter and system.nets:
            nets = tuple((system.nets[a].nic, system.nets[b].nic) for a, b in best.nets)
        return Graph(
            pattern=best.pattern,
            channels=best.channels,
            bw_intra=best.bw_intra / 1000,
            bw_inter=best.bw_inter / 1000,
            type_intra=best.type_intra,
            type_inter=best.type_inter,
            same_channels=best.same,
            cross_nic=best.cross,
            latency_inter=best.latency if self.m.inter else 0.0,
            hops=best.hops,
            orders=orders,
            nets=nets,
        )


def search(
    machine: Machine, pattern: Pattern, low: int, high: int, collnet: bool = False
) -> Graph | None:
    """The best graph of this pattern with `low` to `high` channels; None where NVLS or CollNet finds none."""
    if pattern == Pattern.NVLS and (machine.system.nvswitch < 0 or machine.capability < 90):
        return None
    if pattern == Pattern.COLLNET_DIRECT and machine.version < (2, 23):
        pattern = Pattern.TREE
    ladder = _Ladder(machine, pattern, low, high, collnet)
    with _deep(4 * (ladder.best.max_channels + 1) * (machine.n + 4) + 1000):
        ladder.climb()
        if machine.version >= (2, 19):
            ladder.duplicate()
        ladder.raise_speed()
        if machine.version < (2, 19):
            ladder.duplicate()
    return ladder.result()
