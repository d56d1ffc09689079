"""NVIDIA's NCCL, 2.18 to 2.30, as a Library: which algorithm, protocol and channels it picks, and why."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from commsim.collectives.collective import Collective
from commsim.errors import CollectiveError, LibraryError
from commsim.libraries.library import Candidate, Choice, Library
from commsim.libraries.nccl import launch, point_to_point, tuning
from commsim.libraries.nccl.constants import NEWEST, OLDEST, Version, modelled, parse_version
from commsim.libraries.nccl.environment import Environment, Settings, freeze, read
from commsim.libraries.nccl.facts import NcclFacts
from commsim.libraries.nccl.graph import Communicator
from commsim.libraries.nccl.nominal import communicator
from commsim.libraries.nccl.tuning import DISPLAY, Entry
from commsim.topology.cluster import Cluster
from commsim.topology.placement import place
from commsim.units import Bytes, format_size

LAUNCHES: Final = ("processes", "threads", "single")
_NO_ROOM: Final = "nothing is left to choose from"


def _dotted(version: Version) -> str:
    return ".".join(map(str, version))


@dataclass(frozen=True)
class Nccl(Library):
    """NCCL of a version ("2.27.3"; "2.27" is its last patch), with its environment.

    launch: who drives the GPUs: "processes" (one each), "threads" (one process, a thread each) or "single" (one
    thread for all). `env` may be a mapping; it is kept as sorted pairs.
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
        """NCCL's pick for the size, every candidate in NCCL's order, with its estimate or why it is ruled out."""
        group = _group(self, cluster, collective.ranks)
        check_root(collective, cluster)
        if collective.operation in point_to_point.OPERATIONS:
            return messages(group, collective, "NCCL")
        operation, nbytes, dtype, op = counted(collective, group.c.n)
        return _tuned(group, operation, dtype, op).choose(nbytes, collective.itemsize)


def check_launch(launch: str | None) -> str:
    """The launch mode; None means processes. LibraryError on anything else."""
    if launch is None:
        return "processes"
    if launch not in LAUNCHES:
        raise LibraryError(f"launch: expected one of {', '.join(LAUNCHES)}, got {launch!r}")
    return launch


def check_root(collective: Collective, cluster: Cluster) -> None:
    """CollectiveError where the root is not a rank of the cluster."""
    root = collective.root
    if root is not None and not 0 <= root < cluster.n_ranks:
        raise CollectiveError(
            f"{collective.operation}: root: {root} does not exist; {cluster.name} has ranks 0 .. {cluster.n_ranks - 1}"
        )


def counted(collective: Collective, n: int) -> tuple[str, Bytes, str, str]:
    """Operation, bytes, type and reduction as NCCL is called: a barrier is an all_reduce of one element, and
    all_gather and reduce_scatter move whole equal parts."""
    if collective.operation == "barrier":
        return "all_reduce", collective.itemsize, collective.dtype, "sum"
    nbytes = collective.nbytes
    if collective.operation in ("all_gather", "reduce_scatter"):
        nbytes = nbytes // n * n or nbytes
    return collective.operation, nbytes, collective.dtype, collective.reduce_op


@dataclass(frozen=True, eq=False, slots=True)
class Group:
    """A library on a group of ranks: everything that does not depend on the operation."""

    version: Version
    settings: Settings
    c: Communicator
    facts: NcclFacts
    notes: tuple[str, ...]


@lru_cache(maxsize=512)
def _group(library: Nccl, cluster: Cluster, ranks: tuple[int, ...] | None) -> Group:
    asked = parse_version(library.version)
    version = modelled(asked)
    env = freeze(library.env)
    settings = read(env, version)
    if not any(gpu.capability for gpu in cluster.node.gpus):
        raise LibraryError(
            f"{cluster.name}: NCCL runs on NVIDIA GPUs; for {cluster.node.gpus[0].part or 'these'} GPUs use rccl"
        )
    placement = place(cluster, ranks)
    c = communicator(cluster, ranks, version, env)
    notes = list(settings.notes)
    if asked != version:
        side = "newer" if asked > NEWEST else "older"
        notes.append(
            f"NCCL {_dotted(asked)} is {side} than what is modelled ({_dotted(OLDEST)} to {_dotted(NEWEST)}); {_dotted(version)} stands in"
        )
    if asked < (2, 17, 0) and c.nvls_support:
        c = replace(c, nvls_support=False, nvls=None)
    if settings.collnet and not c.collnet:
        why = "one node" if c.nodes == 1 else "the fabric has no SHARP"
        notes.append(f"NCCL_COLLNET_ENABLE has no effect: {why}")
    if c.nodes > 1 and not c.collnet and _wants_collnet(settings, c):
        # Such a list makes NCCL fail without SHARP, so who sets it has SHARP.
        c = replace(c, collnet=True)
        notes.append(
            f"NCCL_ALGO={settings.algorithm_text} works over {c.nodes} nodes only with SHARP, which the cluster does not declare (fabric.sharp); taken as there"
        )
    facts = NcclFacts(
        placement=placement, communicator=c, version=version, launch=check_launch(library.launch), env=env
    )  # fmt: skip
    return Group(version, settings, c, facts, tuple(notes))


def _wants_collnet(settings: Settings, c: Communicator) -> bool:
    """Does NCCL_ALGO leave only algorithms that need in-network reduction, for an operation that has them?"""
    if settings.algorithm_text is None:
        return False
    needs = {"collnet_direct", "collnet_chain", "nvls"}
    for operation in ("all_reduce", "all_gather", "reduce_scatter"):
        named = {
            a
            for a in DISPLAY
            if settings.algorithm_state(operation, a)
            and tuning.searched(c, a) is not None
            and (a == "ring" or (a == "pat") == (operation != "all_reduce"))
        }
        if named and named <= needs:
            return True
    return False


