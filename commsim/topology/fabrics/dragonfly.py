"""Groups of routers, all to all inside a group, and a bundle of cables between every two groups.

Kim, Dally, Scott and Abts, "Technology-Driven, Highly-Scalable Dragonfly Topology", ISCA 2008, doi
10.1109/ISCA.2008.19: balanced with a = 2p = 2h, here for a router of k ports p = h = k / 4 NICs and
global cables and a = k / 2 routers in a group (64 ports: 16 NICs a router, 512 a group).
Oversubscription divides the bandwidth between groups (a tapered network).
"""

from __future__ import annotations

from commsim.topology.wiring import Cable, Site, Switch, Wiring


def wire(site: Site) -> Wiring:
    """Routers filled with NICs one after another, groups filled with routers."""
    groups = _groups(site)
    p = _terminals(site)
    cables = [
        Cable(
            source=site.nic(node, i),
            target=f"router{(node * len(site.nics) + i) // p}",
            bandwidth=rate,
        )
        for node in range(site.nodes)
        for i, rate in enumerate(site.rates)
    ]
    for group in groups:
        # The k / 2 - 1 local ports of a router are spread over the routers that are there.
        local = (site.ports // 2 - 1) // max(1, len(group) - 1) * site.port_rate
        cables += [
            Cable(source=f"router{a}", target=f"router{b}", bandwidth=local)
            for a in group
            for b in group
            if a < b
        ]
    # Global cables go to the routers of a group in turn.
    turn = [0] * len(groups)
    for x, one in enumerate(groups):
        for y in range(x + 1, len(groups)):
            fewest = min(len(one), len(groups[y]))
            ports = fewest * p // (len(groups) - 1)
            total = fewest * p * site.port_rate / (len(groups) - 1) / site.oversubscription
            n = max(1, min(fewest, ports))
            for _ in range(n):
                a, b = one[turn[x] % len(one)], groups[y][turn[y] % len(groups[y])]
                cables.append(Cable(source=f"router{a}", target=f"router{b}", bandwidth=total / n))
                turn[x] += 1
                turn[y] += 1
    return Wiring(
        switches=tuple(Switch(name=f"router{r}", kind="router") for g in groups for r in g),
        cables=tuple(cables),
    )


def bisection(site: Site) -> float:
    """g / (2 (g - 1) o) for g groups: (g / 2)^2 bundles carry what g / 2 groups send."""
    g = len(_groups(site))
    return 1.0 if g < 2 else min(1.0, g / (2 * (g - 1) * site.oversubscription))


def _terminals(site: Site) -> int:
    return max(1, site.ports // 4)


def _groups(site: Site) -> list[range]:
    routers = max(1, -(-site.nodes * len(site.nics) // _terminals(site)))
    size = max(1, site.ports // 2)
    return [range(i, min(routers, i + size)) for i in range(0, routers, size)]
