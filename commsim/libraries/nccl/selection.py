"""NCCL's pick for one operation at one size: every candidate with its estimate (s) or its reason.

A Group is a library on a set of ranks; a Tuned is its table for one operation and type. Both are
kept between calls, so that only the size is left to evaluate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from commsim.collectives.collective import Collective
from commsim.errors import CollectiveError, LibraryError
from commsim.libraries.library import Candidate, Choice
from commsim.libraries.nccl import launch, point_to_point, tuning
from commsim.libraries.nccl.communicator import Domains, layout
from commsim.libraries.nccl.constants import Version
from commsim.libraries.nccl.environment import Settings
from commsim.libraries.nccl.facts import NcclFacts
from commsim.libraries.nccl.graph import Communicator
from commsim.libraries.nccl.rules import DISPLAY, unsupported
from commsim.libraries.nccl.tuning import Entry
from commsim.topology.cluster import Cluster
from commsim.units import Bytes, format_size

LAUNCHES: Final = ("processes", "threads", "single")
_GATHERS: Final = ("ring", "collnet_direct", "nvls")
_REDUCED: Final = {
    "all_reduce": ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree"),
    "all_gather": _GATHERS,
    "reduce_scatter": _GATHERS,
}


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Group:
    """A library on a group of ranks: everything that does not depend on the operation."""

    name: str
    version: Version
    settings: Settings
    c: Communicator
    facts: NcclFacts
    notes: tuple[str, ...]


def check_launch(mode: str | None) -> str:
    """The launch mode; None means processes. LibraryError on anything else."""
    if mode is None:
        return "processes"
    if mode not in LAUNCHES:
        raise LibraryError(f"launch: expected one of {', '.join(LAUNCHES)}, got {mode!r}")
    return mode


def check_root(collective: Collective, cluster: Cluster) -> None:
    """CollectiveError where the root is not a rank of the cluster."""
    root = collective.root
    if root is not None and not 0 <= root < cluster.n_ranks:
        raise CollectiveError(
            f"{collective.operation}: root: {root} does not exist; "
            f"{cluster.name} has ranks 0 .. {cluster.n_ranks - 1}"
        )


def domains(cluster: Cluster, ranks: tuple[int, ...] | None) -> Domains:
    """The group's NVLink domains as the graph search takes them, equal ones counted."""
    per_host, per_domain = cluster.gpus_per_node, cluster.hosts_per_domain
    if ranks is not None:
        return layout(ranks, per_host, per_domain)
    host = tuple(range(per_host))
    full, rest = divmod(cluster.nodes, per_domain)
    found = [((host,) * per_domain, full)] if full else []
    found += [((host,) * rest, 1)] if rest else []
    return tuple(found)


def stand_in(name: str, asked: Version, used: Version, oldest: Version, newest: Version) -> str:
    """A note that another version than the one asked for is modelled."""
    side = "newer" if asked > used else "older"
    first, last = (".".join(map(str, v[:2])) for v in (oldest, newest))
    told, instead = (".".join(map(str, v)) for v in (asked, used))
    return f"{name} {told} is {side} than what is modelled ({first} to {last}); {instead} stands in"


def counted(collective: Collective, n: int) -> tuple[str, Bytes, str, str]:
    """Operation, bytes, type and reduction as the library is called.

    A barrier is an all_reduce of one element; all_gather and reduce_scatter move whole equal parts.
    """
    if collective.operation == "barrier":
        return "all_reduce", collective.itemsize, collective.dtype, "sum"
    nbytes = collective.nbytes
    if collective.operation in ("all_gather", "reduce_scatter"):
        nbytes = nbytes // n * n or nbytes
    return collective.operation, nbytes, collective.dtype, collective.reduce_op


def in_network(settings: Settings, cluster: Cluster, nodes: int, forced: bool) -> tuple[bool, str]:
    """Whether NCCL reduces in the fabric's switches (SHARP), and a note where that needs a word.

    NCCL does so if NCCL_COLLNET_ENABLE=1 and the fabric can. forced: NCCL would fail without, which
    is taken as proof that it can (see `needs_network`).
    """
    if nodes == 1 or (settings.collnet and nodes < settings.collnet_nodes):
        few = "one node" if nodes == 1 else f"fewer than {settings.collnet_nodes} nodes"
        return False, f"NCCL_COLLNET_ENABLE=1 has no effect on {few}" if settings.collnet else ""
    able = cluster.fabric.sharp
    if settings.collnet and able:
        return True, ""
    if forced:
        missing = [] if settings.collnet else ["NCCL_COLLNET_ENABLE=1"]
        missing += [] if able else ["fabric.sharp = true in the cluster"]
        return True, (
            f"NCCL_ALGO={settings.algorithm_text} works over {nodes} nodes only with SHARP; "
            f"{' and '.join(missing)} taken as given"
        )
    if settings.collnet:
        return False, "NCCL_COLLNET_ENABLE=1 has no effect: the fabric has no SHARP"
    return False, "NCCL uses the fabric's SHARP only with NCCL_COLLNET_ENABLE=1" if able else ""


