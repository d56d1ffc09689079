from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import Ran

Command = Callable[[str], Ran]
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(args)"


def kineto(path: Path, rank: int, late: float = 0.0, operation: str = "allreduce") -> Path:
    """A rank's backward from 0 to 100 us (+ late), an all_reduce of 4 MiB until 300."""
    begun = 100 + late
    metadata = {
        "Collective name": operation, "dtype": "Float", "In msg nelems": 1 << 20,
        "Out msg nelems": 1 << 20, "Group size": 2, "Process Group Name": "0", "Seq": 1,
        "Process Group Ranks": "[0, 1]",
    }  # fmt: skip
    events: list[dict[str, Any]] = [
        {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 0, "dur": begun,
         "args": {"stream": 7}},
        {"ph": "X", "cat": "kernel", "name": NCCL, "pid": 0, "tid": 20, "ts": begun,
         "dur": 300 - begun, "args": {"stream": 20, **metadata}},
    ]  # fmt: skip
    path.write_text(json.dumps({
        "schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 2},
        "traceEvents": events,
    }))  # fmt: skip
    return path


@pytest.fixture
def files(tmp_path: Path) -> str:
    return f"{kineto(tmp_path / 'a.json', 0)} {kineto(tmp_path / 'b.json', 1, late=50)}"


def test_without_a_command_it_lists_them(commsim: Command) -> None:
    ran = commsim("trace")
    assert (ran.code, ran.err) == (0, "")
    assert all(name in ran.out for name in ("summary", "replay", "convert", "Exit codes"))


def test_summary_splits_waiting_from_transfer(commsim: Command, files: str) -> None:
    ran = commsim(f"trace summary {files}")
    assert ran.code == 0
    assert ran.lines[0] == "kineto: ranks 0, 1 of 2, nccl"
    (row,) = [line for line in ran.lines if line.startswith("all_reduce")]
    assert row.split()[:5] == ["all_reduce", "4", "MiB", "float32", "2"]
    assert "25 us" in row  # waiting: rank 0 waits 50 us, rank 1 none
    assert "150 us" in row  # transfer
    found = commsim(f"trace summary {files} --json").json
    (operation,) = found["operations"]
    assert operation["waiting_s"] == pytest.approx(25e-6)
    assert operation["transfer_s"] == pytest.approx(150e-6)
    assert operation["predicted_s"] is None
    assert found["overlap"][0]["exposed_s"] == pytest.approx(200e-6)


def test_summary_with_a_cluster_puts_the_prediction_beside(commsim: Command, files: str) -> None:
    asked = commsim("predict dgx-h100 all_reduce --size 4MiB --ranks 0,1 --json").json
    found = commsim(f"trace summary {files} --cluster dgx-h100 --json").json
    (operation,) = found["operations"]
    assert operation["predicted_s"] == asked["duration_s"]
    assert operation["predicted_over_measured"] == pytest.approx(asked["duration_s"] / 150e-6)


def test_a_mismatch_is_exit_code_3(commsim: Command, tmp_path: Path) -> None:
    a, b = kineto(tmp_path / "a.json", 0), kineto(tmp_path / "b.json", 1, operation="allgather")
    ran = commsim(f"trace summary {a} {b}")
    assert ran.code == 3
    assert "operation 1 of group 0: rank 0 called all_reduce" in ran.out
    ran = commsim(f"trace replay {a} {b}")
    assert ran.code == 2
    assert "the step cannot be played: operation 1 of group 0" in ran.err


def test_replay_on_another_cluster(commsim: Command, files: str, tmp_path: Path) -> None:
    timeline = tmp_path / "t.json"
    ran = commsim(f"trace replay {files} -c dgx-h100 --compute 0.5 --timeline {timeline}")
    assert ran.code == 0
    assert "predicted anew: 1 operations on dgx-h100" in ran.out
    assert "replayed as measured: computing, copies and pauses of the hosts, times 0.5" in ran.out
    assert "critical path" in ran.out
    assert json.loads(timeline.read_text())["traceEvents"]
    asked = commsim("predict dgx-h100 all_reduce --size 4MiB --ranks 0,1 --json").json
    found = commsim(f"trace replay {files} -c dgx-h100 --compute 0.5 --json").json
    assert found["replayed_duration_s"] == pytest.approx(75e-6 + asked["duration_s"])
    assert found["duration_s"] == pytest.approx(300e-6)


