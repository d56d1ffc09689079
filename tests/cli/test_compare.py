from __future__ import annotations

from collections.abc import Callable

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
