from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from .conftest import Ran

Command = Callable[[str], Ran]
LINE = "step --model llama3-8b --cluster dgx-h100 --nodes 2"


def test_the_answer_in_lines(commsim: Command) -> None:
    ran = commsim(f"{LINE} --tp 4 --pp 2 --global-batch 32")
    assert (ran.code, ran.err) == (0, "")
    assert ran.lines[0] == (
        "llama3-8b (8.03 B) on dgx-h100: 16 x H100-SXM5-80GB, megatron tp=4 pp=2 dp=2,"
        " 16 micro-batches of 1 x 4096 tokens"
    )
    words = [line.split("  ")[1] for line in ran.lines[1:6]]
    assert words == ["step", "throughput", "MFU", "exposed communication", "memory"]
    for section in ("where the step goes", "communication of one rank", "notes"):
        assert section in ran.lines


def test_json_in_base_units(commsim: Command) -> None:
    found = commsim(f"{LINE} --tp 8 --global-batch 16 --seq 2048 --json").json
    assert set(found) == {
        "model", "parameters", "cluster", "gpu", "n_ranks", "layout", "duration_s", "interval_s",
        "tokens_per_s_per_gpu", "mfu", "exposed_s", "bubble_s", "breakdown_s", "messages",
        "memory", "notes",
    }  # fmt: skip
    low, high = found["interval_s"]
    assert low < found["duration_s"] < high
    tokens = 16 * 2048
    assert found["tokens_per_s_per_gpu"] == pytest.approx(tokens / found["duration_s"] / 16)
    assert found["parameters"] == 8_030_261_248  # of the model card


OPTIONS = {
    "--tp 2": ("tp", 2),
    "--pp 2": ("pp", 2),
    "--dp 16": ("dp", 16),
    "--cp 2": ("cp", 2),
    "--ep 2 --model mixtral-8x7b": ("ep", 2),
    "--tp 2 --ep 2 --etp 1 --model mixtral-8x7b": ("etp", 1),
    "--micro-batch 2 --global-batch 32": ("micro_batch", 2),
    "--global-batch 64": ("global_batch", 64),
    "--seq 1024": ("seq_len", 1024),
    "--dtype float8": ("dtype", "float8"),
    "--pp 2 --schedule gpipe": ("schedule", "gpipe"),
    "--pp 2 --schedule interleaved --interleave 2": ("interleave", 2),
    "--zero 2": ("zero_stage", 2),
    "--framework fsdp": ("zero_stage", 3),
    "--framework ddp": ("zero_stage", 0),
    "--framework torchtitan --hsdp 8": ("hsdp", 8),
    "--recompute full": ("recompute", "full"),
    "--tp 2 --no-sequence-parallel": ("sequence_parallel", False),
    "--no-overlap-grad-reduce": ("overlap_grad_reduce", False),
    "--no-overlap-param-gather": ("overlap_param_gather", False),
    "--tp 2 --tp-comm-overlap": ("tp_comm_overlap", True),
    "--framework nemo": ("framework", "nemo"),
}


@pytest.mark.parametrize("options", OPTIONS)
def test_options_reach_the_layout(commsim: Command, options: str) -> None:
    key, value = OPTIONS[options]
    batch = "" if "--global-batch" in options else "--global-batch 16"
    ran = commsim(f"{LINE} --json {batch} {options}")
    assert ran.code == 0, ran.err
    assert ran.json["layout"][key] == value


def test_a_slower_network_is_a_slower_step(commsim: Command) -> None:
    plain = commsim(f"{LINE} --json").json["duration_s"]
    slow = commsim(f"{LINE} --json --set node.nics.rate=25Gbit/s").json["duration_s"]
    assert slow > plain


def test_simulated_beside_the_closed_form(commsim: Command) -> None:
    ran = commsim(f"{LINE} --tp 8 --global-batch 8 --simulate")
    lines = [line for line in ran.lines if line.startswith("  simulated")]
    assert len(lines) == 2
    assert "of the closed form" in lines[0]
    found = commsim(f"{LINE} --tp 8 --global-batch 8 --simulate --json").json
    played = found["simulated"]
    assert played["closed_form_s"] == found["duration_s"]
    assert played["duration_s"] == pytest.approx(found["duration_s"], rel=0.03)
    assert sum(played["breakdown_s"].values()) == pytest.approx(played["duration_s"])


def test_a_timeline_that_perfetto_opens(commsim: Command, tmp_path: Path) -> None:
    path = tmp_path / "step.json"
    ran = commsim(f"{LINE} --tp 4 --pp 2 --global-batch 4 --timeline {path}")
    assert ran.code == 0
    assert str(path) in ran.lines[-1]
    events = json.loads(path.read_text())["traceEvents"]
    names = {e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "process_name"}
    assert names == {"stage 0 (rank 0)", "stage 1 (rank 8)"}
    rows = {e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    assert {"compute", "tensor parallel", "data parallel", "to the next stage"} <= rows
    slices = [e for e in events if e["ph"] == "X"]
    assert {e["args"].get("micro_batch") for e in slices} == {None, 0, 1}
    by_row: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for e in slices:
        by_row.setdefault((e["pid"], e["tid"]), []).append((e["ts"], e["ts"] + e["dur"]))
    for row in by_row.values():  # nothing overlaps within a row, but for rounding to ns
        row.sort()
        assert all(b >= a - 0.002 for (_, a), (b, _) in pairwise(row))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("--tp 3", "tp x pp x cp = 3 does not divide the cluster's 16 GPUs"),
        ("--dp 4", "16"),
        ("--global-batch 7", "global_batch"),
        ("--schedule zigzag", "zigzag"),
        ("--framework caffe", "caffe"),
        ("--dtype int3", "int3"),
        ("--recompute maybe", "maybe"),
        ("--zero 4", "zero_stage"),
        ("--timeline /nowhere/step.json", "folder /nowhere does not exist"),
        ("--profile /nowhere.toml", "/nowhere.toml"),
        ("--model /nowhere.json", "/nowhere.json"),
        ("--cluster dgx-z9", "dgx-z9"),
    ],
)
def test_bad_input_is_one_message_and_exit_2(commsim: Command, options: str, told: str) -> None:
    ran = commsim(f"{LINE} {options}")
    assert (ran.code, ran.out) == (2, "")
    assert told in ran.err