def test_replay_is_drawn_by_rank_and_stream(commsim: Command, files: str, tmp_path: Path) -> None:
    pytest.importorskip("altair")
    drawn = tmp_path / "p.svg"
    assert commsim(f"trace replay {files} --cluster dgx-h100 --plot {drawn}").code == 0
    text = drawn.read_text(encoding="utf-8")
    for shown in ("rank 0", "rank 1", "compute", "communication", "The recorded step, on dgx-h100"):
        assert shown in text


def test_replay_on_more_ranks_and_with_other_buckets(commsim: Command, files: str) -> None:
    ran = commsim(f"trace replay {files} -c dgx-h100 -N 2 --world-size 16")
    assert ran.code == 2
    assert "--role 0=dp" in ran.err
    line = f"trace replay {files} -c dgx-h100 -N 2 --world-size 16 --bucket-size 1MiB --role 0=dp"
    found = commsim(f"{line} --json").json
    (operation,) = found["operations"]
    assert (operation["n_ranks"], operation["count"], operation["size_bytes"]) == (16, 4, 1 << 20)
    assert found["replayed_ranks"] == 16


def test_as_measured_nothing_moves(commsim: Command, files: str) -> None:
    found = commsim(f"trace replay {files} --json").json
    assert found["replayed_duration_s"] == pytest.approx(found["duration_s"], rel=1e-9)


@pytest.mark.parametrize("form", ["chrome", "chakra", "goal"])
def test_convert(commsim: Command, files: str, tmp_path: Path, form: str) -> None:
    target = tmp_path / "out" if form == "chakra" else tmp_path / f"out.{form}"
    ran = commsim(f"trace convert {files} --to {form} -o {target} -c dgx-h100 --json")
    assert ran.code == 0
    assert all(Path(name).stat().st_size for name in ran.json["written"])


def test_convert_takes_schedules_too(commsim: Command, tmp_path: Path) -> None:
    from commsim.collectives.algorithms.ring import Ring
    from commsim.collectives.collective import Collective
    from commsim.traces.msccl import Msccl
    from commsim.traces.trace import Trace

    collective = Collective("all_reduce", 4096)
    schedule = Ring().schedule(collective, 4, 1)
    Msccl().write(Trace(collective=collective, schedule=schedule), tmp_path / "ring.xml")
    ran = commsim(f"trace convert {tmp_path / 'ring.xml'} --to goal -o {tmp_path / 'ring.goal'}")
    assert ran.code == 0
    assert (tmp_path / "ring.goal").read_text().startswith("num_ranks 4")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("summary {tmp}/none.json", "none.json: No such file"),
        ("summary {tmp}/empty", "is empty"),
        ("summary {tmp}/text", "no known trace"),
        ("summary {tmp}/cut.json", "truncated"),
        ("replay {good} --world-size 4", "--cluster is missing"),
        ("replay {good} -c dgx-h100 --bucket-size 25x", "25x"),
        ("replay {good} -c dgx-h100 --bucket-size 0", "bucket size: expected 1 byte or more"),
        ("replay {good} -c dgx-h100 --bucket-size 1 --role 0=dp", "more than 100,000 buckets"),
        ("replay {good} --format nothing", "unknown format of recordings 'nothing'"),
        ("replay {good} -c dgx-h100 --role dp", "--role: expected KEY=VALUE"),
        ("convert {good} --to nothing -o {tmp}/x", "unknown format to write a step in 'nothing'"),
        ("convert {good} --to chrome -o {tmp}/none/x", "the folder does not exist"),
        ("convert {good} --to goal -o {tmp}/x", "give a cluster"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    commsim: Command, tmp_path: Path, line: str, said: str
) -> None:
    good = kineto(tmp_path / "good.json", 0)
    (tmp_path / "empty").write_text("")
    (tmp_path / "text").write_text("hello")
    (tmp_path / "cut.json").write_text(good.read_text()[:400])
    ran = commsim("trace " + line.format(tmp=tmp_path, good=good))
    assert ran.code == 2
    assert ran.out == ""
    assert said in ran.err
    assert len(ran.err.splitlines()) == 1
