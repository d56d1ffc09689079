"""What a graph search can find at most, so that hopeless searches need not be walked."""

from __future__ import annotations

from commsim.libraries.nccl.graph import PathType, Pattern
from commsim.libraries.nccl.machine import Found, Machine
from commsim.libraries.nccl.paths import Path, local
from commsim.libraries.nccl.system import CPU, PCI


class Ceiling:
    """An upper bound on what a search can find, from the capacity of NICs and GPU links."""

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
        self.doors = [  # by which a NIC's data enters a GPU
            [
                k.bandwidth
                for k in system.vertices[g.device].links
                if system.vertices[k.target].kind in (CPU, PCI)
            ]
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
        """Sets of GPUs that every channel must leave: the links out of each, and whether NICs lie
        outside.

        The sets are the islands that NVLink joins and, where no NVLink leads out of it, what hangs
        on one CPU.
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

    def channels(self, goal: Found) -> int:
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
            doors = [b for each in self.doors for b in each]
            most = min(most, fit, sum(_times(b, goal.bw_inter) for b in doors))
        if m.n > 1:
            steps = m.n if goal.pattern == Pattern.RING and not m.inter else m.n - 1
            room = self.inside if goal.type_intra <= PathType.NVB else self.around
            most = min(most, _times(sum(room), steps * goal.bw_intra))
            for links, nics_outside in self.cuts:
                ways = sum(_times(b, goal.bw_intra) for b in links)
                out = goal.pattern == Pattern.RING and (nics_outside or not m.inter)
                most = min(most, ways if out else 2 * ways)
        return int(most)

    def hopeless(self, goal: Found, best: Found) -> bool:
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