def needs_network(settings: Settings, operation: str, version: Version) -> bool:
    """Does NCCL_ALGO leave, over several nodes, only what the network's switches must reduce, in a
    release that fails where nothing is left?"""
    if settings.algorithm_text is None or version < (2, 24, 0) or operation not in _REDUCED:
        return False
    named = {a for a in _REDUCED[operation] if settings.algorithm_state(operation, a)}
    return bool(named) and named <= {"collnet_direct", "collnet_chain", "nvls"}


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Tuned:
    """NCCL's table for one operation and type on one group. ruled_out: the finished candidate of
    every entry that no size makes available."""

    group: Group
    operation: str
    dtype: str
    entries: tuple[Entry, ...]
    ruled_out: tuple[Candidate | None, ...]
    notes: tuple[str, ...]

    def choose(self, nbytes: Bytes, itemsize: int) -> Choice:
        """The pick for `nbytes` of NCCL's counting."""
        g, operation = self.group, self.operation
        candidates: list[Candidate] = []
        best: Candidate | None = None
        second: Candidate | None = None
        for entry, out in zip(self.entries, self.ruled_out, strict=True):
            if out is not None:
                candidates.append(out)
                continue
            time = tuning.estimate_us(g.c, g.version, operation, entry, nbytes, self.dtype)
            on = launch.launch(
                g.c, g.version, g.settings, operation, entry.algorithm, entry.protocol, nbytes,
                itemsize,
            )  # fmt: skip
            candidate = Candidate(
                algorithm=entry.algorithm,
                protocol=entry.protocol,
                channels=on.channels,
                estimate=time * 1e-6,
            )
            candidates.append(candidate)
            if best is None or candidate.estimate < best.estimate:
                best, second = candidate, best
            elif second is None or candidate.estimate < second.estimate:
                second = candidate
        assert best is not None, "a table without an available entry is refused when it is made"
        return Choice(
            chosen=best,
            candidates=tuple(candidates),
            reasons=(self._why(best, second, nbytes),),
            notes=self.notes,
            facts=g.facts,
        )

    def _why(self, best: Candidate, second: Candidate | None, nbytes: Bytes) -> str:
        name, version = self.group.name, self.group.version
        why = (
            f"{name} {version[0]}.{version[1]} expects {best.estimate * 1e6:.1f} us of "
            f"{DISPLAY[best.algorithm]} {best.protocol} at {format_size(nbytes)}"
        )
        if second is None:
            return f"{why}, the only candidate"
        return (
            f"{why}, against {second.estimate * 1e6:.1f} us of the next best, "
            f"{DISPLAY[second.algorithm]} {second.protocol}"
        )


@lru_cache(maxsize=2048)
def tuned(group: Group, operation: str, dtype: str, reduce_op: str) -> Tuned:
    """The table of an operation. LibraryError where settings leave nothing and NCCL fails."""
    c, version, notes = group.c, group.version, group.notes
    entries = []
    for entry in tuning.table(c, version, group.settings, operation):
        reason = entry.reason or unsupported(
            c, version, operation, entry.algorithm, dtype, reduce_op
        )
        bandwidth = 0.0 if reason else entry.bandwidth
        if bandwidth == 0.0:
            reason = reason or "NCCL's model gives it no bandwidth here"
        entries.append(replace(entry, bandwidth=bandwidth, reason=reason))
    if not any(e.bandwidth for e in entries):
        entries, note = _nothing_left(group, operation, entries)
        notes = (*notes, note)
    out = tuple(
        None
        if e.bandwidth
        else Candidate(
            algorithm=e.algorithm, protocol=e.protocol, channels=0, estimate=math.inf,
            available=False, reason=e.reason,
        )
        for e in entries
    )  # fmt: skip
    return Tuned(
        group=group, operation=operation, dtype=dtype, entries=tuple(entries), ruled_out=out,
        notes=notes,
    )  # fmt: skip


def _nothing_left(group: Group, operation: str, entries: list[Entry]) -> tuple[list[Entry], str]:
    """What NCCL does when settings leave nothing: 2.19 to 2.23 run Ring anyway, others refuse."""
    settings, version = group.settings, group.version
    told = asked_for(settings)
    if (2, 19, 0) <= version < (2, 24, 0):
        ring = tuple(int(a == "ring") for a in DISPLAY)
        relaxed = replace(settings, algorithms=(ring,) * len(settings.algorithms))
        rings = {
            (e.algorithm, e.protocol): e
            for e in tuning.table(group.c, version, relaxed, operation)
            if e.bandwidth
        }
        if rings:
            return (
                [rings.get((e.algorithm, e.protocol), e) for e in entries],
                f"{told} leaves nothing for {operation}; NCCL {version[0]}.{version[1]} runs Ring",
            )
    reasons = dict.fromkeys(f"{DISPLAY[e.algorithm]} {e.protocol}: {e.reason}" for e in entries)
    raise LibraryError(
        f"{told or group.name}: nothing is left for {operation} with {group.name} "
        f"{version[0]}.{version[1]}, which then fails; name one that can run it or unset the "
        f"variable ({'; '.join(reasons)})"
    )


def asked_for(settings: Settings) -> str:
    """NCCL_ALGO and NCCL_PROTO as they were set."""
    pairs = (("NCCL_ALGO", settings.algorithm_text), ("NCCL_PROTO", settings.protocol_text))
    return " ".join(f"{name}={value}" for name, value in pairs if value is not None)


def messages(group: Group, collective: Collective) -> Choice:
    """The choice for an operation made of sends and receives: one candidate and no estimate."""
    form = point_to_point.plan(
        group.c, group.version, group.settings, collective.operation, collective.nbytes
    )
    chosen = Candidate(
        algorithm="p2p", protocol=form.protocol, channels=form.channels, estimate=math.nan
    )
    why = (
        f"{group.name} makes {collective.operation} of sends and receives: "
        f"{format_size(form.message)} a peer by {form.protocol} over {form.parts} "
        f"channel{'s' * (form.parts > 1)}"
    )
    if group.c.nodes > 1 and form.remote_protocol != form.protocol:
        why += f", to other nodes by {form.remote_protocol}"
    return Choice(
        chosen=chosen, candidates=(chosen,), reasons=(why,), notes=group.notes, facts=group.facts
    )
