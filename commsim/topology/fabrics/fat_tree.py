"""All NICs of a machine on one leaf, spines above leaves, cores above the spines of large systems.

Leiserson, "Fat-Trees", IEEE Trans. Computers C-34, 1985; pods and cores as Al-Fares et al., SIGCOMM
2008. Oversubscription lies at the leaves' uplinks.
"""

from __future__ import annotations

from commsim.topology.wiring import Cable, Site, Switch, Wiring, join_leaves


def nodes_per_leaf(site: Site) -> int:
    """Machines on one leaf, at least 1."""
    return max(1, site.down_ports // max(1, len(site.nics)))


def wire(site: Site) -> Wiring:
    """Leaves filled with machines one after another; two or three tiers, as many as are needed."""
    size = nodes_per_leaf(site)
    cables, leaves = [], []
    for leaf, first in enumerate(range(0, site.nodes, size)):
        members = range(first, min(site.nodes, first + size))
        cables += [
            Cable(source=site.nic(n, i), target=f"leaf{leaf}", bandwidth=rate)
            for n in members
            for i, rate in enumerate(site.rates)
        ]
        up = sum(site.rates) * len(members) / site.oversubscription
        leaves.append((f"leaf{leaf}", up))
    above = join_leaves(site, leaves)
    return Wiring(
        switches=tuple(Switch(name=name, kind="leaf") for name, _ in leaves) + above.switches,
        cables=tuple(cables) + above.cables,
    )


def bisection(site: Site) -> float:
    """1 on one leaf, 1 / oversubscription beyond."""
    return 1.0 if site.nodes <= nodes_per_leaf(site) else min(1.0, 1 / site.oversubscription)
