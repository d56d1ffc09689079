"""NVIDIA's NCCL, 2.18 to 2.30, as a Library: what it picks, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from commsim.collectives.collective import Collective
from commsim.errors import LibraryError
from commsim.libraries.library import Choice, Library
from commsim.libraries.nccl import plugin, point_to_point
from commsim.libraries.nccl.communicator import communicator
from commsim.libraries.nccl.constants import NEWEST, OLDEST, Version, modelled, parse_version
from commsim.libraries.nccl.environment import Environment, freeze, read
from commsim.libraries.nccl.facts import NcclFacts
from commsim.libraries.nccl.selection import (
    Group,
    check_launch,
    check_root,
    counted,
    domains,
    in_network,
    messages,
    needs_network,
    stand_in,
    tuned,
)
from commsim.topology.cluster import Cluster
from commsim.topology.placement import place

_FIRST_NVLS: Version = (2, 17, 0)


@dataclass(frozen=True)
class Nccl(Library):
    """NCCL of a version ("2.27.3"; "2.27" is its last patch), with its environment.

    launch: who drives the GPUs: "processes" (one each), "threads" (one process, a thread each) or
    "single" (one thread for all). `env` may be a mapping; it is kept as sorted pairs.
    """

    version: str = "2.30.7"
    env: Mapping[str, str] | Environment | None = ()
    launch: str | None = "processes"
    name = "nccl"

    def __post_init__(self) -> None:
        parse_version(self.version)
        object.__setattr__(self, "env", freeze(self.env))
        object.__setattr__(self, "launch", check_launch(self.launch))

    @property
    def variables(self) -> dict[str, str]:
        """The environment as a dict."""
        return dict(freeze(self.env))

    def choose(self, collective: Collective, cluster: Cluster) -> Choice:
        """NCCL's pick for the size; every candidate in NCCL's order."""
        operation = collective.operation
        group = _group(self, cluster, collective.ranks, _forced(self, operation))
        check_root(collective, cluster)
        if operation in point_to_point.OPERATIONS:
            return messages(group, collective)
        operation, nbytes, dtype, reduce_op = counted(collective, group.c.n)
        return tuned(group, operation, dtype, reduce_op).choose(nbytes, collective.itemsize)


@lru_cache(maxsize=256)
def _forced(library: Nccl, operation: str) -> bool:
    version = modelled(parse_version(library.version))
    asked = "all_reduce" if operation == "barrier" else operation
    return needs_network(read(freeze(library.env), version), asked, version)


@lru_cache(maxsize=512)
def _group(library: Nccl, cluster: Cluster, ranks: tuple[int, ...] | None, forced: bool) -> Group:
    """Everything of a choice that does not depend on the operation."""
    asked = parse_version(library.version)
    version = modelled(asked)
    env, prescribed = plugin.settings(cluster.fabric.transport, freeze(library.env))
    if len(cluster.node.nics) == 0 or place(cluster, ranks).domains == 1:
        env, prescribed = freeze(library.env), ""
    settings = read(env, version)
    if cluster.gpu.vendor != "nvidia":
        other = "rccl" if cluster.gpu.vendor == "amd" else "gloo or mpi"
        raise LibraryError(
            f"{cluster.name}: NCCL needs NVIDIA GPUs, and {cluster.gpu.name} is not one; "
            f"use {other}"
        )
    placement = place(cluster, ranks)
    notes = list(settings.notes)
    if prescribed:
        notes.append(prescribed)
    if asked != version:
        notes.append(stand_in("NCCL", asked, version, OLDEST, NEWEST))
    sharp, told = in_network(settings, cluster, placement.domains, forced)
    if told:
        notes.append(told)
    searched = tuple((k, v) for k, v in env if k != "NCCL_COLLNET_ENABLE")
    c = communicator(
        plugin.seen(cluster.node, cluster.fabric.transport),
        domains=domains(cluster, ranks),
        version=version,
        env=searched,
        collnet=sharp,
    )
    if asked < _FIRST_NVLS and c.nvls_support:
        c = replace(c, nvls_support=False, nvls=None)
    facts = NcclFacts(
        placement=placement, communicator=c, version=version,
        launch=check_launch(library.launch), env=env,
    )  # fmt: skip
    return Group(
        name="NCCL", version=version, settings=settings, c=c, facts=facts, notes=tuple(notes)
    )
