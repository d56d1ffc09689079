from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Ran

Command = Callable[[str], Ran]


def test_one_change_is_the_whole_difference(commsim: Command) -> None:
    line = "compare dgx-h100 dgx-h100 all_reduce -s 1GiB --nodes 2"
    found = commsim(f"{line} --set-b node.nics.rate=100Gbit/s --json").json
    (size,) = found["sizes"]
    (cause,) = found["causes"]
    assert cause["attribute"] == "NICs"
    assert cause["duration_s"] == pytest.approx(size["b"]["duration_s"])
    assert size["ratio"] == pytest.approx(size["a"]["duration_s"] / size["b"]["duration_s"])
    assert size["ratio"] < 1


def test_every_difference_has_a_line(commsim: Command) -> None:
    line = "compare dgx-h100 dgx-h100 all_reduce -s 1GiB --nodes-a 2 --nodes-b 4"
    line += " --set-b fabric.oversubscription=2.0 --library-b nccl@2.21.5"
    found = commsim(f"{line} --json").json
    assert {c["attribute"] for c in found["causes"]} == {"library", "nodes", "oversubscription"}
    text = commsim(line).out
    for cause in found["causes"]:
        assert f"\n{cause['attribute']} " in text


def test_side_by_side(commsim: Command) -> None:
    ran = commsim("compare dgx-h100 dgx-h100 all_reduce --nodes-a 1 --nodes-b 2")
    assert (ran.code, ran.err) == (0, "")
    assert ran.lines[0].startswith("A: dgx-h100, 1 x 8 H100-SXM5-80GB, 8 ranks, nccl")
    assert ran.lines[1].startswith("B: dgx-h100, 2 x 8 H100-SXM5-80GB, 16 ranks, nccl")
    table = ran.out[ran.out.index("\nall_reduce\n") :].split("\n\n")[0].splitlines()
    assert [" ".join(row.split()[:2]) for row in table[-5:]] == [
        "64 KiB", "1 MiB", "16 MiB", "256 MiB", "1 GiB",
    ]  # fmt: skip


def test_equal_clusters_have_no_cause(commsim: Command) -> None:
    found = commsim("compare dgx-h100 dgx-h100 all_reduce -s 1MiB --json").json
    assert found["causes"] == []
    assert found["sizes"][0]["ratio"] == 1


def test_money_is_price_x_gpus_x_time(commsim: Command, tmp_path: object) -> None:
    path = f"{tmp_path}/priced.toml"
    with open(path, "w", encoding="utf-8") as file:
        file.write('extends = "dgx-h100"\nprice_per_gpu_hour = "3.60 USD"\n')
    ran = commsim(f"compare {path} dgx-h100 all_reduce -s 1GiB")
    duration = commsim(f"predict {path} all_reduce -s 1GiB --json").json["duration_s"]
    # 3.60 USD an hour is 0.001 USD a second: 8 GPUs, a million operations
    line = next(text for text in ran.lines if "USD per million operations" in text)
    printed = float(line.split("hour, ")[1].split()[0])
    assert printed == pytest.approx(0.001 * 8 * duration * 1e6, rel=1e-3)


def test_gpus_of_another_vendor_bring_their_library(commsim: Command) -> None:
    line = "compare dgx-h100 mi300x all_reduce -s 1GiB --json"
    found = commsim(line).json
    names = [cause["attribute"] for cause in found["causes"]]
    assert names[0] == "GPUs, links, library"
    assert "library" not in names
    assert found["causes"][0]["b"].startswith("8 x MI300X, xgmi-mesh, rccl")
    # The fabric does not matter on one node: the GPUs alone make the whole difference.
    assert found["causes"][0]["duration_s"] == pytest.approx(found["sizes"][0]["b"]["duration_s"])


