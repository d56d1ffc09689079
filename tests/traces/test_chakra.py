"""Chakra's JSON, read back by the messages of et_def.proto."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from commsim.collectives.catalogue import algorithm, names
from commsim.collectives.collective import Collective
from commsim.collectives.program import Program, from_function
from commsim.traces.chakra import Chakra, documents
from commsim.traces.trace import Trace
from tests.traces.played import Played, check

SERVED = [(n, o) for n in names() for o in sorted(algorithm(n).operations)]
MESSAGE = {"comm_src": "int32Val", "comm_dst": "int32Val", "comm_size": "int64Val",
           "comm_tag": "int32Val", "is_cpu_op": "boolVal"}  # fmt: skip


def number(value: object) -> int:
    """A 64-bit integer, which is text in protobuf's JSON mapping."""
    assert isinstance(value, str)
    return int(value)


def attributes(node: dict[str, Any]) -> dict[str, Any]:
    found = {}
    for attribute in node["attr"]:
        name, kind = attribute.keys() - {"name"}, MESSAGE.get(attribute["name"])
        assert kind is None or name == {kind}
        found[attribute["name"]] = attribute[next(iter(name))]
    return found


def played(ranks: list[dict[str, Any]]) -> Played:
    result = Played(sends={}, receives={}, local=set(), waits={})
    for rank, document in enumerate(ranks):
        seen: set[int] = set()
        for node in document["nodes"]:
            op = number(node["id"]) - 1
            waits = {number(dep) - 1 for dep in node.get("dataDeps", [])}
            assert op not in seen
            assert waits <= seen  # in an order that can be played
            seen.add(op)
            result.waits[rank, op] = {(rank, w) for w in waits}
            told = attributes(node)
            if node["type"] == "COMP_NODE":
                result.local.add((rank, op))
                continue
            source, destination = told["comm_src"], told["comm_dst"]
            ends = {
                "COMM_SEND_NODE": (source, destination),
                "COMM_RECV_NODE": (destination, source),
            }
            side = {"COMM_SEND_NODE": result.sends, "COMM_RECV_NODE": result.receives}[node["type"]]
            assert told["comm_tag"] not in side
            assert ends[node["type"]][0] == rank
            side[told["comm_tag"]] = (*ends[node["type"]], number(told["comm_size"]))
    return result


@pytest.mark.parametrize(("name", "operation"), SERVED)
def test_every_schedule_keeps_its_messages_and_waits(
    name: str, operation: str, tmp_path: Path
) -> None:
    collective = Collective(operation, 4 * 997)
    schedule = algorithm(name).schedule(collective, 6, 2)
    Chakra().write(Trace(collective=collective, schedule=schedule), tmp_path / "a")
    files = [tmp_path / f"a.{rank}.json" for rank in range(schedule.vertices)]
    assert sorted(tmp_path.iterdir()) == sorted(files)
    check(played([json.loads(file.read_text("utf-8")) for file in files]), schedule)


def test_the_document_of_one_rank() -> None:
    def to_the_next(program: Program) -> None:
        program.copy(0, 0, 1, program.scratch)
        program.copy(1, program.scratch, 1, 0)

    collective = Collective("broadcast", 8)
    schedule = from_function(collective, 2, to_the_next, scratch=1)
    assert documents(Trace(collective=collective, schedule=schedule))[1] == {
        "globalMetadata": {"version": "0.0.4"},
        "nodes": [
            {
                "id": "1",
                "name": "op 0 (copy 8 B from 0 to 1, channel 0, round 0)",
                "type": "COMM_RECV_NODE",
                "attr": [
                    {"name": "is_cpu_op", "boolVal": False},
                    {"name": "comm_src", "int32Val": 0},
                    {"name": "comm_dst", "int32Val": 1},
                    {"name": "comm_size", "int64Val": "8"},
                    {"name": "comm_tag", "int32Val": 0},
                ],
            },
            {
                "id": "2",
                "name": "op 1 (copy 8 B from 1 to 1, channel 0, round 1)",
                "type": "COMP_NODE",
                "dataDeps": ["1"],
                "attr": [
                    {"name": "is_cpu_op", "boolVal": False},
                    {"name": "num_ops", "int64Val": "0"},
                    {"name": "tensor_size", "uint64Val": "8"},
                ],
            },
        ],
    }
