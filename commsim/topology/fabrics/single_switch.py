"""Every NIC on one switch that blocks nothing, however many ports that takes."""

from __future__ import annotations

from commsim.topology.wiring import Cable, Site, Switch, Wiring


def wire(site: Site) -> Wiring:
    """One switch and a cable to each NIC."""
    return Wiring(
        switches=(Switch(name="leaf0", kind="leaf"),),
        cables=tuple(
            Cable(source=site.nic(node, i), target="leaf0", bandwidth=rate)
            for node in range(site.nodes)
            for i, rate in enumerate(site.rates)
        ),
    )


def bisection(site: Site) -> float:
    """All of it: 1."""
    return 1.0
