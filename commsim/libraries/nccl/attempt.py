"""One backtracking search of NCCL for fixed speed, type limits and pattern (section 2.5 of
docs/nccl.md).

The visiting order and the budget of visits are NCCL's: on irregular machines they decide the
outcome. Bandwidths are 1/1000 GB/s.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from commsim.libraries.nccl.ceiling import Ceiling
from commsim.libraries.nccl.graph import PathType, Pattern
from commsim.libraries.nccl.machine import TREES, Found, Machine
from commsim.libraries.nccl.paths import Path, local_gpus
from commsim.libraries.nccl.system import GPU, NET

BUDGET, BUDGET_SAME = 1 << 14, 1 << 8  # visits, the latter where all channels are alike
_BUDGET_FIRST = 1 << 10
CUT = -2  # a search that ended early, its use of the budget unknown


Charges = tuple[tuple[int, float], ...]
Hop = tuple[Charges, int]
TOO_FAR: Hop = ((), -1)


class Attempt:
    """One backtracking search with fixed speed, types, pattern and crossing; improves `best`."""

    def __init__(
        self,
        machine: Machine,
        goal: Found,
        best: Found,
        budget: int,
        ceiling: Ceiling | None = None,
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
        pattern = goal.pattern
        # What a hop takes from each link and its hops, where it is allowed; filled as they are met.
        self.edges: list[list[Hop | None]] = [[None] * self.n for _ in range(self.n)]
        self.entries: dict[tuple[int, int], Hop] = {}  # from a NIC to a GPU
        self.exits: dict[tuple[int, int], Hop] = {}  # from a GPU to a NIC
        self.doors: dict[int, list[tuple[int, Charges]]] = {}  # of a NIC: GPUs, nearest first
        self.out_bandwidth = self.bw_inter
        if pattern == Pattern.BALANCED_TREE:
            self.out_bandwidth /= 2
        self.tree = pattern in TREES
        self.back_net = -1
        self.back_first = -1
        if machine.inter:
            self.back_net = (
                self.n - 1 if pattern == Pattern.RING else 1 if pattern == Pattern.SPLIT_TREE else 0
            )
        elif pattern == Pattern.RING:
            self.back_first = self.n - 1

    # Paths

    def take(self, charges: Charges) -> bool:
        """Takes a hop's charges off the links; False (and nothing taken) where one lacks room."""
        left = self.left
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

    def give(self, charges: Charges) -> None:
        left = self.left
        if self.m.exact:
            for index, amount in charges:
                left[index] += amount
        else:
            for index, amount in charges:
                left[index] = _rounded(left[index] + amount)

    def charges(self, path: Path, start: int, bandwidth: float) -> Charges:
        key = (id(path), bandwidth)
        charges = self.kept.get(key)
        if charges is None:
            charges = self.kept[key] = self.m.charges(path, start, bandwidth)
        return charges

    def hop(self, path: Path, reverse: Path, start: int, bandwidth: float, limit: PathType) -> Hop:
        """What a path takes from each link, and its hops; TOO_FAR beyond the type limit."""
        if path.type >= PathType.DIS or path.type > limit:
            return TOO_FAR
        if self.tree and reverse.type > limit:
            return TOO_FAR
        return self.charges(path, start, bandwidth), path.hops

    def edge(self, a: int, b: int) -> Hop:
        """From GPU to GPU."""
        found = self.edges[a][b]
        if found is None:
            rows, goal = self.m.paths.gpu_gpu, self.goal
            found = self.hop(rows[a][b], rows[b][a], GPU, goal.bw_intra, goal.type_intra)
            self.edges[a][b] = found
        return found

    def into(self, net: int, gpu: int) -> Hop:
        """From a NIC to a GPU."""
        found = self.entries.get((net, gpu))
        if found is None:
            paths, limit = self.m.paths, self.goal.type_inter
            there, back = paths.net_gpu[net][gpu], paths.gpu_net[gpu][net]
            found = self.entries[net, gpu] = self.hop(there, back, NET, self.bw_inter, limit)
        return found

    def out(self, gpu: int, net: int) -> Hop:
        """From a GPU to a NIC."""
        found = self.exits.get((gpu, net))
        if found is None:
            paths, limit = self.m.paths, self.goal.type_inter
            there, back = paths.gpu_net[gpu][net], paths.net_gpu[net][gpu]
            found = self.exits[gpu, net] = self.hop(there, back, GPU, self.out_bandwidth, limit)
        return found

    # Search

    def run(self) -> Found:
        self.start()
        return self.best

    @property
    def cut(self) -> bool:
        """Whether the walk ended early because nothing better can exist."""
        return self.time == CUT

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
        """Starts a channel of a single node at this GPU. forced: 0 free, 1 order 0, 1, 2, ..., 2
        replay.
        """
        used = self.used[-1]
        used[gpu] = True
        self.at(gpu, 0, self.back_net, self.back_first, forced)
        used[gpu] = False

    def enter_from(self, net: int, gpu: int, forced: int) -> None:
        charges, hops = self.into(net, gpu)
        if hops < 0 or not self.take(charges):
            return
        self.hops += hops
        used = self.used[-1]
        used[gpu] = True
        self.at(gpu, 0, self.back_net, self.back_first, forced)
        used[gpu] = False
        self.give(charges)
        self.hops -= hops

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
            if (heads and found) or (c and self.time <= 0):
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
            shared = machine.same_port[n]
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
        machine, left = self.m, self.left
        if self.channels == 0 and machine.system.nvswitch < 0:
            saved, self.time = self.time, _BUDGET_FIRST
            self.enter_from(n, 0, 1)
            self.time = self.time if self.time in (-1, CUT) else saved
        doors = self.doors.get(n)
        if doors is None:
            closest = machine.paths.closest_gpu[n]
            others = [g for g in local_gpus(machine.paths, n) if g != closest]
            gpus = [*([closest] if closest >= 0 else []), *others]
            doors = self.doors[n] = [(g, charges) for g in gpus if (charges := self.into(n, g)[0])]
        for gpu, charges in doors:
            for index, amount in charges:  # most are full: this saves the call
                if left[index] < amount:
                    break
            else:
                self.enter_from(n, gpu, 0)

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
            used = self.used[c]
            for g in following:
                charges, hops = self.edge(gpu, g)
                if hops < 0 or not self.take(charges):
                    continue
                self.hops += hops
                used[g] = True
                self.at(g, step + 1, back_net, back_first, forced)
                used[g] = False
                self.give(charges)
                self.hops -= hops
                if self.time <= 0:
                    return
        elif step == back_first:
            charges, hops = self.edge(gpu, order[0])
            if hops >= 0 and self.take(charges):
                self.hops += hops
                self.complete()
                self.give(charges)
                self.hops -= hops
        else:
            self.complete()

    def to_net(self, gpu: int, step: int, back_first: int, forced: int) -> None:
        """Leaves by every NIC that may follow the one of entry."""
        machine, goal, c = self.m, self.goal, self.channels
        entry = self.entry[c]
        nets = machine.candidates(goal.type_inter, gpu)
        if goal.pattern == Pattern.TREE:
            nets = [n for n in nets if n == entry]
        elif goal.pattern == Pattern.RING and goal.cross == 2:
            if c & 1:
                nets = [n for n in nets if n == self.entry[c - 1]]
        elif goal.cross == 0:
            nets = [n for n in nets if n in machine.same_port[entry]]
        again = -1
        if goal.pattern == Pattern.BALANCED_TREE:
            if step == 0:
                again = 1
            else:
                nets = [n for n in nets if n == self.exit[c]]
        for n in nets:
            charges, hops = self.out(gpu, n)
            if hops < 0 or not self.take(charges):
                continue
            self.hops += hops
            self.exit[c] = n
            self.at(gpu, step, again, back_first, forced)
            self.give(charges)
            self.hops -= hops
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
        """Head and others exchange their shares; from three GPUs on at any distance."""
        rows, goal, n = self.m.paths.gpu_gpu, self.goal, self.n
        others = [g for g in range(n) if g != head]
        share = goal.bw_intra / max(1, n - 1)
        limit = PathType.NET if n > 2 else goal.type_intra
        done: list[Charges] = []
        for path in [rows[head][g] for g in others] + [rows[g][head] for g in others]:
            charges, hops = self.hop(path, path, GPU, share, limit)
            if hops < 0 or not self.take(charges):
                break
            done.append(charges)
        else:
            self.orders[self.channels][1:] = others
            self.complete()
        for charges in reversed(done):
            self.give(charges)

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
                self.time = CUT
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
def deep(depth: int) -> Iterator[None]:
    """Room for a recursion of this depth (channel after channel, each as deep as it has GPUs)."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, depth))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)
