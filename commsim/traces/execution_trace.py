"""PyTorch's execution traces (ExecutionTraceObserver; Chakra host traces): what was called, without
times.

The operations and their order come from record_param_comms (NCCL) or from c10d's ops (Gloo). As
the files hold no times, computing takes none; beside the profiler's trace of the same rank only the
latter is used.

Source: PyTorch 2.13, torch/csrc/profiler/standalone/execution_trace_observer.cpp, schema
1.1.1-chakra.0.0.4.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from commsim.errors import SpecError
from commsim.traces import call_names as names
from commsim.traces import json_stream, metadata
from commsim.traces.assembly import numbered
from commsim.traces.host_ops import C10D, Op, call_of
from commsim.traces.recording import (
    COMMUNICATION,
    COMPUTE,
    WAIT,
    Call,
    Event,
    Group,
    Recording,
    RecordingReader,
    Watch,
)  # fmt: skip

EXPECTED = "a PyTorch execution trace (a JSON object with schema and nodes)"
GROUPS = "## process_group:init ##"
COMMS = "record_param_comms"
RANK = re.compile(r"(?:rank|et|trace)[-_.]?(\d+)|(\d+)(?:\.\w+)*$")
# The attributes of a node and the arguments of a profiler's event that say the same.
ATTRIBUTES = {
    "collective_name": metadata.NAME, "dtype": "dtype", "in_msg_nelems": "In msg nelems",
    "out_msg_nelems": "Out msg nelems", "in_split_size": "In split size",
    "out_split_size": "Out split size", "global_rank_start": "Global rank start",
    "global_rank_stride": "Global rank stride", "pg_name": "Process Group Name",
    "pg_desc": "Process Group Description", "pg_size": "Group size", "group_size": "Group size",
    "seq": "Seq",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionTrace(RecordingReader):
    """One rank per file."""

    title: ClassVar[str] = "PyTorch execution trace"

    def recognises(self, path: Path, head: bytes) -> bool:
        return (
            head.lstrip()[:1] == b"{"
            and b'"schema"' in head
            and (b"chakra" in head or b'"nodes"' in head)
        )

    def recordings(
        self, path: str | os.PathLike[str], watch: Watch | None = None
    ) -> tuple[Recording, ...]:
        top: dict[str, Any] = {}
        nodes: list[_Node] = []
        groups: dict[str, Group] = {}
        for place, (key, value) in enumerate(json_stream.values(path, "nodes", EXPECTED, watch)):
            if key != "[]":
                top[key] = value
            elif not isinstance(value, dict) or not isinstance(value.get("name"), str):
                raise SpecError(
                    [f"{path}: nodes[{place}]: expected an object with a name, found"
                     f" {str(value)[:40]!r}"]
                )  # fmt: skip
            elif value["name"] == GROUPS:
                groups = dict(_groups(value))
            elif value["name"] == COMMS or value["name"].startswith(C10D):
                nodes.append(_Node.of(value))
        return (_recording(path, nodes, groups),)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    """A node that communicates."""

    identity: int
    name: str
    inputs: Mapping[str, Any]
    attributes: Mapping[str, Any]

    @classmethod
    def of(cls, node: Mapping[str, Any]) -> _Node:
        inputs = node.get("inputs")
        listed = node.get("attrs")
        return cls(
            identity=metadata.number(node.get("id")) or 0, name=str(node["name"]),
            inputs=inputs if isinstance(inputs, dict) else {},
            attributes={
                str(a.get("name")): a.get("value")
                for a in (listed if isinstance(listed, list) else ()) if isinstance(a, dict)
            },
        )  # fmt: skip


def _recording(
    path: str | os.PathLike[str], nodes: list[_Node], groups: dict[str, Group]
) -> Recording:
    nodes.sort(key=lambda node: node.identity)
    noted = [node for node in nodes if node.name == COMMS]
    only = next(iter(groups.values())) if len(groups) == 1 else Group(name="0")
    calls: list[tuple[str, Call]] = []
    for node in noted or nodes:
        call = _noted(node, groups) if noted else _asked(node, only)
        if call is not None:
            calls.append((node.name, call))
    if not calls:
        raise SpecError(
            [f"{path}: none of its nodes communicates ({COMMS}, {C10D}*); expected {EXPECTED} of a"
             " distributed run"]
        )  # fmt: skip
    match = RANK.search(Path(path).name)
    rank = int(match[1] or match[2]) if match and len(match[1] or match[2]) < 8 else 0
    notes = ["an execution trace holds no times: computing takes none; the profiler's trace of the"
             " same rank holds them"]  # fmt: skip
    if not match:
        notes.append("the file's name holds no rank: it is taken for rank 0")
    if not noted and len(groups) > 1:
        notes.append("the file does not say on which of its groups an operation is")
    world = max((g.size for g in groups.values()), default=0)
    return Recording(
        rank=rank, world=world, format="execution_trace", source=str(path),
        events=numbered(tuple(_events(calls))), groups=groups, timed=False,
        notes=tuple(notes),
    )  # fmt: skip


def _events(calls: list[tuple[str, Call]]) -> Iterator[Event]:
    """One call after the other, a ns apart: only their order is known."""
    place = 0
    for i, (name, call) in enumerate(calls):
        time = i * 1e-9
        yield Event(name=name, kind=COMPUTE, stream="thread", start=time, end=time)
        yield Event(
            name=call.operation, kind=COMMUNICATION, stream=f"group {call.group}", start=time,
            end=math.nan, call=call, issuer=place,
        )  # fmt: skip
        place += 2
        if call.blocking is not False:
            yield Event(name="wait", kind=WAIT, stream="thread", start=time, end=time,
                        after=(place - 1,))  # fmt: skip
            place += 1


def _asked(node: _Node, group: Group) -> Call | None:
    """What a c10d op asks for."""
    if names.operation(node.name) is None:
        return None
    types = node.inputs.get("types")
    plain = [re.sub(r"^GenericList\[(Tensor\([^)]*\)).*", r"\1", str(t))
             for t in (types if isinstance(types, list) else ())]  # fmt: skip
    arguments = {
        "Input Dims": node.inputs.get("shapes"), "Concrete Inputs": _text(node.inputs),
        "Input type": [t if t.startswith("Tensor(") else "" for t in plain],
    }  # fmt: skip
    return call_of(Op(node.name, "thread", 0.0, 0.0, arguments), None, group)


def _text(inputs: Mapping[str, Any]) -> list[str]:
    """The values as the profiler notes them."""
    values = inputs.get("values")
    return [
        str(v) if isinstance(v, (bool, int, str)) else json.dumps(v) if _flat(v) else ""
        for v in (values if isinstance(values, list) else ())
    ]


def _flat(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(v, int) for v in value)


def _noted(node: _Node, groups: dict[str, Group]) -> Call | None:
    """What record_param_comms notes, in its attributes or among its values:
    [tensors], [seq, is_p2p], [group, description], rank, name, splits, start, stride, size."""
    arguments = {
        ATTRIBUTES[name]: value for name, value in node.attributes.items() if name in ATTRIBUTES
    }
    values = node.inputs.get("values")
    other = None  # of a message, the position of its other end in the group
    for value in values if isinstance(values, list) else ():
        if isinstance(value, str) and names.operation(value) is not None:
            arguments.setdefault(metadata.NAME, value)
        elif isinstance(value, str) and value.isdecimal():  # before schema 1.0.3
            arguments.setdefault("Process Group Name", value)
        elif isinstance(value, list) and len(value) == 2:
            if all(isinstance(v, str) for v in value):
                arguments.setdefault("Process Group Name", value[0])
                arguments.setdefault("Process Group Description", value[1])
            elif isinstance(value[0], int) and isinstance(value[1], bool):
                arguments.setdefault("Seq", value[0])
        elif isinstance(value, int) and other is None and "Process Group Name" in arguments:
            other = value
    known = groups.get(str(arguments.get("Process Group Name")))
    if known is not None:
        arguments.setdefault("Group size", known.size)
    if "In msg nelems" not in arguments:
        elements, dtype = _tensors(node.inputs)
        if elements:
            arguments["In msg nelems"] = elements
            arguments.setdefault("dtype", dtype)
    group = metadata.group_of(arguments)
    known = None if group is None else groups.get(group.name)
    if group is not None and (known is None or group.size > known.size):
        groups[group.name] = group
    call = metadata.call_of(arguments)
    if call is None:
        return None
    group = groups.get(call.group)
    if call.is_message and call.peer is None and other is not None and group is not None:
        ranks = group.ranks or tuple(range(group.size))
        call = replace(call, peer=ranks[other] if 0 <= other < len(ranks) else None)
    return replace(call, blocking=False)


def _tensors(inputs: Mapping[str, Any]) -> tuple[int, str]:
    """Elements and type of the tensors among the inputs: [id, storage, offset, numel, ...]."""
    found, dtype = 0, ""
    values, types = inputs.get("values"), inputs.get("types")
    for value, kind in zip(values or (), types or (), strict=False):
        match = re.search(r"Tensor\(([^)]*)\)", str(kind))
        if match is None or not isinstance(value, list):
            continue
        for tensor in [value] if value and isinstance(value[0], int) else value:
            if isinstance(tensor, list) and len(tensor) >= 5 and isinstance(tensor[3], int):
                found += max(0, tensor[3])
                dtype = dtype or match[1]
    return found, dtype


def _groups(node: Mapping[str, Any]) -> Iterator[tuple[str, Group]]:
    """The groups that the node of that name lists as JSON. No ranks: all of them."""
    inputs = node.get("inputs")
    values = inputs.get("values") if isinstance(inputs, dict) else None
    text = values[0] if isinstance(values, list) and values else "[]"
    try:
        listed = json.loads(text) if isinstance(text, str) else []
    except ValueError:
        listed = []
    for each in listed if isinstance(listed, list) else ():
        if isinstance(each, dict) and "pg_name" in each:
            size = max(0, metadata.number(each.get("group_size")) or 0)
            ranks = metadata.ranks_of(each.get("ranks")) or tuple(range(min(size, 1 << 20)))
            yield str(each["pg_name"]), Group(
                name=str(each["pg_name"]), ranks=ranks, size=size,
                description=str(each.get("pg_desc", "")),
            )  # fmt: skip
