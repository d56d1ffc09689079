"""Messages of an NCCL log about a communicator: its ranks, connections, rings, trees, graphs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from commsim.measurements import nccl_facts as facts
from commsim.measurements.nccl_facts import Fact
from commsim.measurements.nccl_messages import Message
from commsim.measurements.nccl_reader import NUMBER, REAL, State, at, reads


@reads(
    r"(?:\[Rank \d+\] )?(?:ncclCommInit\w* )?comm (0x\w+) rank (\d{1,9}) nranks (\d{1,9})"
    r"(?: cudaDev \d+)?(?: nvmlDev \d+)?(?: busId (\w+))?(?: commId (0x\w+))?"
    r"(?: - Init\b|$)"
)
def joined(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
    host, process, _ = line.thread
    # Older versions print no id, and a pointer differs between processes: the size must do.
    name = m[5] or state.pointers.get((host, process, m[1])) or f"{m[3]} ranks"
    state.communicators[host, process, line.where.device] = name
    state.pointers[host, process, m[1]] = name
    yield at(line, facts.Rank, rank=int(m[2]), size=int(m[3]), bus=m[4] or "", communicator=name)


@reads(r"comm (0x\w+) rank (\d{1,9}) nRanks (\d{1,9}) nNodes (\d{1,9}) localRanks (\d{1,9})")
def laid(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
    host, process, _ = line.thread
    name = state.pointers.get((host, process, m[1]), line.where.communicator)
    yield at(
        line, facts.Rank, rank=int(m[2]), size=int(m[3]), nodes=int(m[4]), local_ranks=int(m[5]),
        communicator=name,
    )  # fmt: skip


_VIA = re.compile(r"(NET|COLLNET)/([^/]{1,60})/(\d{1,4})(?:\(\d+\))?((?:/\S{1,40})*)$")


@reads(
    r"(?:Channel|Ring) (\d{1,4})(?:/\d+)? : (\d{1,9})\[\w+\] -> (\d{1,9})\[\w+\]"
    r" ?(?:\[(\w+)\] )?via (.{1,120})"
)
def connection(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
    yield _way(line, int(m[1]), int(m[2]), int(m[3]), m[4] or "", m[5].strip())


@reads(r"CollNet (\d{1,4})(?:/\d+)? ?: (\d{1,9})(?:\[\w+\])? \[(\w+)\] via (.{1,120})")
def collnet(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
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
    made: Fact = at(
        line, facts.Connection, channel=channel, source=source, destination=to,
        direction=direction, via=via, **values,
    )  # fmt: skip
    return made


@reads(r"Channel (\d{1,4})/(\d{1,4}) :((?: +\d{1,9})+) *(\.\.\.)?$")
def ring(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
    order = tuple(int(rank) for rank in m[3].split())
    yield at(
        line, facts.Ring, channel=int(m[1]), channels=int(m[2]), order=order, complete=not m[4]
    )


@reads(rf"Ring (\d{{1,4}}) : {NUMBER} -> {NUMBER} -> {NUMBER}\s*$")
def ring_place(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
    yield at(
        line, facts.RingPlace, channel=int(m[1]), previous=int(m[2]), rank=int(m[3]),
        following=int(m[4]),
    )  # fmt: skip


_TREE = re.compile(
    rf"\[(\d{{1,4}})\] ((?:{NUMBER}/){{1,8}}-?\d{{1,9}})->{NUMBER}->{NUMBER}(?![\d/])"
)


@reads(r"Trees \[")
def trees(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
    for tree in _TREE.finditer(line.text):
        yield _tree(line, int(tree[1]), int(tree[4]), int(tree[5]), tree[2])


@reads(rf"Tree (\d{{1,4}}) : {NUMBER} -> {NUMBER} -> ([-\d/]{{1,80}})")
def tree_place(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
    yield _tree(line, int(m[1]), int(m[3]), int(m[2]), m[4])


def _tree(line: Message, channel: int, rank: int, parent: int, children: str) -> Fact:
    below = tuple(int(c[:9]) for c in children.split("/") if c.isdecimal())
    made: Fact = at(
        line, facts.TreePlace, channel=channel, rank=rank,
        parent=parent if parent >= 0 else None, children=below,
    )  # fmt: skip
    return made


_COUNT = re.compile(r"(\d{1,6}) (\w+) channels( per peer)?")


@reads(r"\d+ coll channels, ")
def counts(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
    found = {name + per: int(n) for n, name, per in _COUNT.findall(line.text)}
    if {"coll", "p2p", "p2p per peer"} <= found.keys():
        yield at(
            line, facts.ChannelCounts, coll=found["coll"], collnet=found.get("collnet"),
            nvls=found.get("nvls"), p2p=found["p2p"], p2p_per_peer=found["p2p per peer"],
        )  # fmt: skip


@reads(
    rf"Pattern (\d{{1,2}}), crossNic (\d{{1,2}}), nChannels (\d{{1,4}}), (?:bw|speed)"
    rf" {REAL}/{REAL}, type (\w+)/(\w+)(?:, sameChannels (\d))?"
)
def graph(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
    if line.thread in state.graphs:
        yield state.graphs.pop(line.thread)
    state.graphs[line.thread] = at(
        line, facts.SearchedGraph, pattern=int(m[1]), cross_nic=int(m[2]), channels=int(m[3]),
        bandwidth_intra=float(m[4]) * 1e9, bandwidth_inter=float(m[5]) * 1e9,
        type_intra=m[6], type_inter=m[7], same_channels=bool(int(m[8])) if m[8] else None,
    )  # fmt: skip


@reads(r" *\d{1,4} :((?: [A-Z]{2,4}/[\w-]{1,40}){1,2000})\s*$")
def graph_path(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
    graph = state.graphs.get(line.thread)
    if graph is not None and len(graph.paths) < graph.channels:
        path = tuple(m[1].split())
        state.graphs[line.thread] = replace(graph, paths=(*graph.paths, path))
    yield from ()


_PATH = re.compile(rf"([A-Z]{{2,4}}/[\w-]{{1,40}}) \((\d{{1,4}})/{REAL}/(\w+)\)")


@reads(r"([A-Z]{2,4}/[\w-]{1,40}) :[A-Z]{2,4}/")
def paths(state: State, line: Message, m: re.Match[str]) -> Iterator[Fact]:
    for to in _PATH.finditer(line.text, m.end(1)):
        yield at(
            line, facts.TopologyPath, source=m[1], target=to[1], hops=int(to[2]),
            bandwidth=float(to[3]) * 1e9, type=to[4],
        )  # fmt: skip