def test_machines_by_name_or_by_gpus(commsim: Command) -> None:
    line = "compare dgx-h100@2 dgx-h100 all_reduce -s 1MiB --nodes-b 4 --json"
    (size,) = commsim(line).json["sizes"]
    assert (size["a"]["n_ranks"], size["b"]["n_ranks"]) == (16, 32)
    line = "compare dgx-h100 gh200 all_reduce -s 1MiB --gpus 16 --json"
    (size,) = commsim(line).json["sizes"]
    assert (size["a"]["n_ranks"], size["b"]["n_ranks"]) == (16, 16)


# ---- trainings ----

TRAINING = (
    "--model llama3.2-1b --global-batch 64 --seq 2048 --only cp=1,pp=1,micro_batch=1 "
    "--simulate 0 --tune 0"
)


def test_a_training_on_several_clusters(commsim: Command) -> None:
    line = f"compare dgx-a100 dgx-h100 hgx-b200 {TRAINING} --gpus 16"
    ran = commsim(line)
    assert (ran.code, ran.err) == (0, "")
    for words in (
        "llama3.2-1b, batch 64 x 2,048: the best layout of each, by time", "tokens/s", "MFU",
        "A: dgx-a100, 2 x 8 A100-SXM4-80GB", "C: hgx-b200, 2 x 8 B200-SXM-180GB", "10^12 tokens",
        "of A", "USD per GPU-hour", "what the difference to A is due to", "B: days", "C: USD",
        "compute", "bubble", "together", "B: 2.95 USD per GPU-hour: ", "2026-05-20",
    ):  # fmt: skip
        assert words in ran.out
    assert all(o["n_ranks"] == 16 for o in commsim(f"{line} --json").json["offers"])


def test_a_training_in_base_units(commsim: Command) -> None:
    """Days and USD follow from the step, its tokens and the price; shown is what JSON gives."""
    line = f"compare dgx-a100@4 dgx-h100@2 {TRAINING}"
    found = commsim(f"{line} --json").json
    offers = {offer["number"]: offer for offer in found["offers"]}
    first, other = offers[1], offers[2]
    for offer, gpus in ((first, 32), (other, 16)):
        steps = 1e12 / (64 * 2048)
        seconds = steps * offer["plan"]["duration_s"]
        assert offer["n_ranks"] == gpus
        assert offer["trillion_tokens_s"] == pytest.approx(seconds)
        assert offer["tokens_per_s"] == pytest.approx(1e12 / seconds)
        assert offer["trillion_tokens_interval_s"] == pytest.approx(
            [steps * end for end in offer["plan"]["interval_s"]]
        )
        hourly = offer["price"]["usd_per_gpu_hour"]
        assert offer["usd_per_trillion_tokens"] == pytest.approx(hourly * gpus * seconds / 3600)
        assert offer["price"]["date"]
        assert offer["price"]["source"]
    ratio = other["trillion_tokens_s"] / first["trillion_tokens_s"]
    assert other["against"]["time_ratio"] == pytest.approx(ratio)
    assert first["against"]["time_ratio"] == 1
    causes = {cause["cause"]: cause for cause in other["against"]["causes"]}
    assert {"compute", "bubble", "number of GPUs", "price"} <= causes.keys()
    assert sum(cause["duration_s"] for cause in causes.values()) == pytest.approx(
        other["trillion_tokens_s"] - first["trillion_tokens_s"]
    )
    text = commsim(line).out
    assert f"x {ratio:.3f}" in text
    assert f"{other['usd_per_trillion_tokens']:,.0f}" in text


def test_plan_and_compare_say_the_same_of_several_clusters(commsim: Command) -> None:
    together = commsim(f"compare dgx-a100 dgx-h100 --nodes 2 {TRAINING}")
    planned = commsim(f"plan -c dgx-a100 -c dgx-h100 --nodes 2 {TRAINING}")
    assert together.out == planned.out
    alone = commsim(f"plan -c dgx-h100 --nodes 2 {TRAINING} --json").json["plans"][0]
    found = commsim(f"compare dgx-a100 dgx-h100 --nodes 2 {TRAINING} --json").json["offers"]
    (same,) = [offer["plan"] for offer in found if offer["number"] == 2]
    assert same == alone


