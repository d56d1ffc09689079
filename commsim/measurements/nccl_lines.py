"""Messages of an NCCL_DEBUG=INFO log to facts: one pattern and one function per kind of message.

The forms are those that NCCL 2.8 to 2.30 print. Every pattern is bounded, so that no text is slow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from commsim.measurements import nccl_facts as facts
from commsim.measurements.nccl_facts import Fact
from commsim.measurements.nccl_messages import Message, Thread

_NUMBER = r"(-?\d{1,9})"
_REAL = r"(\d{1,9}(?:\.\d{1,9})?)"

ALGORITHMS = ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
PROTOCOLS = ("LL", "LL128", "Simple")
_ALGORITHM = {name.replace("_", ""): name for name in ALGORITHMS}
_PROTOCOL = {name.lower(): name for name in PROTOCOLS}
_OPERATIONS = {
    "Broadcast": "broadcast", "Reduce": "reduce", "AllGather": "all_gather",
    "ReduceScatter": "reduce_scatter", "AllReduce": "all_reduce",
}  # fmt: skip

_Reading = Callable[["State", Message, re.Match[str]], Iterator[Fact]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    """Which messages it reads, from their beginning, and the facts in one."""

    pattern: re.Pattern[str]
    facts: _Reading


def _reads(pattern: str) -> Callable[[_Reading], _Reader]:
    return lambda reading: _Reader(pattern=re.compile(pattern), facts=reading)


@dataclass(slots=True, kw_only=True)
class State:
    """What a thread said before that its next line needs: only alive while a text is read."""

    communicators: dict[tuple[str, str, int | None], str] = field(default_factory=dict)
    pointers: dict[tuple[str, str, str], str] = field(default_factory=dict)
    columns: dict[Thread, list[tuple[str, str]]] = field(default_factory=dict)
    algorithms: dict[Thread, list[str]] = field(default_factory=dict)
    threads: dict[Thread, list[int]] = field(default_factory=dict)
    graphs: dict[Thread, facts.SearchedGraph] = field(default_factory=dict)


def _at(line: Message, kind: type[Any], /, **values: Any) -> Any:
    at = line.where
    return kind(
        line=at.line, host=at.host, device=at.device,
        **{"communicator": at.communicator, **values},
    )  # fmt: skip


@_reads(r"NCCL version (\d[\w.-]{0,40})(?:\+cuda(\d[\w.]{0,20}))?")
def _version(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
    yield _at(line, facts.Version, what="nccl", version=m[1])
    if m[2]:
        yield _at(line, facts.Version, what="cuda_runtime", version=m[2])


def _cuda(number: str) -> str:
    """13.1 of 13010."""
    return f"{int(number) // 1000}.{int(number) % 1000 // 10}"


@_reads(r"cudaDriverVersion (\d{4,6})|.{0,40}CUDA driver version (\d{4,6}) with runtime (\d{4,6})")
def _driver(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
    yield _at(line, facts.Version, what="cuda_driver", version=_cuda(m[1] or m[2]))
    if m[3]:
        yield _at(line, facts.Version, what="cuda_runtime", version=_cuda(m[3]))


@_reads(
    r"(?:\[Rank \d+\] )?(?:ncclCommInit\w* )?comm (0x\w+) rank (\d{1,9}) nranks (\d{1,9})"
    r"(?: cudaDev \d+)?(?: nvmlDev \d+)?(?: busId (\w+))?(?: commId (0x\w+))?"
    r"(?: - Init\b|$)"
)
def _joined(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
    host, process, _ = line.thread
    # Older versions print no id, and a pointer differs between processes: the size must do.
    name = m[5] or state.pointers.get((host, process, m[1])) or f"{m[3]} ranks"
    state.communicators[host, process, line.where.device] = name
    state.pointers[host, process, m[1]] = name
    yield _at(line, facts.Rank, rank=int(m[2]), size=int(m[3]), bus=m[4] or "", communicator=name)


@_reads(r"comm (0x\w+) rank (\d{1,9}) nRanks (\d{1,9}) nNodes (\d{1,9}) localRanks (\d{1,9})")
def _laid(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
    host, process, _ = line.thread
    name = state.pointers.get((host, process, m[1]), line.where.communicator)
    yield _at(
        line, facts.Rank, rank=int(m[2]), size=int(m[3]), nodes=int(m[4]), local_ranks=int(m[5]),
        communicator=name,
    )  # fmt: skip


@_reads(r"(?:Using network|Assigned NET plugin) (.{1,100}?)(?: to comm)?\s*$")
def _used(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
    yield _at(line, facts.Plugin, kind="used", name=m[1])


@_reads(r"NET/Plugin ?: Loaded (net|collnet|coll) plugin (.{1,100}?)\s*$")
def _plugin(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
    yield _at(line, facts.Plugin, kind="net" if m[1] == "net" else "collnet", name=m[2])


_PLUGIN_KINDS = {
    "P2P plugin": "p2p", "Plugin Path": "path", "Could not find": "missing",
    "Failed to find": "missing", "Failed to initialize NET plugin": "failed",
}  # fmt: skip


@_reads(
    r"(?:\w+/Plugin ?: )?(P2P plugin|Plugin Path|Could not find|Failed to find"
    r"|Failed to initialize NET plugin) ?:? (.{1,200})"
)
def _plugin_part(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
    kind, name = _PLUGIN_KINDS[m[1]], m[2].strip()
    name = name.split()[0].rstrip(".,") if kind == "missing" and name else name
    yield _at(line, facts.Plugin, kind=kind, name=name)


@_reads(
    r"(?:NET/OFI )?(?:Using (Libfabric) version|Initializing (aws-ofi-nccl)|(Plugin) version ?:)"
    r" (\S{1,60})"
)
def _plugin_version(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
    what = (m[1] or m[2] or m[3]).lower().replace("-", "_")
    yield _at(line, facts.Version, what=what, version=m[4])


@_reads(
    r"(?:\w+: Affinity for GPU (\d{1,4}) is ([\w,-]{1,400})"
    r"|Setting affinity for GPU (\d{1,4}) to ([\w,-]{1,400}))"
)
def _affinity(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
    yield _at(line, facts.Affinity, gpu=int(m[1] or m[3]), cpus=m[2] or m[4])


_NIC = re.compile(
    r"\[(\d{1,4})\]=?\{?(?:\[\d+\] ?)?([^\s:\[\]{},;]{1,80})(?::([^\s\[\]{},;]{1,80}))?"
)


@_reads(r"NET/([\w ]{1,40}?) ?: Using (\[\d.{0,20000})")
def _nics(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
    for nic in _NIC.finditer(m[2].split(" OOB ")[0]):
        port, _, kind = (nic[3] or "").partition("/")
        address = not port.isdecimal() or len(port) > 4
        yield _at(
            line, facts.Nic, network=m[1], index=int(nic[1]), name=nic[2],
            port=None if address else int(port), link="" if address else kind.split("/")[0],
            sharp=not address and kind.endswith("SHARP"),
        )  # fmt: skip


@_reads(
    r"NET/IB ?: \[(\d{1,4})\] ([^\s:]{1,80}):[^\s:]{1,80}:(\d{1,4})/(\w+)\b"
    r".{0,40}? speed=(\d{1,9})\b"
)
def _nic_speed(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
    yield _at(
        line, facts.Nic, network="IB", index=int(m[1]), name=m[2], port=int(m[3]), link=m[4],
        bandwidth=int(m[5]) * 1e6 / 8,
    )  # fmt: skip


@_reads(r"NET/IB ?: Made virtual device \[(\d{1,4})\] name=(\S{1,200}) speed=(\d{1,9})\b")
def _nic_joined(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
    yield _at(
        line, facts.Nic, network="IB", index=int(m[1]), name=m[2], bandwidth=int(m[3]) * 1e6 / 8
    )


@_reads(r"(?:NET/\w+ ?: )?GPU Direct RDMA (Enabled|Disabled) for (.{1,120})")
def _gpudirect(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
    yield _at(line, facts.GpuDirect, subject=m[2].strip(), enabled=m[1] == "Enabled")


_VIA = re.compile(r"(NET|COLLNET)/([^/]{1,60})/(\d{1,4})(?:\(\d+\))?((?:/\S{1,40})*)$")


@_reads(
    r"(?:Channel|Ring) (\d{1,4})(?:/\d+)? : (\d{1,9})\[\w+\] -> (\d{1,9})\[\w+\]"
    r" ?(?:\[(\w+)\] )?via (.{1,120})"
)
def _connection(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
    yield _way(line, int(m[1]), int(m[2]), int(m[3]), m[4] or "", m[5].strip())


@_reads(r"CollNet (\d{1,4})(?:/\d+)? ?: (\d{1,9})(?:\[\w+\])? \[(\w+)\] via (.{1,120})")
def _collnet(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
    rank, sends = int(m[2]), m[3] == "send"
    ends = (rank, None) if sends else (None, rank)
    yield _way(line, int(m[1]), ends[0], ends[1], m[3], m[4].strip())


def _way(
    line: Message, channel: int, source: int | None, to: int | None, direction: str, via: str
) -> Fact:
    values: dict[str, Any] = {"transport": via.split("/")[0]}
    if over := _VIA.match(via):
        values |= {
            "transport": over[1], "network": over[2], "nic": int(over[3]),
            "gpudirect": "/GDRDMA" in over[4],
        }  # fmt: skip
    made: Fact = _at(
        line, facts.Connection, channel=channel, source=source, destination=to,
        direction=direction, via=via, **values,
    )  # fmt: skip
    return made


@_reads(r"Channel (\d{1,4})/(\d{1,4}) :((?: +\d{1,9})+) *(\.\.\.)?$")
def _ring(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
    order = tuple(int(rank) for rank in m[3].split())
    yield _at(
        line, facts.Ring, channel=int(m[1]), channels=int(m[2]), order=order, complete=not m[4]
    )


@_reads(rf"Ring (\d{{1,4}}) : {_NUMBER} -> {_NUMBER} -> {_NUMBER}\s*$")
def _ring_place(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
    yield _at(
        line, facts.RingPlace, channel=int(m[1]), previous=int(m[2]), rank=int(m[3]),
        following=int(m[4]),
    )  # fmt: skip


_TREE = re.compile(
    rf"\[(\d{{1,4}})\] ((?:{_NUMBER}/){{1,8}}-?\d{{1,9}})->{_NUMBER}->{_NUMBER}(?![\d/])"
)


@_reads(r"Trees \[")
def _trees(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
    for tree in _TREE.finditer(line.text):
        yield _tree(line, int(tree[1]), int(tree[4]), int(tree[5]), tree[2])


@_reads(rf"Tree (\d{{1,4}}) : {_NUMBER} -> {_NUMBER} -> ([-\d/]{{1,80}})")
def _tree_place(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
    yield _tree(line, int(m[1]), int(m[3]), int(m[2]), m[4])


def _tree(line: Message, channel: int, rank: int, parent: int, children: str) -> Fact:
    below = tuple(int(c[:9]) for c in children.split("/") if c.isdecimal())
    made: Fact = _at(
        line, facts.TreePlace, channel=channel, rank=rank,
        parent=parent if parent >= 0 else None, children=below,
    )  # fmt: skip
    return made


_COUNT = re.compile(r"(\d{1,6}) (\w+) channels( per peer)?")


@_reads(r"\d+ coll channels, ")
def _counts(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
    found = {name + per: int(n) for n, name, per in _COUNT.findall(line.text)}
    if {"coll", "p2p", "p2p per peer"} <= found.keys():
        yield _at(
            line, facts.ChannelCounts, coll=found["coll"], collnet=found.get("collnet"),
            nvls=found.get("nvls"), p2p=found["p2p"], p2p_per_peer=found["p2p per peer"],
        )  # fmt: skip


@_reads(
    rf"Pattern (\d{{1,2}}), crossNic (\d{{1,2}}), nChannels (\d{{1,4}}), (?:bw|speed)"
    rf" {_REAL}/{_REAL}, type (\w+)/(\w+)(?:, sameChannels (\d))?"
)
def _graph(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
    if line.thread in state.graphs:
        yield state.graphs.pop(line.thread)
    state.graphs[line.thread] = _at(
        line, facts.SearchedGraph, pattern=int(m[1]), cross_nic=int(m[2]), channels=int(m[3]),
        bandwidth_intra=float(m[4]) * 1e9, bandwidth_inter=float(m[5]) * 1e9,
        type_intra=m[6], type_inter=m[7], same_channels=bool(int(m[8])) if m[8] else None,
    )  # fmt: skip


@_reads(r" *\d{1,4} :((?: [A-Z]{2,4}/[\w-]{1,40}){1,2000})\s*$")
def _graph_path(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
    graph = state.graphs.get(line.thread)
    if graph is not None and len(graph.paths) < graph.channels:
        path = tuple(m[1].split())
        state.graphs[line.thread] = replace(graph, paths=(*graph.paths, path))
    yield from ()


_PATH = re.compile(rf"([A-Z]{{2,4}}/[\w-]{{1,40}}) \((\d{{1,4}})/{_REAL}/(\w+)\)")


@_reads(r"([A-Z]{2,4}/[\w-]{1,40}) :[A-Z]{2,4}/")
def _paths(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
    for to in _PATH.finditer(line.text, m.end(1)):
        yield _at(
            line, facts.TopologyPath, source=m[1], target=to[1], hops=int(to[2]),
            bandwidth=float(to[3]) * 1e9, type=to[4],
        )  # fmt: skip


@_reads(r"\s*(Algorithm|Protocol|Max NThreads|Latency/AlgBw)\s*\|(.{1,4000})")
def _table_head(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
    cells = [cell.strip() for cell in m[2].rstrip().rstrip("|").split("|")]
    if m[1] == "Algorithm":
        state.algorithms[line.thread] = [algorithm(cell) for cell in cells]
        state.threads.pop(line.thread, None)
    elif m[1] == "Protocol":
        # The last block names protocols for algorithms that it does not have.
        above = (a for a in state.algorithms.get(line.thread, []) for _ in PROTOCOLS)
        state.columns[line.thread] = [
            (a, protocol(cell)) for a, cell in zip(above, cells, strict=False)
        ]
    elif m[1] == "Max NThreads":
        state.threads[line.thread] = [int(c) if c.isdecimal() and len(c) < 9 else 0 for c in cells]
    else:
        pairs = [cell.partition("/") for cell in cells]
        state.columns[line.thread] = [(algorithm(a), protocol(p)) for a, _, p in pairs]
        state.threads.pop(line.thread, None)
    yield from ()


_ENTRY = re.compile(rf"\s*{_REAL}/\s*{_REAL}\s*$")


@_reads(r"\s*(Broadcast|Reduce|AllGather|ReduceScatter|AllReduce)\s*\|(.{1,4000})")
def _table_row(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
    threads = state.threads.get(line.thread, [])
    columns = state.columns.get(line.thread, [])
    for i, (cell, (a, p)) in enumerate(zip(m[2].split("|"), columns, strict=False)):
        if entry := _ENTRY.match(cell):
            yield _at(
                line, facts.TuningEntry, operation=_OPERATIONS[m[1]], algorithm=a, protocol=p,
                latency=float(entry[1]) * 1e-6, bandwidth=float(entry[2]) * 1e9,
                threads=threads[i] if i < len(threads) else None,
            )  # fmt: skip


@_reads(r"threadThresholds ([\d/| ]{1,400})")
def _thresholds(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
    rows = [
        [int(n[:9]) for n in row.split("/") if n.strip().isdecimal()] for row in m[1].split("|")
    ]
    yield _at(line, facts.ThreadThresholds, thresholds=tuple(tuple(row) for row in rows if row))


@_reads(r"(NCCL_\w{1,80}) set by environment to (.{0,1000})")
def _setting(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
    value = m[2].strip()
    if re.fullmatch(r"-?\d+\.", value):  # NCCL ends its sentence only after a number
        value = value[:-1]
    yield _at(line, facts.Setting, name=m[1], value=value)


@_reads(
    r"(?:(\w{1,40}): )?(\d{1,18}) Bytes -> Algo (\w{1,30}) proto (\w{1,20})"
    rf"(?: time {_REAL})?(?: channel\{{Lo\.\.Hi\}}=\{{(\d{{1,4}})\.\.(\d{{1,4}})\}})?"
)
def _chosen(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
    yield _at(
        line, facts.Chosen, operation=_OPERATIONS.get(m[1], m[1] or ""), nbytes=int(m[2]),
        algorithm=algorithm(m[3]), protocol=protocol(m[4]),
        channels=(int(m[6]), int(m[7])) if m[6] else None,
        duration=float(m[5]) * 1e-6 if m[5] else None,
    )  # fmt: skip


@_reads(
    r"NVLS multicast support is (not )?available on dev (\d{1,4})"
    r"(?: \(NVLS_NCHANNELS (\d{1,4})\))?"
)
def _multicast(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
    channels = int(m[3]) if m[3] else None
    yield _at(line, facts.Multicast, gpu=int(m[2]), available=not m[1], channels=channels)


_REMARKS = (
    ("topology", re.compile(r"Topology detection ?: could not|KV Convert to int ?: could not")),
    ("peer", re.compile(r"Check P2P Type|P2P is disabled|.{0,200}P2P.{0,40}not (?:possible|supp)")),
    ("network", re.compile(r"NET/\w+ ?: No device found|Connected all rings, use ring PXN"
                           r"|NET/OFI (?:Selected|Support)|DMA-BUF|Bootstrap ?: Using|MNNVL ")),
    ("collnet", re.compile(r".{0,200}(?:CollNet|SHARP|COLLNET)")),
    ("nvls", re.compile(r"NVLS")),
)  # fmt: skip


@_reads("")
def _remark(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
    for kind, pattern in _REMARKS:
        if pattern.match(line.text):
            yield _at(line, facts.Remark, kind=kind, text=line.text.strip()[:400])
            return


def algorithm(text: str) -> str:
    """`collnet_direct` of CollNetDirect, COLLNET_DIRECT or 2; a name not known stays."""
    text = text.strip()
    if text.isdecimal() and int(text[:4]) < len(ALGORITHMS):
        return ALGORITHMS[int(text[:4])]
    return _ALGORITHM.get(text.replace("_", "").lower(), text)


def protocol(text: str) -> str:
    """`Simple` of SIMPLE, Simple or 2; a name not known stays."""
    text = text.strip()
    if text.isdecimal() and int(text[:4]) < len(PROTOCOLS):
        return PROTOCOLS[int(text[:4])]
    return _PROTOCOL.get(text.lower(), text)


# The first that fits reads the message.
_READERS = (
    _version, _driver, _joined, _laid, _used, _plugin, _plugin_part, _plugin_version, _affinity,
    _nics, _nic_speed, _nic_joined, _gpudirect, _connection, _collnet, _ring, _ring_place,
    _trees, _tree_place, _counts, _graph, _graph_path, _paths, _table_head, _table_row,
    _thresholds, _setting, _chosen, _multicast, _remark,
)  # fmt: skip


def read(messages: Iterable[Message]) -> Iterator[Fact]:
    """Every fact, in the order of the messages; a graph comes once its last path is read."""
    state = State()
    for line in messages:
        process = (line.where.host, line.thread[1], line.where.device)
        known = state.communicators.get(process, "")
        line = replace(line, where=replace(line.where, communicator=known))
        if line.level in ("WARN", "ERROR", "ABORT"):
            yield _at(line, facts.Warned, place=line.place, text=line.text.strip())
        for reader in _READERS:
            if match := reader.pattern.match(line.text):
                yield from reader.facts(state, line, match)
                break
    yield from state.graphs.values()