@dataclass(frozen=True, eq=False, slots=True)
class Tuned:
    """NCCL's table for one operation and type on one group, ready to be evaluated at a size."""

    group: Group
    operation: str
    dtype: str
    entries: tuple[Entry, ...]
    fixed: tuple[Candidate | None, ...]
    notes: tuple[str, ...]

    def choose(self, nbytes: Bytes, itemsize: int) -> Choice:
        """The pick for `nbytes` of NCCL's counting."""
        g, candidates, best, runner = self.group, [], -1, -1
        times: list[float] = []
        for i, (entry, known) in enumerate(zip(self.entries, self.fixed, strict=True)):
            if known is not None:
                candidates.append(known)
                times.append(math.inf)
                continue
            time = tuning.estimate_us(g.c, g.version, self.operation, entry, nbytes, dtype=self.dtype)  # fmt: skip
            channels = launch.launch(
                g.c, g.version, g.settings, self.operation, entry.algorithm, entry.protocol, nbytes, itemsize
            ).channels  # fmt: skip
            candidates.append(
                Candidate(algorithm=entry.algorithm, protocol=entry.protocol, channels=channels, estimate=time * 1e-6)
            )  # fmt: skip
            times.append(time)
            if best < 0 or time < times[best]:
                best, runner = i, best
            elif runner < 0 or time < times[runner]:
                runner = i
        chosen = candidates[best]
        return Choice(
            chosen=chosen,
            candidates=tuple(candidates),
            reasons=(_because(g.version, chosen, candidates[runner] if runner >= 0 else None, nbytes),),
            notes=self.notes,
            facts=g.facts,
        )  # fmt: skip


def _because(version: Version, chosen: Candidate, next_best: Candidate | None, nbytes: Bytes) -> str:  # fmt: skip
    first = f"NCCL {version[0]}.{version[1]} expects {chosen.estimate * 1e6:.1f} us of {DISPLAY[chosen.algorithm]} {chosen.protocol} at {format_size(nbytes)}"
    if next_best is None:
        return f"{first}, the only candidate"
    return f"{first}, less than {next_best.estimate * 1e6:.1f} us of {DISPLAY[next_best.algorithm]} {next_best.protocol}"


@lru_cache(maxsize=2048)
def _tuned(group: Group, operation: str, dtype: str, reduce_op: str) -> Tuned:
    c, version, settings = group.c, group.version, group.settings
    entries = [
        replace(e, bandwidth=0.0, reason=reason)
        if not e.reason and (reason := tuning.unsupported(c, version, operation, e.algorithm, dtype, reduce_op))
        else e
        for e in tuning.table(c, version, settings, operation)
    ]  # fmt: skip
    notes = group.notes
    if not any(e.bandwidth for e in entries):
        entries, note = _fallback(group, operation, entries)
        notes = (*notes, note)
    fixed = tuple(
        None
        if e.bandwidth
        else Candidate(
            algorithm=e.algorithm, protocol=e.protocol, channels=0, estimate=math.inf, available=False,
            reason=e.reason or "NCCL's model gives it no bandwidth",
        )
        for e in entries
    )  # fmt: skip
    return Tuned(group, operation, dtype, tuple(entries), fixed, notes)


def _fallback(group: Group, operation: str, entries: list[Entry]) -> tuple[list[Entry], str]:
    """What NCCL does when settings leave nothing: 2.19 to 2.23 run Ring all the same, others refuse."""
    settings, version = group.settings, group.version
    told = " and ".join(
        f"{k}={v}"
        for k, v in (("NCCL_ALGO", settings.algorithm_text), ("NCCL_PROTO", settings.protocol_text))
        if v is not None
    )
    if (2, 19, 0) <= version < (2, 24, 0):
        states = settings.algorithms
        rings = tuple(tuple(int(a == "ring") for a in DISPLAY) for _ in states)
        again = tuning.table(group.c, version, replace(settings, algorithms=rings), operation)
        if any(e.bandwidth for e in again):
            usable = {(e.algorithm, e.protocol): e for e in again if e.bandwidth}
            return (
                [usable.get((e.algorithm, e.protocol), e) for e in entries],
                f"{told} leaves nothing for {operation}; NCCL {version[0]}.{version[1]} then runs Ring",
            )
    reasons = "; ".join(dict.fromkeys(f"{DISPLAY[e.algorithm]}: {e.reason}" for e in entries if e.reason))  # fmt: skip
    raise LibraryError(
        f"{told or 'NCCL'}: {_NO_ROOM} for {operation} with NCCL {_dotted(version)} ({reasons}); change or unset {told.split('=')[0] or 'the settings'}"
    )


def messages(group: Group, collective: Collective, library: str) -> Choice:
    """The choice for an operation made of sends and receives; there is one candidate and no estimate."""
    form = point_to_point.plan(
        group.c, group.version, group.settings, collective.operation, collective.nbytes
    )
    chosen = Candidate(
        algorithm="p2p", protocol=form.protocol, channels=form.channels, estimate=math.nan
    )
    why = (
        f"{library} builds {collective.operation} from sends and receives; {format_size(form.message)} a peer go by {form.protocol} "
        f"in {form.parts} part{'s' * (form.parts > 1)} of at most {format_size(form.chunk)} chunks"
    )
    if group.c.nodes > 1 and form.remote_protocol != form.protocol:
        why += f", and by {form.remote_protocol} over the network"
    return Choice(
        chosen=chosen, candidates=(chosen,), reasons=(why,), notes=group.notes, facts=group.facts
    )
