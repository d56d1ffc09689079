from __future__ import annotations

import json
import re
from collections import defaultdict
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from commsim.errors import ScheduleError, SpecError
from commsim.topology.load import load_cluster
from commsim.traces.chakra import Chakra
from commsim.traces.chrome import Chrome
from commsim.traces.goal import Goal
from commsim.traces.joining import Step, join
from commsim.traces.kineto import Kineto
from commsim.traces.lookup import recorders, step_writer, step_writers
from commsim.traces.reading import read_recordings, recognised
from commsim.traces.replay import Where, replay

from .kineto_files import NCCL, kernel, metadata, step, write

US = 1e-6


def recorded(tmp_path: Path, ranks: int = 2) -> Step:
    return join(
        r
        for rank in range(ranks)
        for r in Kineto().recordings(
            write(tmp_path / f"{rank}.json", step(late=30.0 * rank), rank=rank, world=ranks)
        )
    )


def test_formats_by_name() -> None:
    assert {"chakra", "chrome", "goal"} <= set(step_writers())
    assert {"chakra", "execution_trace", "flight_recorder", "kineto", "nsys"} <= set(recorders())
    assert step_writer("chrome") == Chrome()


def test_chrome_is_a_trace_that_kineto_reads_back(tmp_path: Path) -> None:
    cluster = load_cluster("dgx-h100")
    played = replay(recorded(tmp_path), Where(cluster=cluster))
    target = tmp_path / "t.json"
    assert Chrome().write_step(played, target) == (str(target),)
    again = join(read_recordings([target]))
    assert [r.rank for r in again.recordings] == [0, 1]
    (operation,) = again.operations
    assert (operation.call.operation, operation.call.nbytes) == ("all_reduce", 4 << 20)
    assert operation.transfer == pytest.approx(played.operations[0].duration, abs=2e-9)
    events = json.loads(target.read_text())["traceEvents"]
    counters = {e["name"] for e in events if e["ph"] == "C"}
    assert "bus bandwidth (GB/s)" in counters
    assert any("nvlink" in name.lower() or "->" in name for name in counters)  # the links


def test_pytorchs_own_checker_accepts_it(tmp_path: Path) -> None:
    validator = pytest.importorskip("torch.profiler._trace_validator")
    target = tmp_path / "t.json"
    Chrome().write_step(replay(recorded(tmp_path), Where(cluster=load_cluster("dgx-h100"))), target)
    assert validator.validate_trace(str(target)) == (True, [])


def test_the_bandwidth_counter_is_that_of_nccl_tests(tmp_path: Path) -> None:
    """4 MiB on two ranks: bus factor 2 (n - 1) / n = 1, over the 120 us from 180 to 300."""
    target = tmp_path / "t.json"
    Chrome().write_step(replay(recorded(tmp_path)), target)
    found = [
        e["args"]["GB/s"] for e in json.loads(target.read_text())["traceEvents"] if e["ph"] == "C"
    ]
    assert max(found) == pytest.approx((4 << 20) / (120 * US) / 1e9, rel=1e-3)
    assert found[-1] == 0


def test_chakra_and_back_keeps_the_step(tmp_path: Path) -> None:
    found = recorded(tmp_path)
    played = replay(found)
    written = Chakra().write_step(played, tmp_path / "step")
    assert [Path(name).name for name in written] == [
        "step.0.json", "step.1.json", "step.groups.json",
    ]  # fmt: skip
    assert json.loads(Path(written[2]).read_text()) == {"0": [0, 1]}
    assert recognised(Path(written[0])) == Chakra()
    again = join(read_recordings(written[:2]))
    assert again.world == 2
    assert replay(again).duration == pytest.approx(played.duration, abs=20e-9)
    (operation,) = again.operations
    assert (operation.call.operation, operation.call.nbytes) == ("all_reduce", 4 << 20)
    assert operation.transfer is None  # it holds no moments


def test_chakra_documents_of_a_node_each(tmp_path: Path) -> None:
    nodes = [
        {"version": "0.0.4"},
        {"id": "5", "name": "b", "type": "COMM_COLL_NODE", "dataDeps": ["2"],
         "attr": [{"name": "comm_type", "int64Val": "2"}, {"name": "comm_size", "int64Val": "64"}]},
        {"id": "2", "name": "a", "type": "COMP_NODE", "durationMicros": "7"},
    ]  # fmt: skip
    path = tmp_path / "et.3.json"
    path.write_text("\n".join(json.dumps(node) for node in nodes))
    (found,) = Chakra().recordings(path)
    assert found.rank == 3
    assert [e.name for e in found.events] == ["a", "b"]
    (gather,) = found.communication
    assert gather.call is not None
    assert (gather.call.operation, gather.call.nbytes) == ("all_gather", 64)
    assert gather.start == pytest.approx(7 * US)


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ([], "no nodes"),
        ([3], "node 0: expected an object with id and type"),
        ([{"id": "1", "type": "COMP_NODE"}] * 2, "two nodes have one id"),
        (
            [{"id": "1", "type": "COMP_NODE", "dataDeps": ["2"]},
             {"id": "2", "type": "COMP_NODE", "dataDeps": ["1"]}],
            "waits for itself",
        ),
        ([{"id": "1", "type": "COMM_COLL_NODE"}], "comm_type: expected 0 to 9"),
    ],
)  # fmt: skip
def test_bad_chakra(tmp_path: Path, nodes: list[object], said: str) -> None:
    path = tmp_path / "et.0.json"
    path.write_text(json.dumps({"globalMetadata": {"version": "0.0.4"}, "nodes": nodes}))
    with pytest.raises(SpecError, match=said):
        Chakra().recordings(path)


