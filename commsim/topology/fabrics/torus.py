"""One router a machine, each joined to its two neighbours in every dimension of a near-cubic torus.

A cable to a neighbour carries what all NICs of a machine send, divided by the oversubscription.
Where a dimension has length 2, both neighbours are the same router and the two cables lie side by
side.
"""

from __future__ import annotations

from math import prod

from commsim.topology.wiring import Cable, Site, Switch, Wiring


def shape(nodes: int) -> tuple[int, ...]:
    """One to three lengths, largest first: the least diameter, then the fewest dimensions."""
    shapes = [
        (a, b, nodes // a // b)
        for a in range(1, nodes + 1)
        if nodes % a == 0
        for b in range(1, a + 1)
        if nodes // a % b == 0 and nodes // a // b <= b
    ]
    best = min(shapes, key=lambda s: (sum(d // 2 for d in s), sum(d > 1 for d in s), s))
    return tuple(d for d in best if d > 1) or (1,)


def wire(site: Site) -> Wiring:
    """Router i belongs to machine i; machines are numbered along the last dimension first."""
    dims = shape(site.nodes)
    width = sum(site.rates) / site.oversubscription
    cables = [
        Cable(source=site.nic(node, i), target=f"router{node}", bandwidth=rate)
        for node in range(site.nodes)
        for i, rate in enumerate(site.rates)
    ]
    for node in range(site.nodes):
        for axis, length in enumerate(dims):
            if length < 2:
                continue
            stride = prod(dims[axis + 1 :])
            place = node // stride % length
            other = node + ((place + 1) % length - place) * stride
            cables.append(Cable(source=f"router{node}", target=f"router{other}", bandwidth=width))
    return Wiring(
        switches=tuple(Switch(name=f"router{n}", kind="router") for n in range(site.nodes)),
        cables=tuple(cables),
    )


def bisection(site: Site) -> float:
    """4 / (d o), d the longest dimension: a cut across it has 2 n / d cables for n / 2 machines.

    Less than there is where d is odd, since then no straight cut halves the machines.
    """
    longest = max(shape(site.nodes))
    return 1.0 if longest < 2 else min(1.0, 4 / (longest * site.oversubscription))
