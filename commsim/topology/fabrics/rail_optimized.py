"""NIC i of every machine on leaf i of its group, so that equal NICs are one switch apart.

A group has as many machines as a leaf has ports facing down (32 for a 64-port switch without
oversubscription); spines join the leaves. With 64 ports, 8 NICs and 128 machines this gives the 32
leaves and 16 spines of NVIDIA's DGX SuperPOD H100 reference architecture (RA-11333-001, 4 scalable
units).
"""

from __future__ import annotations

from commsim.topology.wiring import Cable, Site, Switch, Wiring, join_leaves


def wire(site: Site) -> Wiring:
    """A leaf per NIC of a machine and group, spines above."""
    cables, leaves = [], []
    groups = -(-site.nodes // site.down_ports)
    # By rail, so that in three tiers the leaves of one rail share a pod.
    for i, rate in enumerate(site.rates):
        for group in range(groups):
            leaf = f"leaf{group * len(site.nics) + i}"
            members = range(group * site.down_ports, min(site.nodes, (group + 1) * site.down_ports))
            cables += [Cable(source=site.nic(n, i), target=leaf, bandwidth=rate) for n in members]
            leaves.append((leaf, rate * len(members) / site.oversubscription))
    above = join_leaves(site, leaves)
    return Wiring(
        switches=tuple(Switch(name=name, kind="leaf") for name, _ in leaves) + above.switches,
        cables=tuple(cables) + above.cables,
    )


def bisection(site: Site) -> float:
    """1 within a group (each rail has its own leaf), 1 / oversubscription beyond."""
    return 1.0 if site.nodes <= site.down_ports else min(1.0, 1 / site.oversubscription)
