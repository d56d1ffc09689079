from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from .conftest import Ran

Command = Callable[[str], Ran]
PAIRS = "place rtx4090x8 --traffic mine=all_reduce:256MiB:10:0,4/1,5/2,6/3,7"
MODEL = "place dgx-h100 --nodes 2 --tp 4 --pp 2 --model llama3.2-1b --global-batch 16 --seq 2048"


def test_pairs_are_brought_together(commsim: Command) -> None:
    found = commsim(f"{PAIRS} --json").json
    ranks = found["best"]["ranks"]
    assert found["default"]["ranks"] == list(range(8))
    assert found["best"]["duration_s"] < found["default"]["duration_s"]
    # Four GPUs of a board hang on each socket: partners sit side by side below one of them.
    assert all(ranks[i] // 4 == ranks[i + 4] // 4 for i in range(4))
    ran = commsim(PAIRS)
    assert (ran.code, ran.err) == (0, "")
    for words in (
        "what the groups send", "as numbered", "x 1.000", "who sits where, in the best",
        "CUDA_VISIBLE_DEVICES", "--format torch: its groups",
    ):  # fmt: skip
        assert words in ran.out
    ratio = found["best"]["duration_s"] / found["default"]["duration_s"]
    assert f"x {ratio:.3f}" in ran.out


def test_a_models_groups(commsim: Command) -> None:
    found = commsim(f"{MODEL} --json").json
    assert {one["kind"] for one in found["traffic"]} == {"tp", "dp", "pp"}
    steps = {row["order"]: row["duration_s"] for row in found["orders"]}
    line = "step -m llama3.2-1b -c dgx-h100 --nodes 2 --tp 4 --pp 2 --global-batch 16 --seq 2048"
    assert steps["tp-dp-pp-cp-ep"] == commsim(f"{line} --json").json["duration_s"]
    assert list(steps.values()) == sorted(steps.values())
    assert found["megatron"]
    text = commsim(MODEL).out
    assert "the step by the order of the layout's dimensions" in text
    for words in ("--use-tp-pp-dp-mapping", "SLURM_HOSTFILE", "--map-by seq", "a DeviceMesh"):
        assert words in text


def test_megatrons_own_order_needs_no_flag(commsim: Command) -> None:
    line = "place dgx-h100 --tp 2 --ep 4 --model mixtral-8x7b --seq 2048 --json"
    found = commsim(line).json
    assert "ep" in {one["kind"] for one in found["traffic"]}
    assert found["best"]["duration_s"] <= found["default"]["duration_s"]
    assert (found["megatron"] == "no flag: its own order") == (
        found["best"]["duration_s"] == pytest.approx(found["default"]["duration_s"], rel=1e-9)
    )


def test_the_best_alone_to_paste(commsim: Command) -> None:
    line = "place dgx-h100@2 --tp 2 --traffic tp=all_reduce:1MiB --format"
    assert commsim(f"{line} hostfile --hosts a,b").out == "a\n" * 8 + "b\n" * 8
    assert "DeviceMesh" in commsim(f"{line} torch").out
    assert commsim(f"{line} ranks").out == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15\n"


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ("", "what do the groups send?"),
        ("--model llama3-8b --traffic tp=all_reduce:1MiB", "one of the two"),
        ("--traffic tp=all_reduce", "expected KIND=OP:SIZE[:TIMES[:GROUPS]]"),
        ("--traffic mine=all_reduce:1MiB", "unknown kind of group without ranks of its own 'mine'"),
        ("--traffic tp=all_redcue:1MiB", "did you mean 'all_reduce'"),
        ("--traffic mine=all_reduce:1MiB:1:0,1/1,2", "at most once"),
        ("--traffic mine=all_reduce:1MiB:1:0,99", "at most once"),
        ("--tp 3 --traffic tp=all_reduce:1MiB", "is not the cluster's 8 GPUs"),
        ("--tp 0 --traffic tp=all_reduce:1MiB", "layout.tp: expected 1 or more, got 0"),
        ("--traffic dp=all_reduce:1MiB --format slurm", "unknown format of a mapping 'slurm'"),
        ("--traffic dp=all_reduce:1MiB --hosts a,b --format hostfile", "expected 1 names"),
    ],
)
def test_bad_input_is_one_line(rest: str, message: str, commsim: Command) -> None:
    ran = commsim(f"place dgx-h100 {rest}")
    assert (ran.code, ran.out) == (2, "")
    (line,) = ran.err.splitlines()
    assert message in line


def test_messages_that_compute_hides_do_not_decide(commsim: Command) -> None:
    # Tensor-parallel messages wait on the way of every layer, gradients go behind compute: dp
    # inside a machine sends for less time and makes a longer step.
    ran = commsim("place dgx-h100@2 --tp 8 --dp 2 --model llama3-8b")
    assert ran.code == 0
    assert "tp-dp-cp-ep-pp is the better choice" in ran.out
    found = json.loads(commsim("place dgx-h100@2 --tp 8 --dp 2 --model llama3-8b --json").out)
    steps = {each["order"]: each["duration_s"] for each in found["orders"]}
    assert steps["tp-dp-cp-ep-pp"] < steps["dp-tp-cp-ep-pp"]
    assert found["best"]["duration_s"] < found["default"]["duration_s"]
