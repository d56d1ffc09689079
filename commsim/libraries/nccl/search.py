"""NCCL's graph search: the channels of one NCCL node for one pattern.

`search` walks NCCL's ladder of relaxations (section 2.3 of docs/nccl.md), duplicates channels and
tries to raise bandwidth (2.4). Bandwidths in here are 1/1000 GB/s.
"""

from __future__ import annotations

from dataclasses import replace

from commsim.libraries.nccl.attempt import BUDGET, BUDGET_SAME, CUT, Attempt, deep
from commsim.libraries.nccl.ceiling import Ceiling
from commsim.libraries.nccl.graph import Graph, PathType, Pattern
from commsim.libraries.nccl.machine import TREES, Found, Machine
from commsim.libraries.nccl.settings import Version

_CROSSABLE = (Pattern.RING, Pattern.BALANCED_TREE, Pattern.SPLIT_TREE)
_OPEN, _REFUNDED, _FOUND = range(3)  # rest of a budget kept; given back; and a graph known by then
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
        self.best = Found(
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
        self.open: dict[tuple[object, ...], Found] = {}  # those of which it is not known
        self.bill: list[tuple[int, tuple[object, ...], int]] = []  # budget, which, state
        self.doubtful = False
        self.ceiling = Ceiling(m)

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

    def attempt(self, goal: Found) -> int:
        """Searches and keeps what is better; returns the budget left (-1: nothing can be better,
        `CUT`: not known).

        Two kinds of walk are left out. A type limit that admits no further path only repeats an
        earlier walk. And where the capacity of the links leaves no hope of anything better, only
        the budget that NCCL would have burnt is of interest; it is found out later, if it ever
        matters (`_affordable`).
        """
        budget = BUDGET_SAME if goal.same else BUDGET
        intra = max((t for t in self.intra_types if t <= goal.type_intra), default=PathType.LOC)
        inter = max((t for t in self.inter_types if t <= goal.type_inter), default=PathType.LOC)
        key = (goal.pattern, goal.same, goal.cross, goal.bw_intra, goal.bw_inter, intra, inter)
        self.bill.append((budget, key, _OPEN))
        if key in self.walked:
            return self.walked[key]
        if self.ceiling.hopeless(goal, self.best):
            self.walked[key] = CUT
            self.open[key] = goal
            return CUT
        if self.doubtful and self.best.channels and not self.affordable(exactly=True):
            return _BROKE
        search = Attempt(self.m, goal, self.best, budget, self.ceiling)
        self.best = search.run()
        self.walked[key] = search.time
        if search.time == CUT:
            self.open[key] = goal
        return search.time

    def affordable(self, exactly: bool) -> bool:
        """Whether the budget over all searches still lasts. Not exactly: True where it may or may
        not.
        """
        pessimist = optimist = 5 << 16 if self.m.version <= (2, 18) else 1 << 19
        bill = self.bill[:-1] if exactly else self.bill
        for budget, key, state in bill:
            time = self.walked[key]
            if exactly and time == CUT:
                goal = self.open.pop(key)
                search = Attempt(self.m, goal, self.best, budget)
                search.run()
                time = self.walked[key] = search.time
            pessimist -= budget
            optimist -= budget
            if state != _OPEN:
                pessimist += max(time, 0)
                optimist += budget if time == CUT else max(time, 0)
                if optimist < 0 and state == _FOUND:
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
            self.bill[-1] = (budget, key, _FOUND if best.channels else _REFUNDED)
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
        if old and self.best.pattern not in TREES:
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
            search = Attempt(
                m,
                goal,
                best,
                BUDGET_SAME if goal.same else BUDGET,
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
    """The best graph of this pattern with `low` to `high` channels; None where NVLS or CollNet
    finds none.
    """
    if pattern == Pattern.NVLS and (machine.system.nvswitch < 0 or machine.capability < 90):
        return None
    if pattern == Pattern.COLLNET_DIRECT and machine.version < (2, 23):
        pattern = Pattern.TREE
    ladder = _Ladder(machine, pattern, low, high, collnet)
    with deep(4 * (ladder.best.max_channels + 1) * (machine.n + 4) + 1000):
        ladder.climb()
        if machine.version >= (2, 19):
            ladder.duplicate()
        ladder.raise_speed()
        if machine.version < (2, 19):
            ladder.duplicate()
    return ladder.result()
