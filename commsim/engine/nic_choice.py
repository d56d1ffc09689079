"""Which NICs a library takes: the cluster's network with the ways that its channels really go.

By itself a rank sends through NICs of its own. A library's channel may leave a machine through
another's: then the data goes to that GPU first, over NVLink or xGMI (NCCL's PXN). And where equal
channels are played as one, that one stands for all of them, and so takes all NICs of its rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from commsim.collectives.chunks import Ints
from commsim.collectives.schedule import Schedule
from commsim.engine.cluster_network import ClusterNetwork
from commsim.engine.network import SameLinks, Ways, blend, follow, put
from commsim.topology.capacity import own_nics, scale_up_bandwidth

NONE = -1


@dataclass(frozen=True, kw_only=True, eq=False)
class ChosenNics(SameLinks):
    """`base` with every rank's traffic spread over its own NICs, or sent where `exits` says.

    exits, entries: per channel and position, the device (in an NVLink domain of several machines
    those of all that take part, one after the other) through which it leaves its domain, and by
    which comes what enters there; -1, or none: all of its own NICs. devices: a machine's network
    devices as the library sees them, each one or more of node.nics over which it spreads; none:
    every NIC is one. rails: leave by the rank at the receiver's NICs. ports: all ranks of a machine
    share its first so many NICs, as TCP's interfaces; 0: they do not.
    """

    base: ClusterNetwork
    exits: Sequence[Sequence[int]] = ()
    entries: Sequence[Sequence[int]] = ()
    devices: tuple[tuple[int, ...], ...] = ()
    rails: bool = False
    ports: int = 0

    @cached_property
    def _rank(self) -> Ints:
        cluster, ranks = self.base.cluster, self.base.ranks
        return np.array(range(cluster.n_ranks) if ranks is None else ranks, dtype=np.int64)

    @cached_property
    def _host(self) -> Ints:
        return self._rank // self.base.cluster.gpus_per_node

    @cached_property
    def _each(self) -> int:
        """NICs of a machine."""
        return len(self.base.cluster.node.nics)

    @cached_property
    def _own(self) -> tuple[Ints, Ints]:
        """Per position its own NICs, -1 beyond; per NIC the position that owns it. NICs' numbers go
        on from machine to machine.
        """
        cluster = self.base.cluster
        host, gpu = np.divmod(self._rank, cluster.gpus_per_node)
        members: dict[int, list[int]] = {}
        for at, local in zip(host.tolist(), gpu.tolist(), strict=True):
            members.setdefault(at, []).append(local)
        group = {at: tuple(sorted(local)) for at, local in members.items()}
        found = [
            own_nics(cluster.node, g, group[h])
            for h, g in zip(host.tolist(), gpu.tolist(), strict=True)
        ]
        own = np.full((len(found), max(1, *map(len, found))), NONE)
        owner = np.full(cluster.nodes * self._each, NONE)
        for position, nics in enumerate(found):
            own[position, : len(nics)] = (
                np.array(nics, dtype=np.int64) + host[position] * self._each
            )
        for column in own.T[::-1]:  # who has a NIC first in its row, owns it
            has = np.flatnonzero(column >= 0)[::-1]
            owner[column[has]] = has
        return own, owner

    @cached_property
    def _passes_on(self) -> bool:
        """Whether ranks of a machine can pass data on over NVLink or xGMI."""
        node, locals_ = (
            self.base.cluster.node,
            np.unique(self._rank % len(self.base.cluster.node.gpus)),
        )
        return scale_up_bandwidth(node, tuple(locals_.tolist())) > 0

    def ways(
        self, schedule: Schedule, source: Ints, destination: Ints, channel: Ints, reduces: Ints
    ) -> Ways:
        """The ways of the base, over all NICs in equal parts, by the GPU that owns the exit."""
        n = schedule.chunks.n
        leaving, entering = self._ends(n, source, destination, channel)
        proxy = self._proxy(source, leaving[:, 0])
        if self.rails:  # the rail says who passes on, who then uses all of its own
            leaving = np.full_like(leaving, NONE)
        found = self._straight(schedule, source, destination, leaving, entering)
        far = np.zeros(len(source), dtype=np.bool_)
        way = np.repeat(np.arange(len(source)), np.diff(found.start))
        far[way[self.over_network[found.crossing]]] = True
        if self.ports:
            return self._by_ports(schedule, found, np.flatnonzero(far), source, destination)
        by = np.flatnonzero(far & (proxy >= 0))
        if not len(by):
            return found
        passed = follow(
            self._straight(schedule, source[by], proxy[by], leaving[by], entering[by]),
            self._straight(schedule, proxy[by], destination[by], leaving[by], entering[by]),
        )
        return put(found, by, passed)

    def _straight(
        self, schedule: Schedule, source: Ints, target: Ints, leaving: Ints, entering: Ints
    ) -> Ways:
        """Over the NICs named, [entry, part], where these are the source's to use and in the
        target's machine; else over all of its own; in equal parts.
        """
        place = np.minimum(source, len(self._host) - 1)  # what begins at a switch asks for none
        usable = leaving // self._each == self._host[place][:, np.newaxis]
        if self._passes_on:
            own = self._own[0][place]
            usable &= (own[:, np.newaxis, :] == leaving[:, :, np.newaxis]).any(axis=2)
        there = np.minimum(target, len(self._host) - 1)
        enters = entering // self._each == self._host[there][:, np.newaxis]
        by_exit = np.where(usable & (leaving >= 0), leaving % self._each, NONE)
        by_entry = np.where(enters & (entering >= 0), entering % self._each, NONE)
        known = (by_exit >= 0).all() and (by_entry >= 0).all()
        parts = max(leaving.shape[1], 1 if known else self._own[0].shape[1])
        one = np.ones_like(source)
        return blend([
            self.base.by_nics(
                schedule, source, target, part * one,
                (by_exit[:, part % by_exit.shape[1]], by_entry[:, part % by_entry.shape[1]]),
            )
            for part in range(parts)
        ])  # fmt: skip

    def _ends(self, n: int, source: Ints, destination: Ints, channel: Ints) -> tuple[Ints, Ints]:
        """The NICs by which entries leave their domain and enter the other, [entry, part], by
        numbers that go on from machine to machine; -1: any of the rank's own.
        """
        both = np.flatnonzero((source < n) & (destination < n))
        if self.rails:
            theirs = self._own[0][destination[both], 0]
            ours = self._host[source[both]] * self._each + theirs % self._each
            found = np.full((len(source), 1), NONE)
            found[both, 0] = np.where(theirs >= 0, ours, NONE)
            return found, np.full_like(found, NONE)
        return (
            self._members(self.exits, len(source), both, source[both], channel[both]),
            self._members(self.entries, len(source), both, destination[both], channel[both]),
        )

    def _members(
        self, named: Sequence[Sequence[int]], count: int, at: Ints, position: Ints, channel: Ints
    ) -> Ints:
        """The NICs of the devices named for positions, for the entries `at` of so many."""
        devices = self.devices or tuple((i,) for i in range(self._each))
        width = max(map(len, devices))
        found = np.full((count, width), NONE)
        if not named:
            return found
        table = np.array([[device[i % len(device)] for i in range(width)] for device in devices])
        place = np.array(named)[channel % len(named), position]
        further, device = np.divmod(place, len(devices))
        host = self._host_of_domain(position, np.maximum(further, 0))
        nics = host[:, np.newaxis] * self._each + table[device]
        found[at] = np.where((place >= 0)[:, np.newaxis], nics, NONE)
        return found

    def _host_of_domain(self, position: Ints, number: Ints) -> Ints:
        """Of the machines with members in a position's domain, the one of that number."""
        hosts, per = np.unique(self._host), self.base.cluster.hosts_per_domain
        first = np.searchsorted(hosts // per, self._host[position] // per)
        return np.asarray(hosts[first + number])

    def _proxy(self, source: Ints, exit_: Ints) -> Ints:
        """The position in the source's domain that owns the exit; -1: the source itself does."""
        own, owner = self._own
        proxy = np.full(len(source), NONE)
        if not self._passes_on:
            return proxy
        asked = np.flatnonzero(exit_ >= 0)
        nic = exit_[asked]
        theirs = ~(own[source[asked]] == nic[:, np.newaxis]).any(axis=1)
        proxy[asked] = np.where(theirs, owner[nic], NONE)
        return proxy

    def _by_ports(
        self, schedule: Schedule, found: Ways, far: Ints, source: Ints, destination: Ints
    ) -> Ways:
        """The ways over the network, from and to the devices at the machines' first NICs."""
        _, owner = self._own
        first = self._host * self._each
        parts, zero = [], np.zeros(len(far), dtype=np.int64)
        for nic in range(min(self.ports, self._each)):
            a, b = owner[first[source[far]] + nic], owner[first[destination[far]] + nic]
            a = np.where(a >= 0, a, source[far])
            b = np.where(b >= 0, b, destination[far])
            parts.append(self.base.ways(schedule, a, b, zero, zero))
        return put(found, far, blend(parts)) if len(far) else found
