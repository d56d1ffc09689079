from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from commsim.collectives.collective import Collective
from commsim.errors import SpecError
from commsim.prediction import predict
from commsim.topology.load import load_cluster
from commsim.traces.execution_trace import ExecutionTrace
from commsim.traces.joining import join
from commsim.traces.kineto import Kineto
from commsim.traces.reading import recognised
from commsim.traces.replay import Where, replay

from . import kineto_files

Node = dict[str, Any]


def node(identity: int, name: str, values: list[Any], types: list[str], **attrs: Any) -> Node:
    shapes = [[v[3]] if isinstance(v, list) and len(v) == 6 else [] for v in values]
    return {
        "id": identity, "name": name, "ctrl_deps": 1,
        "inputs": {"values": values, "shapes": shapes, "types": types, "strides": []},
        "outputs": {"values": [], "shapes": [], "types": [], "strides": []},
        "attrs": [{"name": k, "type": "", "value": v} for k, v in attrs.items()],
    }  # fmt: skip


def tensor(nelems: int) -> list[Any]:
    return [9, 8, 0, nelems, 4, "cpu"]


def groups(size: int = 2) -> Node:
    listed = [{"pg_name": "0", "pg_desc": "default_pg", "ranks": [], "group_size": size}]
    return node(3, "## process_group:init ##", [json.dumps(listed)], ["String"])


def write(path: Path, nodes: list[Node]) -> Path:
    path.write_text(json.dumps({"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": nodes}))
    return path


def gloo() -> list[Node]:
    reduce = node(
        20, "c10d::allreduce_", [[tensor(256)], "<Object>", "<Object>", "<None>", False, -1],
        ["GenericList[Tensor(float)]", "Object", "Object", "None", "Bool", "Int"],
    )  # fmt: skip
    reduce["inputs"]["shapes"] = [[[256]], [], [], [], [], []]
    gather = node(30, "c10d::_allgather_base_", [tensor(64), tensor(32), "<Object>", True, -1],
                  ["Tensor(float)", "Tensor(float)", "Object", "Bool", "Int"])  # fmt: skip
    # Files hold nodes in the order in which they ended.
    return [gather, groups(), reduce, node(10, "aten::add", [], [])]


def test_ops_of_c10d(tmp_path: Path) -> None:
    path = write(tmp_path / "et_rank1.json", gloo())
    assert recognised(path) == ExecutionTrace()
    (found,) = ExecutionTrace().recordings(path)
    assert (found.rank, found.world, found.groups["0"].ranks) == (1, 2, (0, 1))
    calls = [e.call for e in found.communication]
    assert [(c.operation, c.nbytes, c.dtype, c.blocking) for c in calls if c] == [
        ("all_reduce", 1024, "float32", True),
        ("all_gather", 256, "float32", False),
    ]
    assert any("holds no times" in note for note in found.notes)


def test_operations_are_predicted_one_after_the_other(tmp_path: Path) -> None:
    cluster = load_cluster("dgx-h100")
    recordings = [
        r for rank in (0, 1)
        for r in ExecutionTrace().recordings(write(tmp_path / f"et_rank{rank}.json", gloo()))
    ]  # fmt: skip
    played = replay(join(recordings), Where(cluster=cluster))
    each = [
        predict(Collective(op, nbytes, ranks=(0, 1)), cluster).duration
        for op, nbytes in (("all_reduce", 1024), ("all_gather", 256))
    ]
    assert played.duration == pytest.approx(sum(each), abs=1e-8)  # the ns between calls


def test_record_param_comms_of_nccl(tmp_path: Path) -> None:
    values: list[Any] = [
        [tensor(4096)],
        [7, False],
        ["5", "mesh_tp"],
        1,
        "all_reduce",
        [],
        [],
        0,
        1,
        4,
    ]
    types = ["GenericList[Tensor(c10::BFloat16)]", "Tuple[Int,Bool]", "Tuple[String,String]", "Int",
             "String", "GenericList[]", "GenericList[]", "Int", "Int", "Int"]  # fmt: skip
    plain = node(9, "record_param_comms", values, types)
    attributed = node(
        12, "record_param_comms", [], [], collective_name="_allgather_base", dtype="BFloat16",
        in_msg_nelems=10, out_msg_nelems=40, pg_name="5", pg_desc="mesh_tp", pg_size=4, seq=8,
        global_rank_start=4, global_rank_stride=1,
    )  # fmt: skip
    (found,) = ExecutionTrace().recordings(write(tmp_path / "et_4.json", [plain, attributed]))
    first, second = (e.call for e in found.communication)
    assert first is not None
    assert second is not None
    assert (first.operation, first.nbytes, first.dtype) == ("all_reduce", 8192, "bfloat16")
    assert (first.group, first.sequence) == ("5", 7)
    assert (second.operation, second.nbytes, second.sequence) == ("all_gather", 80, 8)
    assert found.groups["5"].size == 4


def test_messages_of_nccl_name_the_other_end_by_its_position(tmp_path: Path) -> None:
    listed = [{"pg_name": "7", "pg_desc": "pp", "ranks": [4, 8, 12], "group_size": 3}]
    named = node(3, "## process_group:init ##", [json.dumps(listed)], ["String"])
    values: list[Any] = [[tensor(16)], [2, True], ["7", "pp"], 2, "send", [], [], 4, 4, 3]
    sent = node(5, "record_param_comms", values, ["GenericList[Tensor(float)]", *[""] * 9])
    (found,) = ExecutionTrace().recordings(write(tmp_path / "et_8.json", [named, sent]))
    (call,) = (e.call for e in found.communication)
    assert call is not None
    assert (call.operation, call.peer, call.nbytes, call.group) == ("send", 12, 64, "7")


def test_beside_a_profilers_trace_that_is_used(tmp_path: Path) -> None:
    trace = kineto_files.write(tmp_path / "k_rank0.json", kineto_files.step())
    et = write(tmp_path / "et_rank0.json", gloo())
    step = join([*ExecutionTrace().recordings(et), *Kineto().recordings(trace)])
    (recording,) = step.recordings
    assert recording.format == "kineto"
    assert any("is used, and the groups of" in note for note in step.notes)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"schema": "1.1.1-chakra.0.0.4", "nodes": []}', "none of its nodes communicates"),
        ('{"schema": "1.1.1-chakra.0.0.4", "nodes": [3]}', r"nodes\[\d\]: expected an object"),
        ('{"schema": "1.1.1-chakra.0.0.4", "nodes": [{"name": "a"', "truncated"),
    ],
)
def test_bad_files(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "et_0.json"
    path.write_text(text)
    with pytest.raises(SpecError, match=said):
        ExecutionTrace().recordings(path)