def test_one_change_and_its_tie(commsim: Command) -> None:
    line = f"compare dgx-h100 dgx-h100 --nodes 2 {TRAINING} --set-b node.nics.rate=380Gbit/s"
    offers = commsim(f"{line} --json").json["offers"]
    assert [(o["number"], o["tie"]) for o in offers] == [(1, False), (2, True)]
    assert "~: a tie, inside the 80 % interval of the best" in commsim(line).out


def test_what_has_no_price_or_no_room(commsim: Command, tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text('extends = "rtx-pro-6000x8"\nnodes = 1\n', encoding="utf-8")
    line = f"compare rtx4090x8 {path} dgx-h100 --model llama2-13b --global-batch 64 --seq 8192"
    line += " --only cp=1,pp=1,micro_batch=1 --simulate 0 --tune 0"
    ran = commsim(line)
    assert ran.code == 0
    assert "\n  A: plan: llama2-13b on rtx4090x8 with 8 GPUs: no layout fits in memory; " in ran.out
    assert "B: price not known: state price_per_gpu_hour in the cluster file" in ran.out
    assert "what the difference to B is due to" in ran.out
    small, own, other = sorted(
        commsim(f"{line} --json").json["offers"], key=lambda offer: offer["number"]
    )
    assert small["plan"] is None
    assert own["price"] is None
    assert own["usd_per_trillion_tokens"] is None
    assert other["against"]["cost_ratio"] is None
    assert other["against"]["time_ratio"] < 1


def test_a_model_that_fits_nowhere(commsim: Command) -> None:
    line = "compare dgx-h100 dgx-a100 -m llama3-70b --global-batch 48 --seq 4096 --only cp=1"
    ran = commsim(line)
    assert (ran.code, ran.out) == (2, "")
    assert [line.split(":")[1] for line in ran.err.splitlines()] == [" plan", " plan"]
    assert ran.err.count("the least that would do is") == 2


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ("", "expected an operation (compare dgx-a100 dgx-h100 all_reduce), or a training"),
        ("--global-batch 8 --seq 8", "expected an operation"),
        (f"all_reduce {TRAINING}", "all_reduce and --model: one operation or a training"),
        ("hgx-b200 all_reduce", "an operation is compared on two clusters, got hgx-b200"),
        ("all_reduce --seq 4096", "--seq is of a training, not of all_reduce"),
        ("-m llama3-8b", "a training wants --global-batch and --seq too"),
        (f"{TRAINING} --size 1GiB", "--size is of an operation, and --model asks for a training"),
        (f"{TRAINING} --library-a nccl@2.21.5", "--library-a is of an operation"),
        (f"{TRAINING} --redop sum", "--redop is of an operation"),
        (f"{TRAINING} --gpus 12", "--gpus: dgx-a100 has 8 GPUs in a machine: expected a multiple"),
        (f"{TRAINING} --gpus 16 --nodes 2", "--gpus says how many machines: leave --nodes out"),
        (f"hgx-b200@2 {TRAINING} --gpus 16", "leave @2 of hgx-b200@2 out"),
        (f"hgx-b20 {TRAINING}", "did you mean 'hgx-b200'?"),
        (f"{TRAINING} --objective beauty", "unknown objective 'beauty'"),
        (f"{TRAINING} --plot x.pdf", "x.pdf"),
    ],
)
def test_one_question_at_a_time(rest: str, message: str, commsim: Command) -> None:
    ran = commsim(f"compare dgx-a100 dgx-h100 {rest}")
    assert (ran.code, ran.out) == (2, "")
    (line,) = ran.err.splitlines()
    assert line.startswith("commsim: ")
    assert message in line
