"""The cables of a fabric, and every shortest way from switch to switch over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from commsim.collectives.chunks import Ints
from commsim.engine.hashing import Words, mix, uniform
from commsim.engine.legs import distinct, spans
from commsim.engine.network import Floats
from commsim.topology.cluster import Cluster


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cabling:
    """Directed links of the fabric: 2k is cable k from its source, 2k + 1 is the same backwards.

    ends: the names of each cable's ends; parallel cables are one. tail, head: each link's vertices,
    first the NICs machine by machine, then the `switches` as the wiring lists them. kinds: of the
    switches. cable[node, i], leaf[node, i]: the link from NIC i to its switch, and the switch; -1
    for a NIC without a cable or with one to another NIC.
    """

    ends: tuple[tuple[str, str], ...]
    kinds: tuple[str, ...]
    nics: int
    tail: Ints
    head: Ints
    capacity: Floats
    latency: Floats
    cable: Ints
    leaf: Ints


def lay_cables(cluster: Cluster) -> Cabling:
    """The cables of the cluster's wiring."""
    site, wiring = cluster.site, cluster.wiring
    shape = (cluster.nodes, len(site.nics))
    nics = [site.nic(node, i) for node in range(shape[0]) for i in range(shape[1])]
    names = [*nics, *(s.name for s in wiring.switches)]
    number = {name: i for i, name in enumerate(names)}
    width: dict[tuple[str, str], float] = {}
    for cable in wiring.cables:
        pair = (cable.source, cable.target)
        pair = pair[::-1] if pair[::-1] in width else pair
        width[pair] = width.get(pair, 0.0) + cable.bandwidth
    tail = np.array([number[name] for pair in width for name in pair], dtype=np.int64)
    head = tail.reshape(-1, 2)[:, ::-1].ravel()
    leaving = np.full(len(names), site.latency)
    leaving[: len(nics)] = np.tile([n.latency for n in cluster.node.nics], cluster.nodes)
    alone = np.bincount(tail, minlength=len(names)) == 1
    up = np.flatnonzero((tail < len(nics)) & (head >= len(nics)) & alone[tail])
    link, leaf = np.full(len(nics), -1), np.full(len(nics), -1)
    link[tail[up]], leaf[tail[up]] = up, head[up] - len(nics)
    return Cabling(
        ends=tuple(width),
        kinds=tuple(s.kind for s in wiring.switches),
        nics=len(nics),
        tail=tail,
        head=head,
        capacity=np.repeat(np.array(list(width.values()), dtype=np.float64), 2),
        latency=leaving[tail],
        cable=link.reshape(shape),
        leaf=leaf.reshape(shape),
    )


class Toward:
    """The shortest ways over a fabric from any switch to each of some goals.

    A goal is one switch, or several any of which will do. `at` and `goal` are indices in columns:
    of the switch where one stands and of the goal to which one wants.
    """

    def __init__(self, cabling: Cabling, goals: Sequence[tuple[int, ...]]) -> None:
        between = np.flatnonzero((cabling.tail >= cabling.nics) & (cabling.head >= cabling.nics))
        self._link = between[np.argsort(cabling.tail[between], kind="stable")]
        self._head = cabling.head[self._link] - cabling.nics
        self._switches = len(cabling.kinds)
        tail = cabling.tail[self._link] - cabling.nics
        self._degree = np.bincount(tail, minlength=self._switches)
        self._first = np.cumsum(self._degree) - self._degree
        self.distance = np.full((len(goals), self._switches), -1, dtype=np.int32)
        """Links from each switch to each goal, [goal, switch]; -1: none leads there."""
        self.paths = np.zeros((len(goals), self._switches))
        """How many shortest ways there are."""
        for distance, paths, goal in zip(self.distance, self.paths, goals, strict=True):
            self._search(distance, paths, np.array(goal, dtype=np.int64))

    def _search(self, distance: NDArray[np.int32], paths: Floats, frontier: Ints) -> None:
        """Breadth first from a goal; every cable leads both ways."""
        distance[frontier], paths[frontier], away = 0, 1.0, 0
        while len(frontier):
            away += 1
            slot = spans(self._first[frontier], self._degree[frontier])
            behind = np.repeat(frontier, self._degree[frontier])
            fresh = distance[self._head[slot]] < 0
            reached = self._head[slot[fresh]]
            np.add.at(paths, reached, paths[behind[fresh]])
            frontier = np.unique(reached)
            distance[frontier] = away

    def _onward(self, at: Ints, goal: Ints) -> tuple[Ints, Ints, Floats]:
        """The next links: which of the columns' entry each belongs to, its slot, and the share of
        the entry's shortest ways that take it.
        """
        slot = spans(self._first[at], self._degree[at])
        entry = np.repeat(np.arange(len(at)), self._degree[at])
        to, of = self._head[slot], goal[entry]
        nearer = self.distance[of, to] == self.distance[of, at[entry]] - 1
        nearer &= self.distance[of, to] >= 0
        slot, entry, to, of = slot[nearer], entry[nearer], to[nearer], of[nearer]
        return entry, slot, self.paths[of, to] / self.paths[of, at[entry]]

    def spread(self, at: Ints, goal: Ints) -> tuple[Ints, Ints, Floats]:
        """All shortest ways of each entry: number of links, the links, the share of ways over each.

        An entry's links come hop by hop.
        """
        entry, amount = np.arange(len(at)), np.ones(len(at))
        entries, links, shares = [entry[:0]], [entry[:0]], [amount[:0]]
        while True:
            moving = self.distance[goal[entry], at] > 0
            entry, at, amount = entry[moving], at[moving], amount[moving]
            if not len(entry):
                break
            owner, slot, share = self._onward(at, goal[entry])
            share = amount[owner] * share
            entries.append(entry[owner])
            links.append(self._link[slot])
            shares.append(share)
            key = entry[owner] * self._switches + self._head[slot]
            states, place = np.unique(key, return_inverse=True)
            entry, at = np.divmod(states, self._switches)
            amount = np.bincount(place, weights=share)
        every = np.concatenate(entries)
        order = np.argsort(every, kind="stable")
        size = np.bincount(every, minlength=len(goal))
        return size, np.concatenate(links)[order], np.concatenate(shares)[order]

    def pick(self, at: Ints, goal: Ints, flow: Words) -> Ints:
        """One shortest way of each entry, link by link, -1 beyond its end: [entry, hop].

        The hash of the `flow` and the hop picks the next link, so that all ways are equally likely.
        """
        hops = self.distance[goal, at]
        found = np.full((len(at), int(hops.max(initial=0))), -1, dtype=np.int64)
        at, entry = at.copy(), np.arange(len(at))
        for hop in range(found.shape[1]):
            entry = entry[hops[entry] > hop]
            key = goal[entry] * self._switches + at[entry]
            states, state = distinct(key, len(self.distance) * self._switches)
            owner, slot, share = self._onward(states % self._switches, states // self._switches)
            last = np.cumsum(np.bincount(owner, minlength=len(states))) - 1
            first = np.append(0, last[:-1] + 1)
            # The shares of a state add up to 1: state s lies between s and s + 1.
            drawn = np.searchsorted(
                np.cumsum(share), state + uniform(mix(flow[entry], hop)), side="right"
            )
            taken = slot[np.clip(drawn, first[state], last[state])]
            found[entry, hop] = self._link[taken]
            at[entry] = self._head[taken]
        return found
