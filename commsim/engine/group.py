"""Where the ranks of a group sit on a cluster, and how each leaves its machine."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from commsim.collectives.chunks import Ints
from commsim.engine.cabling import Cabling
from commsim.engine.machine_ways import MachineWays
from commsim.engine.network import Flags
from commsim.topology.capacity import own_nics
from commsim.topology.cluster import Cluster


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Exits:
    """Ends of ways over the network, in columns: the NIC, the legs to it and from it, the link
    from it to its switch, and the switch; legs are 0, and all else -1, where there is none.
    """

    host: Ints
    gpu: Ints
    nic: Ints
    out: Ints
    into: Ints
    cable: Ints
    leaf: Ints

    @property
    def joined(self) -> Flags:
        """Whether there is a way to a switch."""
        return (self.out > 0) & (self.leaf >= 0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Group:
    """The ranks of a group by their positions."""

    cluster: Cluster
    rank: Ints
    machine: MachineWays
    cabling: Cabling

    @cached_property
    def host(self) -> Ints:
        """The machine of each position."""
        return self.rank // self.cluster.gpus_per_node

    @cached_property
    def gpu(self) -> Ints:
        """The GPU of each position in its machine."""
        return self.rank % self.cluster.gpus_per_node

    @cached_property
    def domain(self) -> Ints:
        """The NVLink domain of each position, or its machine."""
        return self.host // self.cluster.hosts_per_domain

    @cached_property
    def _nics(self) -> tuple[Ints, Ints]:
        """The NICs of each position in the order of channels, -1 beyond, and how many they are."""
        hosts, gpus = self.host.tolist(), self.gpu.tolist()
        members: dict[int, list[int]] = {}
        for host, gpu in zip(hosts, gpus, strict=True):
            members.setdefault(host, []).append(gpu)
        sets = {host: tuple(sorted(local)) for host, local in members.items()}
        node = self.cluster.node
        found = [own_nics(node, gpu, sets[host]) for host, gpu in zip(hosts, gpus, strict=True)]
        count = np.array([len(own) for own in found])
        table = np.full((len(found), max(1, count.max())), -1)
        table[np.arange(table.shape[1]) < count[:, np.newaxis]] = [i for own in found for i in own]
        return table, np.maximum(count, 1)

    def exits(self, at: Ints, channel: Ints, named: Ints | None = None) -> Exits:
        """How positions leave and enter their machines: by the NIC named (-1: none); else channel c
        takes a rank's NIC c, in turn.
        """
        own, count = self._nics
        host, gpu, nic = self.host[at], self.gpu[at], own[at, channel % count[at]]
        if named is not None:
            nic = np.where(named >= 0, named, nic)
        some = nic >= 0
        out, into, cable, leaf = (np.full(len(at), none, dtype=np.int64) for none in (0, 0, -1, -1))
        machine, cabling = self.machine, self.cabling
        one, its, there = gpu[some], nic[some], host[some]
        out[some], into[some] = machine.out[one, its], machine.into[one, its]
        cable[some], leaf[some] = cabling.cable[there, its], cabling.leaf[there, its]
        return Exits(host=host, gpu=gpu, nic=nic, out=out, into=into, cable=cable, leaf=leaf)
