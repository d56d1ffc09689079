"""A log of NCCL_DEBUG=INFO as data: what NCCL found, what it built, what it chose.

NCCL prints its search and its tables only with NCCL_DEBUG_SUBSYS=INIT,GRAPH,TUNING,NET,ENV (or
ALL). What a log does not print is an empty tuple here, never a guess.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TypeVar

from commsim.errors import SpecError
from commsim.measurements import nccl_facts as facts
from commsim.measurements import nccl_lines
from commsim.measurements.nccl_messages import messages

_T = TypeVar("_T", bound=facts.Fact)

# Settings that take a way or a choice from NCCL.
_FORCING = frozenset(
    f"NCCL_{name}"
    for name in (
        "ALGO",
        "BUFFSIZE",
        "COLLNET_ENABLE",
        "CROSS_NIC",
        "IB_DISABLE",
        "IB_HCA",
        "MAX_CTAS",
        "MAX_NCHANNELS",
        "MIN_NCHANNELS",
        "MNNVL_ENABLE",
        "NET",
        "NET_DISABLE_INTRA",
        "NET_GDR_LEVEL",
        "NTHREADS",
        "NVLS_ENABLE",
        "P2P_DISABLE",
        "P2P_LEVEL",
        "PROTO",
        "PXN_DISABLE",
        "SHM_DISABLE",
        "TUNER_PLUGIN",
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclLog:
    """Everything read from one log, each kind in the order of its lines."""

    versions: tuple[facts.Version, ...] = ()
    members: tuple[facts.Rank, ...] = ()
    plugins: tuple[facts.Plugin, ...] = ()
    affinities: tuple[facts.Affinity, ...] = ()
    nics: tuple[facts.Nic, ...] = ()
    gpudirect: tuple[facts.GpuDirect, ...] = ()
    connections: tuple[facts.Connection, ...] = ()
    rings: tuple[facts.Ring, ...] = ()
    ring_places: tuple[facts.RingPlace, ...] = ()
    trees: tuple[facts.TreePlace, ...] = ()
    channel_counts: tuple[facts.ChannelCounts, ...] = ()
    graphs: tuple[facts.SearchedGraph, ...] = ()
    paths: tuple[facts.TopologyPath, ...] = ()
    tuning: tuple[facts.TuningEntry, ...] = ()
    thresholds: tuple[facts.ThreadThresholds, ...] = ()
    settings: tuple[facts.Setting, ...] = ()
    chosen: tuple[facts.Chosen, ...] = ()
    multicast: tuple[facts.Multicast, ...] = ()
    warnings: tuple[facts.Warned, ...] = ()
    remarks: tuple[facts.Remark, ...] = ()
    hosts: tuple[str, ...] = ()

    def version(self, what: str = "nccl") -> str | None:
        """The first version printed of nccl, cuda_driver or cuda_runtime."""
        return next((v.version for v in self.versions if v.what == what), None)

    @property
    def networks(self) -> tuple[str, ...]:
        """The networks that communicators use, each once: IB, Socket, AWS Libfabric."""
        return tuple(dict.fromkeys(p.name for p in self.plugins if p.kind == "used"))

    @property
    def communicators(self) -> tuple[str, ...]:
        """The ids of the communicators, in the order of their first line."""
        return tuple(dict.fromkeys(m.communicator for m in self.members))

    def ranks(self, communicator: str | None = None) -> tuple[int, ...]:
        """The ranks that the log shows of a communicator; None: of the largest."""
        return tuple(sorted({m.rank for m in self._of(communicator)}))

    def size(self, communicator: str | None = None) -> int | None:
        """How many ranks a communicator has; None where the log does not say."""
        return max((m.size for m in self._of(communicator)), default=None)

    def nodes(self, communicator: str | None = None) -> int | None:
        """How many nodes NCCL counts in a communicator; None where the log does not say."""
        return max((m.nodes for m in self._of(communicator) if m.nodes is not None), default=None)

    def _of(self, communicator: str | None) -> tuple[facts.Rank, ...]:
        if communicator is None:
            largest = max(self.members, key=lambda m: m.size, default=None)
            communicator = largest.communicator if largest else ""
        return tuple(m for m in self.members if m.communicator == communicator)

    def evidence(self) -> tuple[facts.Finding, ...]:
        """What may make the run slow, each with the lines that show it, in the order of lines."""
        found = (*_over_nics(self), *_inside(self), *_machine(self), *_by_hand(self))
        return tuple(sorted(found, key=lambda f: f.lines))


# The tuple that each kind of fact is kept in.
_PLACES: dict[type[facts.Fact], str] = {
    facts.Version: "versions", facts.Rank: "members", facts.Plugin: "plugins",
    facts.Affinity: "affinities", facts.Nic: "nics",
    facts.GpuDirect: "gpudirect", facts.Connection: "connections", facts.Ring: "rings",
    facts.RingPlace: "ring_places", facts.TreePlace: "trees",
    facts.ChannelCounts: "channel_counts", facts.SearchedGraph: "graphs",
    facts.TopologyPath: "paths", facts.TuningEntry: "tuning",
    facts.ThreadThresholds: "thresholds", facts.Setting: "settings", facts.Chosen: "chosen",
    facts.Multicast: "multicast", facts.Warned: "warnings", facts.Remark: "remarks",
}  # fmt: skip


def read_nccl_log(source: str | os.PathLike[str]) -> NcclLog:
    """What a log of NCCL_DEBUG=INFO says. source: a path, or the text itself.

    Order does not matter between processes: lines of many ranks may be mixed, cut or preceded by
    what a launcher puts there. SpecError where nothing of NCCL is in it.

    >>> log = read_nccl_log("node0:7:7 [0] NCCL INFO Channel 00/02 : 0 1 3 2")
    >>> log.rings[0].order
    (0, 1, 3, 2)
    """
    name, text = _text(source)
    kept: dict[str, list[facts.Fact]] = defaultdict(list)
    said = tuple(messages(text))
    for fact in nccl_lines.read(said):
        kept[_PLACES[type(fact)]].append(fact)
    hosts = dict.fromkeys(message.where.host for message in said)
    if not hosts:
        count = text.count("\n") + bool(text and not text.endswith("\n"))
        start = next((line.strip() for line in text.split("\n") if line.strip()), "")
        found = f"{count} lines, the first {start[:60]!r}" if start else "no text at all"
        raise SpecError([
            f"{name}: no line of NCCL: expected such as \"host:1:1 [0] NCCL INFO ...\", found "
            f"{found}; run with NCCL_DEBUG=INFO"
        ])  # fmt: skip
    tuples = {
        field.name: tuple(sorted(kept[field.name], key=lambda f: f.line))
        for field in fields(NcclLog)
        if field.name != "hosts"
    }
    known = tuple(host for host in hosts if host)
    return NcclLog(**tuples, hosts=known)  # type: ignore[arg-type]


def _text(source: str | os.PathLike[str]) -> tuple[str, str]:
    """A name for errors, and the text."""
    if isinstance(source, str) and ("\n" in source or "NCCL " in source or not source):
        return "text", source
    name = os.fspath(source)
    try:
        data = Path(source).read_bytes()
    except (OSError, ValueError) as error:
        raise SpecError([
            f"{name[:200]!r}: expected a file or a text with lines of NCCL_DEBUG=INFO: {error}"
        ]) from error  # fmt: skip
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return name, data.decode("utf-16", errors="replace")
    return name, data.decode("utf-8-sig", errors="replace")


def _lines(some: Iterable[facts.Fact]) -> tuple[int, ...]:
    return tuple(sorted({f.line for f in some}))


def _pairs(some: Iterable[facts.Connection]) -> str:
    """`0 -> 1, 1 -> 0 and 6 more`."""
    pairs = list(dict.fromkeys(
        " -> ".join("network" if r is None else str(r) for r in (c.source, c.destination))
        for c in some
    ))  # fmt: skip
    more = f" and {len(pairs) - 4} more" if len(pairs) > 4 else ""
    return ", ".join(pairs[:4]) + more


def _over_nics(log: NcclLog) -> Iterator[facts.Finding]:
    without: dict[str, list[facts.Connection]] = defaultdict(list)
    sockets = []
    for c in log.connections:
        if c.gpudirect is False and "Socket" not in c.network:
            without[f"{c.network}/{c.nic}"].append(c)
        elif "Socket" in c.network:
            sockets.append(c)
    for nic, some in without.items():
        yield facts.Finding(
            kind="gpudirect", lines=_lines(some),
            text=f"no GPUDirect RDMA over NIC {nic}: {_pairs(some)}",
        )  # fmt: skip
    off = [g for g in log.gpudirect if not g.enabled]
    if off:
        subjects = ", ".join(list(dict.fromkeys(g.subject for g in off))[:4])
        yield facts.Finding(
            kind="gpudirect", lines=_lines(off), text=f"GPUDirect RDMA disabled for {subjects}"
        )
    used = [p for p in log.plugins if p.kind == "used" and "Socket" in p.name]
    # Within one node no byte goes over the network that a communicator has.
    used = [p for p in used if not _one_node(log, p.communicator or None)]
    if sockets or used:
        text = f"sockets carry {_pairs(sockets)}" if sockets else "the network is sockets"
        lost = [r for r in log.remarks if "No device found" in r.text]
        failed = [p for p in log.plugins if p.kind == "failed"]
        text += f"; {lost[0].text}" if lost else ""
        yield facts.Finding(
            kind="sockets", lines=_lines((*sockets, *used, *lost, *failed)), text=text
        )


def _one_node(log: NcclLog, communicator: str | None) -> bool:
    """Whether the log says so, or shows every rank and one host only."""
    nodes, size = log.nodes(communicator), log.size(communicator)
    all_here = len(log.hosts) == 1 and len(log.ranks(communicator)) == size
    return nodes == 1 or (nodes is None and all_here)


def _inside(log: NcclLog) -> Iterator[facts.Finding]:
    shared = [c for c in log.connections if c.transport == "SHM"]
    if shared:
        yield facts.Finding(
            kind="host_memory", lines=_lines(shared),
            text=f"through host memory instead of peer to peer: {_pairs(shared)}",
        )  # fmt: skip
    refused = ("isAllDirectP2p 0", "isAllCudaP2p 0", "intraNodeP2pSupport 0", "disabled", " not ")
    off = [r for r in log.remarks if r.kind == "peer" and any(w in r.text for w in refused)]
    if off:
        yield facts.Finding(
            kind="peer", lines=_lines(off), text=f"not all GPUs reach each other: {off[0].text}"
        )
    none = [m for m in log.multicast if not m.available]
    if none:
        yield facts.Finding(
            kind="nvls", lines=_lines(none), text="no NVLink multicast, so no NVLS algorithm"
        )


def _machine(log: NcclLog) -> Iterator[facts.Finding]:
    blind = [r for r in log.remarks if r.kind == "topology"]
    if blind:
        yield facts.Finding(
            kind="topology", lines=_lines(blind),
            text=f"NCCL could not read the machine and takes a default: {blind[0].text}",
        )  # fmt: skip
    by_line: dict[int, list[facts.Nic]] = defaultdict(list)
    for nic in log.nics:
        by_line[nic.line].append(nic)
    for line, nics in by_line.items():
        links = Counter(n.link for n in nics if n.link)
        if len(links) > 1:
            rare = min(links, key=lambda link: links[link])
            odd = ", ".join(n.name for n in nics if n.link == rare)
            yield facts.Finding(
                kind="nics", lines=(line,),
                text=f"NICs of unlike kinds are used together: {odd} is {rare}, others are not",
            )  # fmt: skip
    seen: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    for nic in log.nics:
        seen[nic.network][nic.host].add(nic.index)
    for network, hosts in seen.items():
        counts = {host: len(indices) for host, indices in hosts.items()}
        if len(set(counts.values())) > 1:
            few = min(counts, key=lambda host: counts[host])
            yield facts.Finding(
                kind="nics",
                lines=_lines(n for n in log.nics if (n.network, n.host) == (network, few)),
                text=f"{few} has {counts[few]} {network} NICs, others {max(counts.values())}",
            )


def _by_hand(log: NcclLog) -> Iterator[facts.Finding]:
    forced: dict[tuple[str, str], list[facts.Setting]] = defaultdict(list)
    for s in log.settings:
        if s.name in _FORCING:
            forced[s.name, s.value].append(s)
    for (name, value), some in forced.items():
        yield facts.Finding(kind="setting", lines=_lines(some), text=f"{name}={value} is set")
    warned: dict[str, list[facts.Warned]] = defaultdict(list)
    for w in log.warnings:
        warned[w.text].append(w)
    for text, some_warned in warned.items():
        yield facts.Finding(
            kind="warning", lines=_lines(some_warned), text=f"NCCL warns: {text[:200]}"
        )
