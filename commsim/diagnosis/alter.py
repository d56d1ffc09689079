"""Machines and libraries with something changed: what faults are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from commsim.cost.profile import Profile
from commsim.libraries.library import Library
from commsim.topology.cluster import Cluster
from commsim.topology.node import NodeTopology, without_nics
from commsim.units import BytesPerSecond


def with_node(cluster: Cluster, node: NodeTopology) -> Cluster:
    """The cluster with another machine."""
    return replace(cluster, node=node)


def nics_capped(cluster: Cluster, most: BytesPerSecond) -> Cluster:
    """No NIC carries more than `most`, bytes/s per direction."""
    nics = tuple(replace(nic, rate=min(nic.rate, most)) for nic in cluster.node.nics)
    return with_node(cluster, replace(cluster.node, nics=nics))


def nics_at(cluster: Cluster, share: float) -> Cluster:
    """Every NIC at a share of its rate."""
    nics = tuple(replace(nic, rate=nic.rate * share) for nic in cluster.node.nics)
    return with_node(cluster, replace(cluster.node, nics=nics))


def nics_kept(cluster: Cluster, count: int) -> Cluster:
    """The first `count` NICs of every machine; the others are gone."""
    dead = range(count, len(cluster.node.nics))
    return with_node(cluster, without_nics(cluster.node, dead))


def staged(cluster: Cluster) -> Cluster:
    """Data between GPUs and NICs goes through host memory."""
    nics = tuple(replace(nic, gpudirect=False) for nic in cluster.node.nics)
    return with_node(cluster, replace(cluster.node, nics=nics))


def over(cluster: Cluster, transport: str) -> Cluster:
    """The same fabric, spoken to in another way; nothing is reduced in its switches."""
    return replace(cluster, fabric=replace(cluster.fabric, transport=transport, sharp=False))


def links_at(cluster: Cluster, kinds: frozenset[str], share: float) -> Cluster:
    """Links of these kinds at a share of their bandwidth (and of their lanes' speed)."""
    links = tuple(
        replace(link, bandwidth=link.bandwidth * share, speed=link.speed * share)
        if link.kind in kinds
        else link
        for link in cluster.node.links
    )
    return with_node(cluster, replace(cluster.node, links=links))


def cards_at(cluster: Cluster, share: float) -> Cluster:
    """The PCIe link of every NIC at a share of its bandwidth."""
    cards = {nic.card for nic in cluster.node.nics}
    links = tuple(
        replace(link, bandwidth=link.bandwidth * share, speed=link.speed * share)
        if link.kind == "pcie" and link.source in cards
        else link
        for link in cluster.node.links
    )
    return with_node(cluster, replace(cluster.node, links=links))


def card_bandwidth(cluster: Cluster) -> BytesPerSecond:
    """The PCIe link of a NIC, bytes/s per direction: the slowest of the machine."""
    cards = {nic.card for nic in cluster.node.nics}
    rates = [k.bandwidth for k in cluster.node.links if k.kind == "pcie" and k.source in cards]
    return min(rates, default=0.0)


def with_env(library: Library, settings: Mapping[str, str]) -> Library:
    """The library with these variables set on top of its own."""
    given: Any = library
    changed: Library = replace(given, env={**dict(given.env or ()), **settings})
    return changed


def env_of(library: Library) -> dict[str, str]:
    """The variables that a library was given."""
    given: Any = library
    return dict(given.env or ())


def with_constant(profile: Profile, name: str, factor: float) -> Profile:
    """The profile with one constant times `factor`, and its limits with it."""
    old = profile.constants[name]
    low, high = old.limits
    new = replace(old, value=old.value * factor, limits=(low * factor, high * factor))
    return replace(profile, constants={**profile.constants, name: new})


def with_tag(profile: Profile, name: str, kind: str, tag: str, value: float) -> Profile:
    """The profile with `value` for one constant of hardware with this tag, whatever it has learnt
    of such hardware; other kinds of tag still count."""
    old = profile.constants[name]
    of_kind = {**old.by.get(kind, {}), tag: value / old.value}
    new = replace(old, by={**old.by, kind: of_kind})
    return replace(profile, constants={**profile.constants, name: new})
