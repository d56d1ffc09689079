"""Every shortest way from vertex to vertex of a web of links."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from commsim.collectives.chunks import Ints
from commsim.engine.cabling import Cabling
from commsim.engine.hashing import Words, mix, uniform
from commsim.engine.legs import Shorts, distinct, spans
from commsim.engine.machine_ways import MachineWays
from commsim.engine.network import Floats
from commsim.topology.cluster import Cluster


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Web:
    """`vertices` numbered from 0, and directed links between them; each has one that leads back."""

    vertices: int
    tail: Ints
    head: Ints
    link: Ints


def switch_web(cabling: Cabling) -> Web:
    """The switches of a fabric and the links between them."""
    between = np.flatnonzero((cabling.tail >= cabling.nics) & (cabling.head >= cabling.nics))
    return Web(
        vertices=len(cabling.kinds),
        tail=cabling.tail[between] - cabling.nics,
        head=cabling.head[between] - cabling.nics,
        link=cabling.first + between,
    )


def whole_web(cluster: Cluster, machine: MachineWays, cabling: Cabling) -> Web:
    """The NICs of all machines, the switches, and what lies between NICs in machines that pass data
    on for others.
    """
    tail, head, link = cabling.tail, cabling.head, cabling.first + np.arange(len(cabling.tail))
    known = cabling.nics + len(cabling.kinds)
    if not cluster.wiring.forwarding:
        return Web(vertices=known, tail=tail, head=head, link=link)
    gpus = {gpu.name for gpu in cluster.node.gpus}
    passing = [(pair, i) for pair, i in machine.links.items() if gpus.isdisjoint(pair)]
    nics = {nic: (i, len(cluster.site.nics)) for i, nic in enumerate(cluster.site.nics)}
    others = sorted({name for pair, _ in passing for name in pair if name not in nics})
    place = {name: (known + i, len(others)) for i, name in enumerate(others)} | nics
    host = np.arange(cluster.nodes)[:, np.newaxis]

    def everywhere(first_and_step: list[tuple[int, int]]) -> Ints:
        first, step = np.array(first_and_step, dtype=np.int64).reshape(-1, 2).T
        return (first + host * step).ravel()

    return Web(
        vertices=known + cluster.nodes * len(others),
        tail=np.append(tail, everywhere([place[a] for (a, _), _ in passing])),
        head=np.append(head, everywhere([place[b] for (_, b), _ in passing])),
        link=np.append(link, everywhere([(i, len(machine.links)) for _, i in passing])),
    )


class Toward:
    """The shortest ways over a web from any vertex to each of some goals.

    A goal is one vertex, or several any of which will do. `at` and `goal` are indices in columns:
    of the vertex where one stands and of the goal to which one wants.
    """

    def __init__(self, web: Web, goals: Sequence[tuple[int, ...]]) -> None:
        order = np.argsort(web.tail, kind="stable")
        self._link, self._head = web.link[order], web.head[order]
        self.vertices = web.vertices
        self._degree = np.bincount(web.tail, minlength=self.vertices)
        self._first = np.cumsum(self._degree) - self._degree
        self.distance = np.full((len(goals), self.vertices), -1, dtype=np.int32)
        """Links from each vertex to each goal, [goal, vertex]; -1: none leads there."""
        self.paths = np.zeros((len(goals), self.vertices))
        """How many shortest ways there are."""
        for distance, paths, goal in zip(self.distance, self.paths, goals, strict=True):
            self._search(distance, paths, np.array(goal, dtype=np.int64))

    def _search(self, distance: Shorts, paths: Floats, frontier: Ints) -> None:
        """Breadth first from a goal; every link leads back too."""
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
            key = entry[owner] * self.vertices + self._head[slot]
            states, place = np.unique(key, return_inverse=True)
            entry, at = np.divmod(states, self.vertices)
            amount = np.bincount(place, weights=share).astype(np.float64)
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
            key = goal[entry] * self.vertices + at[entry]
            states, state = distinct(key, len(self.distance) * self.vertices)
            owner, slot, share = self._onward(states % self.vertices, states // self.vertices)
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


def meet(web: Web, vertices: tuple[int, ...]) -> tuple[int, ...]:
    """The vertices from which the farthest of these is nearest; none if nothing joins them."""
    if len(vertices) == 1:
        return vertices
    distance = Toward(web, [(v,) for v in vertices]).distance
    joined = np.flatnonzero((distance >= 0).all(axis=0))
    farthest = distance[:, joined].max(axis=0)
    return tuple(joined[farthest == farthest.min(initial=web.vertices)].tolist())
