"""The nodes of a Chakra execution trace in JSON as a recording.

A trace is one document with a list of nodes, or one document for each, as Chakra's own converter to
JSON leaves them. It holds durations and who waits for whom, but no moments: everything begins as
soon as it can.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from commsim.errors import SpecError
from commsim.traces import call_names as names
from commsim.traces import json_stream
from commsim.traces.assembly import numbered
from commsim.traces.chakra_step import COLLECTIVE, EXACT, MESSAGES, TYPES
from commsim.traces.line import PAUSE
from commsim.traces.metadata import number, ranks_of
from commsim.traces.recording import (
    COMMUNICATION,
    COMPUTE,
    COPY,
    SEND,
    WAIT,
    Call,
    Event,
    Group,
    Recording,
    Watch,
)  # fmt: skip
from commsim.units import Seconds

EXPECTED = "a Chakra execution trace as JSON (globalMetadata and nodes)"
RANK = re.compile(r"(\d{1,7})(?:\.\w+)*$")


@dataclass(slots=True, kw_only=True)
class _Read:
    """A node as it is understood. duration: nan where it has none."""

    identity: int
    name: str
    type: str
    after: tuple[int, ...]
    duration: Seconds
    attributes: Mapping[str, Any] = field(default_factory=dict)


def read(path: str | os.PathLike[str], watch: Watch | None = None) -> Recording:
    """What a file holds; SpecError says what is wrong with it and where."""
    nodes, top = _nodes(path, watch)
    order = _played(nodes, path)
    events = tuple(_events(order, path))
    match = RANK.search(Path(path).name)
    told = _attributes(top.get("attr"))
    rank, world = number(told.get("rank")), number(told.get("world_size"))
    if rank is None:
        rank = int(match[1]) if match else 0
    groups = _groups(path, match)
    for event in events:
        if event.call is not None:
            groups.setdefault(event.call.group, Group(name=event.call.group))
    notes = (
        "comm_size is taken for the operation's size as nccl-tests counts it",
        "a Chakra trace holds durations but no moments: everything begins as soon as it can",
    )
    return Recording(
        rank=max(0, rank), world=max(0, world or 0), format="chakra", source=str(path),
        events=numbered(events), groups=groups, timed=False, notes=notes,
    )  # fmt: skip


def _groups(path: str | os.PathLike[str], match: re.Match[str] | None) -> dict[str, Group]:
    """The groups that the file beside lists; none where there is no such file."""
    if match is None:
        return {}
    here = Path(path)
    beside = here.with_name(f"{here.name[: match.start()]}groups.json")
    try:
        listed = json.loads(beside.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return {
        str(name): Group(name=str(name), ranks=ranks_of(ranks))
        for name, ranks in (listed.items() if isinstance(listed, dict) else ())
    }


def _nodes(
    path: str | os.PathLike[str], watch: Watch | None
) -> tuple[list[_Read], Mapping[str, Any]]:
    """The nodes of one document, or of a document each; and the metadata."""
    found: list[_Read] = []
    documents: list[dict[str, Any]] = []
    for key, value in json_stream.values(path, "nodes", EXPECTED, watch):
        if key == "{}":
            documents.append({})
        elif key == "[]":
            found.append(_understood(value, len(found), path))
        elif documents:
            documents[-1][key] = value
    top: Mapping[str, Any] = {}
    for each in documents:
        if "type" in each and "id" in each:
            found.append(_understood(each, len(found), path))
        elif isinstance(each.get("globalMetadata"), dict):
            top = each["globalMetadata"]
        elif "attr" in each and not top:
            top = each
    if not found:
        raise SpecError([f"{path}: no nodes; expected {EXPECTED}"])
    return found, top


def _understood(node: Any, place: int, path: str | os.PathLike[str]) -> _Read:
    identity = number(node.get("id", 0)) if isinstance(node, dict) else None
    if identity is None or not isinstance(node.get("type"), str):
        raise SpecError(
            [f"{path}: node {place}: expected an object with id and type (COMP_NODE, COMM_COLL_NODE"
             f" ...), found {str(node)[:40]!r}"]
        )  # fmt: skip
    after: list[int] = []
    for key in ("dataDeps", "ctrlDeps", "data_deps", "ctrl_deps"):
        listed = node.get(key)
        after += [d for v in (listed if isinstance(listed, list) else ())
                  if (d := number(v)) is not None]  # fmt: skip
    attributes = _attributes(node.get("attr"))
    exact = number(attributes.get(EXACT))
    micros = number(node.get("durationMicros", node.get("duration_micros")))
    duration = math.nan
    if exact is not None or micros is not None:
        duration = (micros or 0) * 1e-6 if exact is None else exact * 1e-9
        duration = min(max(0.0, duration), 1e9)
    return _Read(
        identity=identity, name=str(node.get("name", "")), type=node["type"],
        after=tuple(dict.fromkeys(after)), duration=duration, attributes=attributes,
    )  # fmt: skip


def _attributes(listed: Any) -> dict[str, Any]:
    """Values by name, whatever their type is called."""
    found: dict[str, Any] = {}
    for each in listed if isinstance(listed, list) else ():
        if isinstance(each, dict):
            value = [v for k, v in each.items() if k not in ("name", "docString", "doc_string")]
            found[str(each.get("name"))] = value[0] if value else None
    return found


def _played(nodes: list[_Read], path: str | os.PathLike[str]) -> list[_Read]:
    """The nodes, each behind those it waits for; SpecError where they wait for each other."""
    place = {node.identity: i for i, node in enumerate(nodes)}
    if len(place) < len(nodes):
        raise SpecError([f"{path}: two nodes have one id; expected an id each"])
    unblocks: list[list[int]] = [[] for _ in nodes]
    left = [0] * len(nodes)
    for i, node in enumerate(nodes):
        for other in node.after:
            if other in place and other != node.identity:
                unblocks[place[other]].append(i)
                left[i] += 1
    ready = deque(i for i, n in enumerate(left) if not n)
    order = []
    while ready:
        i = ready.popleft()
        order.append(nodes[i])
        for j in unblocks[i]:
            left[j] -= 1
            if not left[j]:
                ready.append(j)
    if len(order) < len(nodes):
        stuck = next(node for node, n in zip(nodes, left, strict=True) if n)
        raise SpecError([f"{path}: node {stuck.identity} waits for itself; expected no circle"])
    return order


def _events(order: list[_Read], path: str | os.PathLike[str]) -> list[Event]:
    """The nodes as soon as they can begin."""
    found: list[Event] = []
    place: dict[int, int] = {}
    free: dict[str, Seconds] = {}
    ends: list[Seconds] = []
    for node in order:
        call = _call(node, path)
        kind = str(node.attributes.get("kind") or (COMPUTE if call is None else COMMUNICATION))
        if call is None and kind not in (COMPUTE, COPY, WAIT, PAUSE):
            kind = COMPUTE
        stream = str(node.attributes.get("stream") or _stream(call))
        after = tuple(place[w] for w in node.after if w in place)
        start = max([free.get(stream, 0.0), *(ends[w] for w in after)])
        known = 0.0 if math.isnan(node.duration) else node.duration
        end = start + (known if call is None else node.duration)
        place[node.identity] = len(found)
        free[stream] = start + known
        ends.append(start + known)
        found.append(
            Event(name=node.name, kind=COMMUNICATION if call else kind, stream=stream, start=start,
                  end=end, call=call, after=after)
        )  # fmt: skip
    return found


def _stream(call: Call | None) -> str:
    if call is None:
        return "computing"
    return f"{call.operation} {call.peer}" if call.is_message else f"group {call.group}"


def _call(node: _Read, path: str | os.PathLike[str]) -> Call | None:
    known = node.attributes
    size = number(known.get("comm_size"))
    nbytes = size if size is not None and 0 <= size < 1 << 56 else None
    dtype = names.dtype(str(known.get("dtype", "uint8")))
    for operation, kind in MESSAGES.items():
        if node.type == kind:
            peer = number(known.get("comm_dst" if operation == SEND else "comm_src"))
            return Call(operation=operation, nbytes=nbytes, dtype=dtype, peer=peer)
    if node.type != COLLECTIVE:
        return None
    told = known.get("comm_type")
    kind_number = number(told)
    operation = names.operation(str(told)) or ""
    if kind_number is not None and 0 <= kind_number < len(TYPES):
        operation = TYPES[kind_number]
    if not operation:
        raise SpecError(
            [f"{path}: node {node.identity}: comm_type: expected 0 to {len(TYPES) - 1}, got"
             f" {str(told)[:20]!r}"]
        )  # fmt: skip
    return Call(
        operation=operation, nbytes=nbytes, dtype=dtype, group=str(known.get("pg_name", ""))
    )
