"""Cables from NIC to NIC, no switch.

Two machines: NIC i to NIC i. More: with a NIC for every other machine a full mesh, else a ring with
half of the NICs to each neighbour. Machines in between pass data on (as routing hosts do), which no
full mesh needs.
"""

from __future__ import annotations

from commsim.errors import SpecError
from commsim.topology.wiring import Cable, Site, Wiring


def wire(site: Site) -> Wiring:
    """The cables; SpecError where the machines have too few NICs to be joined without a switch."""
    _check(site)
    n, each, cables = site.nodes, _cables_per_pair(site), []
    if _is_mesh(site):
        pairs = [(a, b, (b - 1) * each, a * each) for a in range(n) for b in range(a + 1, n)]
    else:  # half of the NICs to the next machine, half to the one before
        pairs = [(a, a + 1, 0, each) for a in range(n - 1)] + [(0, n - 1, each, 0)]
    for a, b, ours, theirs in pairs:
        cables += [
            Cable(
                source=site.nic(a, ours + i),
                target=site.nic(b, theirs + i),
                bandwidth=min(site.rates[ours + i], site.rates[theirs + i]),
            )
            for i in range(each)
        ]
    return Wiring(cables=tuple(cables), forwarding=not _is_mesh(site))


def bisection(site: Site) -> float:
    """Cables across / NICs of a half; c to each neighbour: n c / (2 NICs), ring 4 c / (n NICs)."""
    n, nics, each = site.nodes, len(site.nics), _cables_per_pair(site)
    if n < 2 or not nics:
        return 1.0
    _check(site)
    return min(1.0, n / 2 * each / nics if _is_mesh(site) else 4 * each / (n * nics))


def _check(site: Site) -> None:
    nodes, nics = site.nodes, len(site.nics)
    if nodes > 2 and nics < 2:
        raise SpecError(
            [
                f"fabric.kind: direct joins {nodes} nodes with at least 2 NICs each, found {nics}; "
                'raise node.nics.count or use fabric.kind = "single-switch"'
            ]
        )


def _is_mesh(site: Site) -> bool:
    return len(site.nics) >= site.nodes - 1


def _cables_per_pair(site: Site) -> int:
    return len(site.nics) // max(1, site.nodes - 1) if _is_mesh(site) else len(site.nics) // 2
