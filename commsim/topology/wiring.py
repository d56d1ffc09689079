"""How a fabric is wired: switches and cables between the NICs of all machines.

The contract of `commsim.topology.fabrics`: one module per kind of fabric, found by its name
(`fat-tree` is fat_tree.py), with two pure functions, `wire(site) -> Wiring` and `bisection(site) ->
share`.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from math import ceil
from typing import Protocol, cast

from commsim.errors import UnknownNameError
from commsim.topology import fabrics
from commsim.topology.subnet import Subnet
from commsim.units import BytesPerSecond, Seconds

# Ports of one switch by the rate of a port: SB7800 36 x 100, QM8700 40 x 200, QM9700 64 x 400 and
# Q3400-RA 144 x 800 Gbit/s (NVIDIA Networking data sheets). The rates are bytes/s.
INFINIBAND_PORTS = ((12.5e9, 36), (25e9, 40), (50e9, 64), (float("inf"), 144))
# Rosetta: 64 x 200 Gbit/s (De Sensi et al., SC20, doi 10.1109/SC41405.2020.00039). Ethernet
# switches of the same years: 64 ports too (Broadcom Tomahawk 4: 64 x 400, Tomahawk 5: 64 x 800
# Gbit/s).
OTHER_PORTS = 64
# Port to port: QM8700 data sheet 130 ns; Rosetta 350 ns (De Sensi et al.); Ethernet SN3700 data
# sheet 425 ns, also taken for the clouds' own networks, which publish none. Cables (5 ns/m) are
# left out.
SWITCH_LATENCY = {"infiniband": 130e-9, "slingshot": 350e-9}
OTHER_SWITCH_LATENCY = 425e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What a fabric has to join: `nodes` equal machines with NICs of these names and rates.

    oversubscription: what goes into the leaves over what comes out at the top. ports: of one
    switch. latency: of one switch, s. subnet: the cables that there are, for a cabled fabric.
    """

    nodes: int
    nics: tuple[str, ...]
    rates: tuple[BytesPerSecond, ...]
    oversubscription: float = 1.0
    ports: int = 64
    latency: Seconds = 0.0
    subnet: Subnet | None = None

    @property
    def port_rate(self) -> BytesPerSecond:
        """The rate of a switch port: that of the fastest NIC."""
        return max(self.rates, default=0.0)

    @property
    def down_ports(self) -> int:
        """Ports of a leaf that face NICs when the rest go up: down / up = oversubscription."""
        o = self.oversubscription
        return max(1, int(self.ports * o / (1 + o) + 1e-9))

    def nic(self, node: int, index: int) -> str:
        """The name of a NIC in the whole cluster."""
        return f"node{node}/{self.nics[index]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """A switch of the fabric. kind: leaf, spine, core or router."""

    name: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cable:
    """Parallel cables between two switches or NICs; `bandwidth` is their sum, per direction."""

    source: str
    target: str
    bandwidth: BytesPerSecond


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """All switches and cables of a fabric. forwarding: machines pass on what is for others."""

    switches: tuple[Switch, ...] = ()
    cables: tuple[Cable, ...] = ()
    forwarding: bool = False


class FabricModule(Protocol):
    """What a module of commsim.topology.fabrics offers."""

    def wire(self, site: Site) -> Wiring:
        """Switches and cables that join the site."""

    def bisection(self, site: Site) -> float:
        """The share of its NICs' bandwidth that any half can send to the other half at once."""


def fabric_kinds() -> tuple[str, ...]:
    """The names a cluster file may give as fabric.kind."""
    return tuple(sorted(m.name.replace("_", "-") for m in pkgutil.iter_modules(fabrics.__path__)))


def fabric_module(kind: str) -> FabricModule:
    """The module that knows this kind of fabric."""
    if kind not in fabric_kinds():
        raise UnknownNameError("fabric", kind, fabric_kinds())
    return cast("FabricModule", import_module(f"{fabrics.__name__}.{kind.replace('-', '_')}"))


def switch_ports(transport: str, rate: BytesPerSecond) -> int:
    """How many ports of this rate one switch has."""
    if transport != "infiniband":
        return OTHER_PORTS
    return next(ports for limit, ports in INFINIBAND_PORTS if rate <= limit)


def switch_latency(transport: str) -> Seconds:
    """From port to port of one switch, s."""
    return SWITCH_LATENCY.get(transport, OTHER_SWITCH_LATENCY)


def join_leaves(site: Site, leaves: Sequence[tuple[str, BytesPerSecond]]) -> Wiring:
    """Spines above leaves (name, bandwidth up), and cores above spines of large systems.

    Two tiers: as few spines as have the ports, every leaf cabled equally to each. Beyond `ports`
    leaves: pods of ports / 2 leaves with their own spines; spine j of every pod goes on to core
    group j with as much bandwidth as it has below (Al-Fares et al., SIGCOMM 2008, doi
    10.1145/1402958.1402967), so only the leaves are oversubscribed.
    """
    if len(leaves) < 2:
        return Wiring()
    up_ports = {name: ceil(up / site.port_rate - 1e-9) for name, up in leaves}
    if len(leaves) <= site.ports:
        n = max(1, ceil(sum(up_ports.values()) / site.ports))
        return Wiring(
            switches=tuple(Switch(name=f"spine{s}", kind="spine") for s in range(n)),
            cables=tuple(
                Cable(source=leaf, target=f"spine{s}", bandwidth=up / n)
                for leaf, up in leaves
                for s in range(n)
            ),
        )
    half = site.ports // 2
    pods = [leaves[i : i + half] for i in range(0, len(leaves), half)]
    # Every pod has as many spines as the fullest, or a small pod would see only a part of the
    # cores.
    per_pod = max(1, max(ceil(sum(up_ports[name] for name, _ in pod) / half) for pod in pods))
    group = max(1, ceil(len(pods) * half / site.ports))
    switches = [
        Switch(name=f"spine{p * per_pod + j}", kind="spine")
        for p in range(len(pods))
        for j in range(per_pod)
    ]
    switches += [Switch(name=f"core{c}", kind="core") for c in range(group * per_pod)]
    cables = []
    for p, pod in enumerate(pods):
        for j in range(per_pod):
            spine = f"spine{p * per_pod + j}"
            cables += [Cable(source=leaf, target=spine, bandwidth=up / per_pod) for leaf, up in pod]
            upward = sum(up for _, up in pod) / per_pod / group
            cables += [
                Cable(source=spine, target=f"core{j * group + c}", bandwidth=upward)
                for c in range(group)
            ]
    return Wiring(switches=tuple(switches), cables=tuple(cables))
