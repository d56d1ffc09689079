"""A cluster as a network: the physical links of all its machines and of its fabric, and the ways
of a group's schedule over them.

A way goes as `commsim.topology.routing` says: NVLink or xGMI where it joins two GPUs, else PCIe
inside a machine, else the network from the NIC that the channel uses at one end to that at the
other. It is put together from legs: GPU to NIC (the same in every machine), switch to switch (the
same for all NICs on them), NIC to GPU. Latencies are those of the hardware; what software costs is
the caller's to add.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from commsim.collectives.chunks import Ints
from commsim.collectives.schedule import Schedule
from commsim.engine.cabling import Cabling, lay_cables
from commsim.engine.detours import find_detours
from commsim.engine.draft import Draft
from commsim.engine.group import Group
from commsim.engine.hashing import Words, mix
from commsim.engine.legs import distinct
from commsim.engine.machine_ways import MachineWays, machine_ways
from commsim.engine.network import Flags, Floats, Network, Ways, cable
from commsim.engine.shortest_ways import Toward, Web, meet, switch_web, whole_web
from commsim.errors import CollectiveError, UnknownNameError
from commsim.topology.cluster import Cluster
from commsim.topology.graph import nvswitch_vertex
from commsim.topology.routing import locate

ROUTINGS = ("adaptive", "ecmp")


@dataclass(frozen=True, kw_only=True, eq=False)
class ClusterNetwork(Network):
    """The links of a whole cluster and the ways of one group on it (ranks; None: every rank).

    Links have the same numbers whatever the group, so several groups can share them. routing:
    "adaptive" spreads what is sent evenly over all shortest ways through the fabric; "ecmp" picks
    one of them by a hash of seed, source rank, destination rank and channel, and one of several
    cables between two switches.

    A switch vertex that ranks of a single NVLink domain use is its NVSwitch; one that several
    domains use is the top of the fabric, the switches where their NICs meet (with ecmp one of them
    for each channel). Whether these can add is not asked.
    """

    cluster: Cluster
    ranks: tuple[int, ...] | None = None
    routing: str = "adaptive"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.routing not in ROUTINGS:
            raise UnknownNameError("routing", self.routing, ROUTINGS)
        for rank in self.ranks or ():
            locate(self.cluster, rank)  # raises where there is none

    # ---- links ----

    @cached_property
    def links(self) -> tuple[str, ...]:
        """Machine by machine, then the fabric's cables, each there and back."""
        cluster, names = self.cluster, list[str]()
        shared = None if cluster.node.nvswitch is None else cluster.node.nvswitch.name
        for host in range(cluster.nodes):
            at = {name: f"node{host}/{name}" for pair in self._machine.links for name in pair}
            if shared is not None:
                at[shared] = nvswitch_vertex(cluster, host)
            names += [f"{at[a]} -> {at[b]}" for a, b in self._machine.links]
        parallel = Counter(self._cabling.ends)
        told = Counter[tuple[str, str]]()
        for a, b in self._cabling.ends:
            told[a, b] += 1
            which = cable(told[a, b]) if parallel[a, b] > 1 else ""
            names += [f"{a} -> {b}{which}", f"{b} -> {a}{which}"]
        return tuple(names)

    @cached_property
    def capacity(self) -> Floats:
        """As data sheets say, no protocol in it; inf where a machine's source does not say."""
        inside = np.tile(self._machine.capacity, self.cluster.nodes)
        return np.concatenate([inside, self._cabling.capacity])

    @cached_property
    def over_network(self) -> Flags:
        """Which links are cables of the fabric."""
        return np.arange(len(self.capacity)) >= self._cabling.first

    @cached_property
    def between_switches(self) -> Flags:
        """Which links join two switches of the fabric."""
        cabling = self._cabling
        found = np.zeros(len(self.capacity), dtype=np.bool_)
        found[cabling.first :] = np.minimum(cabling.tail, cabling.head) >= cabling.nics
        return found

    @cached_property
    def by_machine(self) -> tuple[Ints, ...]:
        """Link numbers [machine, link]: inside it, from its NICs to the fabric, and back; -1: none.

        Equal places are images of each other: machines are alike.
        """
        hosts, inside = self.cluster.nodes, len(self._machine.links)
        cable = self._cabling.cable
        back = np.where(cable < 0, -1, cable ^ 1)
        return np.arange(hosts * inside).reshape(hosts, inside), cable, back

    @cached_property
    def _latency(self) -> Floats:
        inside = np.tile(self._machine.latency, self.cluster.nodes)
        return np.concatenate([inside, self._cabling.latency])

    @cached_property
    def _machine(self) -> MachineWays:
        return machine_ways(self.cluster.node)

    @cached_property
    def _cabling(self) -> Cabling:
        inside = self.cluster.nodes * len(self._machine.links)
        return lay_cables(self.cluster, inside, apart=self.routing == "ecmp")

    @cached_property
    def _switches(self) -> Web:
        return switch_web(self._cabling)

    @cached_property
    def _group(self) -> Group:
        every = range(self.cluster.n_ranks) if self.ranks is None else self.ranks
        return Group(
            cluster=self.cluster,
            rank=np.array(every, dtype=np.int64),
            machine=self._machine,
            cabling=self._cabling,
        )

    # ---- ways ----

    def ways(
        self, schedule: Schedule, source: Ints, destination: Ints, channel: Ints, reduces: Ints
    ) -> Ways:
        """One way for each entry; a rank crosses nothing to itself."""
        none = np.full_like(source, -1)
        return self.by_nics(schedule, source, destination, channel, (none, none))

    def by_nics(
        self,
        schedule: Schedule,
        source: Ints,
        destination: Ints,
        channel: Ints,
        nics: tuple[Ints, Ints],
    ) -> Ways:
        """The ways of entries which, where they go over the network, leave and enter machines by
        these NICs of theirs; -1: by the rank's own.
        """
        n = len(self._group.rank)
        if schedule.chunks.n != n:
            raise CollectiveError(
                f"{self.cluster.name}: the group has {n} ranks, its schedule {schedule.chunks.n}"
            )
        draft = Draft(len(source), self._machine.legs, len(self._machine.links), self._latency)
        ranks = (source < n) & (destination < n)
        apart = source != destination
        away, via = np.flatnonzero(ranks & apart), np.flatnonzero(~ranks & apart)
        ends = nics[0][away], nics[1][away]
        self._to_ranks(draft, away, source[away], destination[away], channel[away], ends)
        if len(via):
            self._to_switches(draft, via, source[via], destination[via], channel[via])
        return draft.ways(halved=~ranks)

    def _to_ranks(
        self,
        draft: Draft,
        way: Ints,
        source: Ints,
        target: Ints,
        channel: Ints,
        nics: tuple[Ints, Ints],
    ) -> None:
        """Over NVLink or PCIe where they join two ranks, else over the network."""
        group, machine = self._group, self._machine
        hosts = group.host[source], group.host[target]
        gpu_a, gpu_b = group.gpu[source], group.gpu[target]
        inside = np.where(hosts[0] == hosts[1], machine.inside[gpu_a, gpu_b], 0)
        switched = (inside == 0) & (group.domain[source] == group.domain[target])
        switched &= (machine.up[gpu_a] > 0) & (machine.up[gpu_b] > 0)
        first = np.where(switched, machine.up[gpu_a], inside)
        last = np.where(switched, machine.down[gpu_b], 0)
        draft.inside(way, first, last, hosts)
        far = np.flatnonzero((inside == 0) & ~switched)
        if len(far):
            ends = nics[0][far], nics[1][far]
            self._over_network(draft, way[far], source[far], target[far], channel[far], ends)

    def _over_network(
        self,
        draft: Draft,
        way: Ints,
        source: Ints,
        target: Ints,
        channel: Ints,
        nics: tuple[Ints, Ints],
    ) -> None:
        """From NIC to NIC: within one, or over the switches that they are on, or by others."""
        a = self._group.exits(source, channel, nics[0])
        b = self._group.exits(target, channel, nics[1])
        known = (a.host == b.host) & (a.nic == b.nic) & (a.out > 0)
        on = np.flatnonzero(a.joined & b.joined & ~known)
        goals, goal = distinct(b.leaf[on], self._switches.vertices)
        toward = Toward(self._switches, [(g,) for g in goals.tolist()])
        led = toward.distance[goal, a.leaf[on]] >= 0
        on, goal = on[led], goal[led]
        draft.cables(way[on], a.cable[on], b.cable[on] ^ 1)
        flow = self._flow(self._group.rank[source], self._group.rank[target], channel)
        self._through(draft, way[on], toward, a.leaf[on], goal, flow[on], None)
        known[on] = True
        yes, no = np.flatnonzero(known), np.flatnonzero(~known)
        draft.inside(way[yes], a.out[yes], b.into[yes], (a.host[yes], b.host[yes]))
        if len(no):
            self._by_detours(draft, way[no], source[no], target[no], channel[no], flow[no])

    def _by_detours(
        self, draft: Draft, way: Ints, source: Ints, target: Ints, channel: Ints, flow: Words
    ) -> None:
        """By other NICs, where a rank's own are cabled to other machines, or to nothing."""
        web = whole_web(self.cluster, self._machine, self._cabling)
        nic_a, nic_b, toward, goal = find_detours(self._group, web, source, target, channel)
        group, machine = self._group, self._machine
        hosts = group.host[source], group.host[target]
        out, into = machine.out[group.gpu[source], nic_a], machine.into[group.gpu[target], nic_b]
        draft.inside(way, out, into, hosts)
        at = hosts[0] * len(self.cluster.node.nics) + nic_a
        self._through(draft, way, toward, at, goal, flow, None)

    def _through(
        self,
        draft: Draft,
        way: Ints,
        toward: Toward,
        at: Ints,
        goal: Ints,
        flow: Words,
        back: Flags | None,
    ) -> None:
        """From vertices to goals, spread or picked by the flow's hash; where `back`, from there."""
        turned = np.zeros(len(way), dtype=np.bool_) if back is None else back
        if self.routing == "ecmp":
            links = toward.pick(at, goal, flow)
            draft.picked(way, np.where(turned[:, np.newaxis], links[:, ::-1] ^ 1, links))
            return
        states, which = distinct(
            goal * toward.vertices + at, len(toward.distance) * toward.vertices
        )
        legs = toward.spread(states % toward.vertices, states // toward.vertices)
        draft.spread(way, which, legs, turned)

    def _flow(self, *numbers: Ints) -> Words:
        """A hash of the seed and these numbers, entry by entry."""
        seed = np.full(len(numbers[0]), self.seed % 2**64, dtype=np.uint64)
        # Mixed first: seeds that differ in one bit must not only exchange neighbouring ranks.
        word = mix(np.zeros_like(seed), seed)
        for each in numbers:
            word = mix(word, each)
        return word

    # ---- switches of a schedule ----

    def _to_switches(
        self, draft: Draft, way: Ints, source: Ints, target: Ints, channel: Ints
    ) -> None:
        """Between a rank and a switch: an NVSwitch, or the top of the fabric."""
        n = len(self._group.rank)
        up = source < n
        rank, switch = np.where(up, source, target), np.where(up, target, source) - n
        if (rank >= n).any():
            raise CollectiveError(
                f"{self.cluster.name}: a schedule sends from switch to switch; no network has such "
                "a way, send by a rank"
            )
        domain = self._group.domain[rank]
        least = np.full(int(switch.max()) + 1, self.cluster.nodes)
        most = np.zeros_like(least)
        np.minimum.at(least, switch, domain)
        np.maximum.at(most, switch, domain)
        near = least[switch] == most[switch]
        for which, to in ((near, self._to_nvswitch), (~near, self._to_top)):
            if which.any():
                to(draft, way[which], rank[which], switch[which], channel[which], up[which])

    def _to_nvswitch(
        self, draft: Draft, way: Ints, rank: Ints, switch: Ints, channel: Ints, up: Flags
    ) -> None:
        gpu, host = self._group.gpu[rank], self._group.host[rank]
        leg = np.where(up, self._machine.up[gpu], self._machine.down[gpu])
        self._check(leg > 0, rank, switch, "NVLink to an NVSwitch")
        draft.inside(way, leg, np.zeros_like(leg), (host, host))

    def _to_top(
        self, draft: Draft, way: Ints, rank: Ints, switch: Ints, channel: Ints, up: Flags
    ) -> None:
        """By the rank's NIC to where all meet that use the switch on this channel."""
        web, ends = self._switches, self._group.exits(rank, channel)
        able = np.array([kind != "router" for kind in self._cabling.kinds] or [False])
        self._check(ends.joined & able[ends.leaf], rank, switch, "NIC on a leaf switch")
        span = int(channel.max()) + 1
        trees, tree = np.unique(switch * span + channel, return_inverse=True)
        owner, leaf = np.divmod(np.unique(tree * len(able) + ends.leaf), len(able))
        leaves = [
            tuple(part.tolist()) for part in np.split(leaf, np.flatnonzero(np.diff(owner)) + 1)
        ]
        tops = {each: meet(web, each) for each in set(leaves)}
        goals = [tops[each] for each in leaves]
        self._check(
            np.array([bool(goal) for goal in goals])[tree], rank, switch, "way to the others"
        )
        if self.routing == "ecmp":  # all ranks meet in the same one
            drawn = self._flow(*np.divmod(trees, span)).tolist()
            goals = [(goal[word % len(goal)],) for goal, word in zip(goals, drawn, strict=True)]
        draft.inside(
            way, np.where(up, ends.out, 0), np.where(up, 0, ends.into), (ends.host, ends.host)
        )
        draft.cables(way, np.where(up, ends.cable, -1), np.where(up, -1, ends.cable ^ 1))
        flow = self._flow(self._group.rank[rank], switch, channel)
        self._through(draft, way, Toward(web, goals), ends.leaf, tree, flow, ~up)

    def _check(self, has: Flags, rank: Ints, switch: Ints, what: str) -> None:
        if not has.all():
            i = int(np.argmin(has))
            host, gpu = self._group.host[rank[i]], self.cluster.node.gpus[self._group.gpu[rank[i]]]
            raise CollectiveError(
                f"{self.cluster.name}: switch {switch[i]} of the schedule: node{host}/{gpu.name} "
                f"has no {what}; choose another algorithm or cluster"
            )
