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

    exits: per channel and position, the NIC (index of node.nics; in an NVLink domain of several
    machines those of all that take part, one after the other) through which it leaves its domain;
    -1, or no exits: all of its own. rails: leave by the rank at the receiver's NICs. ports: all
    ranks of a machine share its first so many NICs, as TCP's interfaces; 0: they do not.
    """

    base: ClusterNetwork
    exits: Sequence[Sequence[int]] = ()
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

        own, _ = self._own
        exit_ = self._exit(schedule.chunks.n, source, destination, channel)

        def by_base(start: Ints, end: Ints, leaving: Ints) -> Ways:
            """Through the exit where the start owns it, else over all NICs in equal parts."""
            parts = []
            place = np.minimum(start, len(own) - 1)
            owned = (own[place] == leaving[:, np.newaxis]) & (leaving >= 0)[:, np.newaxis]
            chosen = np.where(owned.any(axis=1), owned.argmax(axis=1), NONE)
            for nic in range(own.shape[1]):
                number = np.where(chosen >= 0, chosen, nic)
                parts.append(self.base.ways(schedule, start, end, number, np.zeros_like(start)))
                if (chosen >= 0).all():
                    break
            return blend(parts)

        leaving = np.full_like(exit_, NONE) if self.rails else exit_
        found = by_base(source, destination, leaving)
        far = np.zeros(len(source), dtype=np.bool_)
        way = np.repeat(np.arange(len(source)), np.diff(found.start))
        far[way[self.over_network[found.crossing]]] = True
        if self.ports:
            return self._by_ports(schedule, found, np.flatnonzero(far), source, destination)
        proxy = self._proxy(source, exit_)
        by = np.flatnonzero(far & (proxy >= 0) & (proxy != source))
        if not len(by):
            return found
        passed = follow(
            by_base(source[by], proxy[by], leaving[by]),
            by_base(proxy[by], destination[by], leaving[by]),
        )
        return put(found, by, passed)

    def _exit(self, n: int, source: Ints, destination: Ints, channel: Ints) -> Ints:
        """The NIC by which an entry leaves its domain; -1: any of the source's own."""
        found = np.full(len(source), NONE)
        both = np.flatnonzero((source < n) & (destination < n))
        if self.rails:
            theirs = self._own[0][destination[both], 0]
            ours = self._host[source[both]] * self._each + theirs % self._each
            found[both] = np.where(theirs >= 0, ours, NONE)
        elif self.exits:
            exits = np.array(self.exits)
            place = exits[channel[both] % len(exits), source[both]]
            further, nic = np.divmod(place, self._each)
            host = self._host_of_domain(source[both], np.maximum(further, 0))
            found[both] = np.where(place >= 0, host * self._each + nic, NONE)
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
