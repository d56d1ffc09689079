"""Which links of the cluster an operation takes, and how much of each.

What the library chose is laid on the links as `commsim simulate` lays it. The bytes that then go
over a link, over the operation's duration alone, are the rate that it takes of that link as long as
nothing else does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from commsim.collectives.collective import Collective
from commsim.engine.cluster_network import ClusterNetwork
from commsim.engine.machine_ways import machine_ways
from commsim.engine.network import Floats, lay
from commsim.libraries.carry_out import carry_out
from commsim.prediction import Prediction
from commsim.simulation import chosen
from commsim.topology.capacity import scale_up_links
from commsim.topology.cluster import Cluster
from commsim.workload.communication import NIC_SHARE, SCALE_UP_SHARE

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Footprint:
    """Numbers of links, and the bytes/s that are taken of each at full speed."""

    links: Ints
    rates: Floats


NOTHING = Footprint(links=np.zeros(0, dtype=np.int64), rates=np.zeros(0))


def together(footprints: Iterable[Footprint]) -> Footprint:
    """Of several operations that go on side by side."""
    each = list(footprints)
    if len(each) == 1:
        return each[0]
    return Footprint(
        links=np.concatenate([f.links for f in each]), rates=np.concatenate([f.rates for f in each])
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Footprints:
    """The footprints of operations on a cluster, remembered. shared: False for none at all."""

    cluster: Cluster
    shared: bool = True
    known: dict[Collective, Footprint] = field(default_factory=dict)

    @cached_property
    def capacity(self) -> Floats:
        """What of every link's bytes/s data reaches; the same shares as in a training step."""
        node = self.cluster.node
        fast = {(a, b) for a, others in scale_up_links(node).items() for b in others}
        inside = [SCALE_UP_SHARE if pair in fast else 1.0 for pair in machine_ways(node).links]
        network = ClusterNetwork(cluster=self.cluster)
        share = np.where(network.over_network, NIC_SHARE, 1.0)
        share[: len(inside) * self.cluster.nodes] = np.tile(inside, self.cluster.nodes)
        return network.capacity * share

    def of(self, prediction: Prediction) -> Footprint:
        """The footprint of a predicted operation."""
        if not self.shared:
            return NOTHING
        key = prediction.collective
        if key not in self.known:
            self.known[key] = self._lay(prediction)
        return self.known[key]

    def _lay(self, p: Prediction) -> Footprint:
        collective, cluster = p.collective, self.cluster
        alike = cluster.bisection_share >= 1
        carried = carry_out(collective, p.choice, cluster, fold=True, alike=alike)
        whole = ClusterNetwork(cluster=cluster, ranks=collective.ranks)
        laid = lay(carried.schedule, chosen(whole, carried))
        ways = laid.ways
        sent = np.bincount(laid.way, weights=carried.schedule.nbytes, minlength=len(ways))
        crossing = ways.weight * np.repeat(sent, np.diff(ways.start))
        load: Floats = np.zeros(len(self.capacity))
        np.add.at(load, ways.crossing, crossing)
        if carried.hosts:  # the first machines stand for all
            load = _unfolded(load, whole, carried.hosts)
        links = np.flatnonzero(load)
        rates = np.minimum(load[links] / p.duration, self.capacity[links])
        return Footprint(links=links, rates=rates)


def _unfolded(load: Floats, whole: ClusterNetwork, hosts: int) -> Floats:
    """The load of the first machines' links on those of all machines of the group."""
    found = np.zeros_like(load)
    ranks = np.arange(whole.cluster.n_ranks) if whole.ranks is None else np.array(whole.ranks)
    machines = np.unique(ranks // whole.cluster.gpus_per_node)
    for numbers in whole.by_machine:
        theirs, first = numbers[machines], numbers[machines % hosts]
        known = theirs >= 0
        found[theirs[known]] = load[first[known]]
    return found
