"""Chakra execution traces, as ASTRA-sim and other simulators replay them, in their JSON form.

Source: Sridharan et al., "Chakra: advancing performance benchmarking and co-design using
standardized execution traces", 2023, arXiv:2305.14516; the messages are those of MLCommons'
et_def.proto.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from commsim.traces import chakra_nodes, chakra_step
from commsim.traces.events import LOCAL, RECEIVE, SEND, Event, events
from commsim.traces.recording import Recording, RecordingReader, Watch
from commsim.traces.replay import Replay
from commsim.traces.step_writer import StepWriter
from commsim.traces.trace import Trace, TraceWriter

VERSION = "0.0.4"  # of et_def.proto
TYPES = {SEND: "COMM_SEND_NODE", RECEIVE: "COMM_RECV_NODE", LOCAL: "COMP_NODE"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Chakra(TraceWriter, StepWriter, RecordingReader):
    """One JSON document per rank: its metadata, and its nodes in an order that can be played.

    `write(trace, "out/ring")` makes out/ring.0.json, out/ring.1.json, ... Switches follow as
    further ranks. Each message is written as protobuf's JSON mapping writes it: names in camel
    case, 64-bit integers as text, fields that hold their default left out. A step is written and
    read likewise; chakra_step.py says how.
    """

    title: ClassVar[str] = "Chakra execution trace, JSON"

    def write(self, trace: Trace, path: str | os.PathLike[str]) -> None:
        for rank, document in enumerate(documents(trace)):
            target = Path(f"{os.fspath(path)}.{rank}.json")
            target.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")

    def write_step(self, replay: Replay, path: str | os.PathLike[str]) -> tuple[str, ...]:
        return chakra_step.write(replay, path)

    def recognises(self, path: Path, head: bytes) -> bool:
        marks = (b'"globalMetadata"', b'"global_metadata"', b"_NODE")
        return head.lstrip()[:1] == b"{" and any(mark in head for mark in marks)

    def recordings(
        self, path: str | os.PathLike[str], watch: Watch | None = None
    ) -> tuple[Recording, ...]:
        return (chakra_nodes.read(path, watch),)


def documents(trace: Trace) -> list[dict[str, Any]]:
    """Per rank its document. An op's tag is its number, its id one more, on all its ranks.

    Every wait is a data dependency, the kind that no replayer may leave out.
    """
    return [
        {"globalMetadata": {"version": VERSION}, "nodes": [_node(event) for event in here]}
        for here in events(trace.schedule)
    ]


def _node(event: Event) -> dict[str, Any]:
    op = event.op
    node: dict[str, Any] = {"id": str(op.index + 1), "name": str(op), "type": TYPES[event.kind]}
    if event.waits:
        node["dataDeps"] = [str(w + 1) for w in event.waits]
    attributes: list[dict[str, Any]] = [{"name": "is_cpu_op", "boolVal": False}]
    if event.kind == LOCAL:
        attributes += [
            {"name": "num_ops", "int64Val": "0"},
            {"name": "tensor_size", "uint64Val": str(op.nbytes)},
        ]
    else:
        attributes += [
            {"name": "comm_src", "int32Val": op.source},
            {"name": "comm_dst", "int32Val": op.destination},
            {"name": "comm_size", "int64Val": str(op.nbytes)},
            {"name": "comm_tag", "int32Val": op.index},
        ]
    node["attr"] = attributes
    return node