LINE = re.compile(r"(\w+): (?:(send|recv) (\d+)b (?:to|from) (\d+) tag (\d+)|calc (\d+)) cpu \d+")


def goal(path: Path) -> tuple[dict[tuple[int, str], set[tuple[int, str]]], dict[str, int]]:
    """By rank and label what each task waits for, its receive's send included; bytes by tag.
    Checks that each tag is one send and one receive of the same bytes, and that it can be played.
    """
    waits: dict[tuple[int, str], set[tuple[int, str]]] = {}
    ends: dict[str, list[tuple[str, int, int, str, int]]] = defaultdict(list)
    rank = -1
    for line in path.read_text().splitlines():
        if match := re.fullmatch(r"rank (\d+) \{", line):
            rank = int(match[1])
        elif match := LINE.fullmatch(line):
            waits[rank, match[1]] = set()
            if match[2]:
                ends[match[5]].append((match[2], rank, int(match[4]), match[1], int(match[3])))
        elif match := re.fullmatch(r"(\w+) requires (\w+)", line):
            waits[rank, match[1]].add((rank, match[2]))
    for tag, pair in ends.items():
        (_, to, source, receive, got), (_, at, destination, send, sent) = sorted(pair)
        assert (to, at, got) == (destination, source, sent), tag
        waits[to, receive].add((at, send))
    assert all(other in waits for others in waits.values() for other in others)
    assert len(list(TopologicalSorter(waits).static_order())) == len(waits)
    return waits, {tag: pair[0][4] for tag, pair in ends.items()}


def test_goal_holds_the_messages_of_the_librarys_algorithm(tmp_path: Path) -> None:
    cluster = load_cluster("dgx-h100")
    played = replay(recorded(tmp_path), Where(cluster=cluster))
    target = tmp_path / "step.goal"
    Goal().write_step(played, target)
    text = target.read_text()
    assert text.startswith("num_ranks 2")
    waits, sizes = goal(target)
    # Two ranks: a ring moves 2 (n - 1) / n = 1 times the buffer from each.
    assert played.operations[0].prediction is not None
    if played.operations[0].prediction.algorithm == "ring":
        assert sum(sizes.values()) == pytest.approx(2 * (4 << 20), rel=0.01)
    assert f"calc {round(130e3)} cpu" in text  # backward_1 of rank 0, ns

    # The optimizer comes after messages of the all_reduce, on each rank.
    for rank in (0, 1):
        last = max(
            (k for r, k in waits if r == rank and k.startswith("p")), key=lambda k: int(k[1:])
        )
        seen, todo = set[tuple[int, str]](), [(rank, last)]
        while todo:
            at = todo.pop()
            if at not in seen:
                seen.add(at)
                todo += waits[at]
        assert any(label.startswith("o") for _, label in seen)


def test_goal_of_one_rank_stands_for_all_alike(tmp_path: Path) -> None:
    found = join(Kineto().recordings(write(tmp_path / "0.json", step(), world=2)))
    target = tmp_path / "step.goal"
    Goal().write_step(replay(found, Where(cluster=load_cluster("dgx-h100"))), target)
    goal(target)
    assert "rank 1 {" in target.read_text()


def test_goal_needs_sizes_and_all_ranks(tmp_path: Path) -> None:
    target = tmp_path / "step.goal"
    with pytest.raises(ScheduleError, match="give a cluster"):
        Goal().write_step(replay(recorded(tmp_path)), target)
    pairs = [kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 0, 5, NCCL,
                    **metadata("allreduce", 64, 1, (0, 1)))]  # fmt: skip
    found = join(Kineto().recordings(write(tmp_path / "0.json", pairs, world=4)))
    with pytest.raises(ScheduleError, match="of 4 ranks 3 are not recorded, rank 1 first"):
        Goal().write_step(replay(found, Where(cluster=load_cluster("dgx-h100"))), target)
    assert not target.exists()
