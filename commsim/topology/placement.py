"""How a group's ranks lie on a cluster: how many machines and NVLink domains, who sits where."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from commsim.errors import CollectiveError
from commsim.topology.cluster import Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A group of `n` ranks on `hosts` machines in `domains` NVLink domains.

    hosts_by_set: for every distinct set of local GPU indices in use, on how many machines it
    occurs, first seen first. domain_shapes: for every distinct domain, the local sets of its
    machines in order, and how many domains look like that. packed: the group lists each machine's
    ranks one after another.
    """

    n: int
    hosts: int
    domains: int
    hosts_by_set: tuple[tuple[tuple[int, ...], int], ...]
    domain_shapes: tuple[tuple[tuple[tuple[int, ...], ...], int], ...]
    max_per_host: int
    min_per_host: int
    max_per_domain: int
    min_per_domain: int
    packed: bool = True

    @property
    def uniform(self) -> bool:
        """Every domain uses the same local GPUs."""
        return len(self.domain_shapes) == 1


def place(cluster: Cluster, ranks: tuple[int, ...] | None) -> Placement:
    """The placement of a group (None: every rank).

    Raises CollectiveError on a rank that the cluster does not have.
    """
    return _place(cluster, ranks)


@lru_cache(maxsize=4096)
def _place(cluster: Cluster, ranks: tuple[int, ...] | None) -> Placement:
    per_host, per_domain = cluster.gpus_per_node, cluster.hosts_per_domain
    if ranks is None:
        n = cluster.n_ranks
        if n < 2:
            raise CollectiveError(
                f"{cluster.name}: 1 rank in all; a collective needs at least 2 "
                "(raise nodes or node.gpus)"
            )
        every = tuple(range(per_host))
        full, rest = divmod(cluster.nodes, per_domain)
        shapes = [((every,) * per_domain, full)] if full else []
        shapes += [((every,) * rest, 1)] if rest else []
        sizes = [len(s) * per_host for s, _ in shapes]
        return Placement(
            n=n, hosts=cluster.nodes, domains=full + bool(rest),
            hosts_by_set=((every, cluster.nodes),), domain_shapes=tuple(shapes),
            max_per_host=per_host, min_per_host=per_host,
            max_per_domain=max(sizes), min_per_domain=min(sizes),
        )  # fmt: skip
    top = max(ranks)
    if top >= cluster.n_ranks:
        raise CollectiveError(
            f"{cluster.name}: ranks: {top} does not exist; {cluster.n_ranks} ranks "
            f"(0 .. {cluster.n_ranks - 1}) on {cluster.nodes} nodes x {per_host}; "
            "name existing ranks or raise nodes"
        )
    hosts: dict[int, list[int]] = {}
    for rank in ranks:
        hosts.setdefault(rank // per_host, []).append(rank % per_host)
    order = [rank // per_host for rank in ranks]
    packed = sum(a != b for a, b in pairwise(order)) == len(hosts) - 1
    domains: dict[int, list[tuple[int, ...]]] = {}
    for host in sorted(hosts):
        domains.setdefault(host // per_domain, []).append(tuple(sorted(hosts[host])))
    sets = Counter(tuple(sorted(v)) for v in hosts.values())
    kinds = Counter(tuple(v) for v in domains.values())
    sizes = [sum(map(len, v)) for v in domains.values()]
    counts = [len(v) for v in hosts.values()]
    return Placement(
        n=len(ranks), hosts=len(hosts), domains=len(domains),
        hosts_by_set=tuple(sets.items()), domain_shapes=tuple(kinds.items()),
        max_per_host=max(counts), min_per_host=min(counts),
        max_per_domain=max(sizes), min_per_domain=min(sizes), packed=packed,
    )  # fmt: skip
