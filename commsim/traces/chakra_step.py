"""A step as Chakra's JSON, a document per rank; chakra_nodes.py reads it back.

Computing, copies and pauses are COMP_NODEs, operations COMM_COLL_NODEs, messages COMM_SEND_NODEs
and COMM_RECV_NODEs. comm_size is the operation's size as nccl-tests counts it; beside the files of
the ranks lies one with the ranks of each group, as ASTRA-sim reads it. Chakra counts durations in
whole us; an attribute of our own keeps the ns.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from commsim.traces.line import PAUSE, Part
from commsim.traces.merging import BEGIN
from commsim.traces.recording import (
    RECEIVE,
    SEND,
    WAIT,
)
from commsim.traces.replay import Replay
from commsim.units import Seconds

VERSION = "0.0.4"  # of et_def.proto
COMPUTATION, COLLECTIVE = "COMP_NODE", "COMM_COLL_NODE"
MESSAGES = {SEND: "COMM_SEND_NODE", RECEIVE: "COMM_RECV_NODE"}
# et_def.proto, enum CollectiveCommType.
TYPES = (
    "all_reduce", "reduce", "all_gather", "gather", "scatter", "broadcast", "all_to_all",
    "reduce_scatter", "reduce_scatter", "barrier",
)  # fmt: skip
EXACT = "duration_ns"


def write(replay: Replay, path: str | os.PathLike[str]) -> tuple[str, ...]:
    """PATH.RANK.json for each rank, and PATH.groups.json; the files written."""
    written = []
    for rank in replay.parts:
        target = f"{os.fspath(path)}.{rank}.json"
        Path(target).write_text(json.dumps(document(replay, rank), indent=1) + "\n")
        written.append(target)
    groups = {
        p.call.group or "0": list(p.ranks) for p in replay.operations if not p.call.is_message
    }
    target = f"{os.fspath(path)}.groups.json"
    Path(target).write_text(json.dumps(groups) + "\n")
    return (*written, target)


def document(replay: Replay, rank: int) -> dict[str, Any]:
    """The nodes of a rank, with the durations that were played."""
    parts = replay.parts[rank]
    begin = Part(name="begin", kind=PAUSE, stream="begin", duration=0.0)
    lead = float(replay.spans.ends[replay.task[rank, BEGIN]])
    nodes = [_node(replay, rank, len(parts), begin, lead, ())]
    last: dict[str, int] = {}
    for i, part in enumerate(parts):
        at = replay.task[rank, i]
        duration = float(replay.spans.ends[at] - replay.spans.starts[at])
        before = last.get(part.stream)
        last[part.stream] = i
        after = [*part.after, *([] if before is None else [before])] or [len(parts)]
        nodes.append(_node(replay, rank, i, part, duration, tuple(dict.fromkeys(after))))
    told = [{"name": "world_size", "int64Val": str(replay.world)},
            {"name": "rank", "int64Val": str(rank)}]  # fmt: skip
    return {"globalMetadata": {"version": VERSION, "attr": told}, "nodes": nodes}


def _node(
    replay: Replay, rank: int, place: int, part: Part, duration: Seconds, after: tuple[int, ...]
) -> dict[str, Any]:
    node: dict[str, Any] = {"id": str(place + 1), "name": part.name}
    call = part.call
    kind = COMPUTATION
    if call is not None:
        kind = MESSAGES.get(call.operation, COLLECTIVE)
    node["type"] = kind
    if after:
        node["dataDeps"] = [str(w + 1) for w in after]
    node["durationMicros"] = str(round(duration * 1e6))
    host = part.kind in (PAUSE, WAIT)
    attributes: list[dict[str, Any]] = [
        {"name": "is_cpu_op", "boolVal": host},
        {"name": EXACT, "int64Val": str(round(duration * 1e9))},
        {"name": "stream", "stringVal": part.stream},
        {"name": "kind", "stringVal": part.kind},
    ]
    priced = replay.priced.get((rank, place))
    if call is not None and priced is not None:
        size = call.nbytes or 0
        attributes += [{"name": "comm_size", "int64Val": str(size)},
                       {"name": "dtype", "stringVal": call.dtype},
                       {"name": "pg_name", "stringVal": call.group or "0"}]  # fmt: skip
        if call.is_message:
            ends = priced.ranks if len(priced.ranks) == 2 else (rank, rank)
            attributes += [
                {"name": "comm_src", "int32Val": ends[0]},
                {"name": "comm_dst", "int32Val": ends[1]},
                {"name": "comm_tag", "int32Val": call.sequence},
            ]  # fmt: skip
        else:
            operation = "all_to_all" if call.operation == "send_recv" else call.operation
            attributes.append({"name": "comm_type", "int64Val": str(TYPES.index(operation))})
    node["attr"] = attributes
    return node
