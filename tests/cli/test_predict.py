from __future__ import annotations

from collections.abc import Callable

import pytest

from commsim.cli.predict import choice_text

from .conftest import Ran

Command = Callable[[str], Ran]


def test_the_answer_in_lines(commsim: Command) -> None:
    ran = commsim("predict dgx-h100 all_reduce --size 1GiB --nodes 2")
    assert (ran.code, ran.err) == (0, "")
    first, *rest = ran.lines
    assert first.startswith("all_reduce of 1 GiB (float32) on dgx-h100, 2 nodes: 16 ranks, nccl ")
    words = [line[2:23].strip() for line in rest[:6]]
    assert words == [
        "duration", "algorithm bandwidth", "bus bandwidth", "choice", "bottleneck", "breakdown",
    ]  # fmt: skip
    assert "80 %:" in rest[0]


def test_json_in_base_units(commsim: Command) -> None:
    found = commsim("predict dgx-h100 all_reduce --size 64MiB --nodes 2 --json").json
    assert found["size_bytes"] == 64 * 2**20
    assert found["n_ranks"] == 16
    low, high = found["interval_s"]
    assert 0 < low <= found["duration_s"] <= high
    assert sum(found["breakdown_s"].values()) == pytest.approx(found["duration_s"])
    algbw = found["algorithm_bandwidth_bytes_per_s"]
    assert algbw == pytest.approx(found["size_bytes"] / found["duration_s"])
    # nccl-tests' factor of all_reduce on 16 ranks: 2 x 15 / 16
    assert found["bus_bandwidth_bytes_per_s"] == pytest.approx(algbw * 1.875)


def test_a_group_in_the_order_and_ranges_given(commsim: Command) -> None:
    found = commsim("predict dgx-h100 broadcast -s 1M --nodes 2 --ranks 0-1,9 --root 9 --json").json
    assert (found["ranks"], found["root"], found["n_ranks"]) == ([0, 1, 9], 9, 3)


def test_options_reach_the_question(commsim: Command) -> None:
    line = "predict dgx-h100 all_reduce --size 1GiB --nodes 2 --json"
    plain = commsim(line).json
    slow = commsim(f"{line} --set node.nics.rate=100Gbit/s").json
    assert slow["duration_s"] > 1.5 * plain["duration_s"]  # a quarter of the network
    ring = commsim(f"{line} --env NCCL_ALGO=Ring --env NCCL_PROTO=Simple").json
    assert (ring["algorithm"], ring["protocol"]) == ("ring", "Simple")
    old = commsim(f"{line} --library nccl@2.21.5").json
    assert old["library"] == "nccl@2.21.5"
    half = commsim(f"{line} --dtype half").json
    assert half["dtype"] == "float16"


def test_a_barrier_needs_no_size(commsim: Command) -> None:
    ran = commsim("predict dgx-h100 barrier")
    assert ran.code == 0
    assert "bandwidth  " not in ran.out
    assert ran.lines[0].startswith("barrier on dgx-h100, 1 node: 8 ranks")


def test_choice_text() -> None:
    assert choice_text("ring", "LL128", 16) == "ring, LL128, 16 channels"
    assert choice_text("p2p", "", 1) == "p2p, 1 channel"
