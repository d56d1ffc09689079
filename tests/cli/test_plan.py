from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Ran

Command = Callable[[str], Ran]
ASK = (
    "plan --model llama3.2-1b --cluster dgx-h100 --global-batch 64 --seq 2048 --only cp=1 "
    "--only micro_batch=1,2"
)


def test_the_answer_as_tables(commsim: Command) -> None:
    ran = commsim(f"{ASK} --top 3 --explain")
    assert (ran.code, ran.err) == (0, "")
    assert ran.lines[0].startswith("llama3.2-1b on dgx-h100, 8 GPUs: ")
    text = ran.out
    for words in (
        "the best by time", "MFU", "80 %", "USD per 10^12 tokens", "bottleneck", "left out",
        "not beaten in both time and memory", "2.95 USD per GPU-hour", "fit, but are worse",
        "why the best beats the second", "it differs in",
    ):  # fmt: skip
        assert words in text
    assert sum(line.lstrip().startswith(("1 ", "2", "3")) for line in ran.lines) >= 3


def test_json_in_base_units(commsim: Command) -> None:
    found = commsim(f"{ASK} --top 2 --explain --checkpoint 60s --json").json
    assert [p["place"] for p in found["plans"]] == [1, 2]
    best = found["plans"][0]
    low, high = best["interval_s"]
    assert low < best["duration_s"] < high
    assert best["memory"]["fits"]
    assert best["simulated_s"] == pytest.approx(best["duration_s"], rel=0.2)
    assert best["layout"]["global_batch"] == 64
    assert found["explanation"]
    # One GPU of 8 fails every 405,600 h / 8 ...: a checkpoint a minute long costs next to nothing.
    assert 0.99 < found["reliability"]["goodput"] < 1


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("megatron", "--tensor-model-parallel-size"),
        ("nemo", "trainer.strategy.tensor_model_parallel_size="),
        ("torchtitan", "--parallelism.tensor_parallel_degree"),
        ("deepspeed", '"train_batch_size": 64'),
        ("fsdp", "fully_shard(model, mesh=mesh"),
    ],
)
def test_the_best_as_configuration(name: str, words: str, commsim: Command) -> None:
    ran = commsim(f"{ASK} --top 1 --emit {name} --only recompute=none")
    assert ran.code == 0
    assert words in ran.out.split("\nconfiguration\n")[1]


def test_nothing_is_simulated_where_that_is_not_wanted(commsim: Command) -> None:
    found = commsim(f"{ASK} --top 2 --simulate 0 --json").json
    assert [p["simulated_s"] for p in found["plans"]] == [None, None]
    assert "simulated" not in commsim(f"{ASK} --top 2 --simulate 0").out


def test_what_each_part_is_worth(commsim: Command) -> None:
    ran = commsim(f"{ASK} --top 1 --sensitivity")
    rows = [line for line in ran.lines if line.startswith(("GPU compute", "NVLink", "GPU memory "))]
    assert len(rows) == 4  # GPU memory and its bandwidth
    assert "step with twice" in ran.out


def test_strong_scaling(commsim: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("commsim.planning.scaling.MOST_GPUS", 32)
    points = commsim(f"{ASK} --top 1 --scaling strong --json").json["scaling"]
    assert [p["gpus"] for p in points] == [8, 16, 32]
    assert points[0]["efficiency"] == 1
    assert all(p["layout"]["global_batch"] == 64 for p in points)
    weak = commsim(f"{ASK} --top 1 --scaling weak --json").json["scaling"]
    assert [p["layout"]["global_batch"] for p in weak] == [64, 128, 256]


def test_several_clusters(commsim: Command) -> None:
    ask = ASK.replace("--cluster dgx-h100", "-c dgx-a100@2 -c dgx-h100@2")
    found = commsim(f"{ask} --objective time --json").json["offers"]
    assert [offer["cluster"] for offer in found] == ["dgx-h100", "dgx-a100"]
    assert [offer["n_ranks"] for offer in found] == [16, 16]
    cost = commsim(f"{ask} --objective cost")
    assert "the best layout of each, by cost" in cost.out
    assert "days" in cost.out


@pytest.mark.parametrize(
    "option",
    [
        "--explain", "--emit megatron", "--sensitivity", "--scaling weak", "--checkpoint 60s",
        "--storage 100GB/s", "--mtbf 50000h", "--restart 10min",
    ],
)  # fmt: skip
def test_what_is_of_one_cluster_is_refused_of_several(option: str, commsim: Command) -> None:
    ran = commsim(f"{ASK} -c dgx-a100 {option}")
    assert (ran.code, ran.out) == (2, "")
    assert f"{option.split()[0]} is about one cluster; give --cluster once" in ran.err


def test_results_are_kept_and_used_again(commsim: Command, tmp_path: Path) -> None:
    path = tmp_path / "results.sqlite"
    first = commsim(f"{ASK} --top 2 --results {path} --json").json
    assert path.exists()
    assert commsim(f"{ASK} --top 2 --results {path} --json").json == first


def test_a_cluster_too_small_for_the_model(commsim: Command) -> None:
    ran = commsim("plan -m llama3-70b -c dgx-h100 --global-batch 48 --seq 4096")
    assert ran.code == 2
    assert ran.out == ""
    (line,) = ran.err.splitlines()
    assert "no layout fits in memory; the least that would do is" in line


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("--objective beauty", "unknown objective 'beauty'"),
        ("--fix tp", "--fix: expected KEY=VALUE such as tp=4,8, got 'tp'"),
        ("--emit megatorn", "did you mean 'megatron'"),
        ("--scaling sideways", "--scaling: expected strong or weak"),
        ("--mtbf 50000h", "--checkpoint: what does one take?"),
        ("--engine slurm://x:1", "engine: expected auto, serial, local"),
        ("--framework jax", "unknown framework 'jax'"),
    ],
)
def test_bad_input_is_one_line(more: str, message: str, commsim: Command) -> None:
    ran = commsim(f"{ASK} --top 1 --only recompute=none {more}")
    assert ran.code == 2
    (line,) = ran.err.splitlines()
    assert line.startswith("commsim: ")
    assert message in line
