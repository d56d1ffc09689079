from __future__ import annotations

from collections.abc import Callable

import pytest

from .conftest import Ran

Command = Callable[[str], Ran]
GIB = 2**30


def test_sections(commsim: Command) -> None:
    ran = commsim("explain dgx-h100 all_reduce --size 2MiB --nodes 2")
    assert (ran.code, ran.err) == (0, "")
    titles = [line for line in ran.lines if line and not line.startswith(" ")]
    for title in ("why", "candidates", "switch points between 8 B and 8 GiB", "bytes per link"):
        assert title in titles
    assert "from link rate to bus bandwidth" in titles


def test_every_candidate_with_its_time_or_why_not(commsim: Command) -> None:
    line = "explain dgx-h100 all_reduce --size 2MiB --nodes 2"
    found = commsim(f"{line} --json").json
    text = commsim(line).out
    available = [c for c in found["alternatives"] if c["available"]]
    ruled_out = [c for c in found["alternatives"] if not c["available"]]
    assert len(available) >= 2
    assert all(c["duration_s"] > 0 for c in available)
    assert ruled_out
    for candidate in ruled_out:
        assert candidate["duration_s"] is None
        assert candidate["reason"] in text
    rows = text[text.index("candidates") : text.index("switch points")].splitlines()[3:]
    chosen = [row for row in rows if row.endswith("chosen")]
    assert len(chosen) == 1
    assert chosen[0].split()[:2] == [found["algorithm"], found["protocol"]]
    assert len([row for row in rows if row]) == len(found["alternatives"])


def test_the_winner_is_the_library_s_cheapest(commsim: Command) -> None:
    found = commsim("explain dgx-h100 all_reduce --size 2MiB --nodes 2 --json").json
    best = min((c for c in found["alternatives"] if c["available"]), key=lambda c: c["estimate_s"])
    assert (best["algorithm"], best["protocol"]) == (found["algorithm"], found["protocol"])


def test_choices_change_at_the_switch_points_and_nowhere_near_before(commsim: Command) -> None:
    line = "dgx-h100 all_reduce --nodes 2 --json"
    switches = commsim(f"explain {line} --size 2MiB").json["switch_points"]
    assert switches
    sizes = [s["from_bytes"] for s in switches]
    assert sizes == sorted(set(sizes))
    for switch in switches:
        for nbytes, side in ((switch["from_bytes"], "after"), (switch["from_bytes"] - 1, "before")):
            found = commsim(f"predict {line} --size {nbytes}").json
            assert {k: found[k] for k in ("algorithm", "protocol")} == switch[side]


def test_bytes_of_a_ring_on_two_nodes(commsim: Command) -> None:
    line = "explain dgx-h100 all_reduce --size 1GiB --nodes 2 --env NCCL_ALGO=Ring --json"
    inside, network = commsim(line).json["traffic"]
    # 2 x 15/16 of the buffer on every link that the ring crosses
    assert inside["sent_bytes"] == network["sent_bytes"] == pytest.approx(1.875 * GIB)
    assert inside["rate_bytes_per_s"] == pytest.approx(450e9)  # 18 NVLinks of 25 GB/s
    assert network["rate_bytes_per_s"] == pytest.approx(400e9)  # 8 NICs of 400 Gbit/s
    assert network["at_full_rate_s"] == pytest.approx(1.875 * GIB / 400e9)


def test_the_waterfall_ends_at_the_bus_bandwidth(commsim: Command) -> None:
    line = "explain dgx-h100 all_reduce --size 1GiB --nodes 2 --env NCCL_ALGO=Ring"
    found = commsim(f"{line} --env NCCL_PROTO=LL128 --json").json
    stages = {s["stage"]: s["bandwidth_bytes_per_s"] for s in found["waterfall"]}
    names = list(stages)
    assert names[0] == "raw link rate"
    assert stages["raw link rate"] == pytest.approx(400e9)
    before = stages[names[names.index("protocol") - 1]]
    assert stages["protocol"] == pytest.approx(before * 120 / 128)
    assert stages["algorithm"] == pytest.approx(
        stages["protocol"]
    )  # a ring moves what busbw counts
    assert names[-1] == "bus bandwidth"
    assert stages["bus bandwidth"] == found["bus_bandwidth_bytes_per_s"]


def test_nothing_flows_in_a_barrier(commsim: Command) -> None:
    found = commsim("explain dgx-h100 barrier --json").json
    assert found["traffic"] == found["waterfall"] == found["switch_points"] == []
    assert commsim("explain dgx-h100 barrier").code == 0


def test_channels_as_nccl_logs_them_on_eight_h100(commsim: Command) -> None:
    line = "explain dgx-h100 all_reduce --size 1GiB"
    found = commsim(f"{line} --json").json["communicator"]
    # NCCL_DEBUG_SUBSYS=GRAPH on such machines: "Pattern 4, crossNic 0, nChannels 12, bw 30/30,
    # type NVL/PIX, sameChannels 1", then 24 collective channels
    ring = found["graphs"]["ring"]
    assert (ring["channels"], ring["intra_bandwidth_bytes_per_s"]) == (12, 30e9)
    assert (ring["intra_path"], ring["inter_path"], ring["same_channels"]) == ("NVL", "PIX", True)
    assert (found["nodes"], found["collective_channels"]) == (1, 24)
    rows = [row.split() for row in commsim(line).lines if row.startswith("ring ")]
    assert ["ring", "ring", "12", "30", "-", "NVL", "-", "yes", "0"] in rows


def test_libraries_without_a_graph_search_show_none(commsim: Command) -> None:
    line = "explain dgx-h100 all_reduce --size 1MiB --library gloo"
    assert commsim(f"{line} --json").json["communicator"] is None
    assert "graph " not in commsim(line).out


def test_where_the_search_finds_nothing_its_0_1_is_no_rate(commsim: Command) -> None:
    # Two EPYC sockets join at 16 GB/s, and NCCL's speeds for Blackwell end at 18.
    line = "explain rtx5090x8 all_reduce --size 1GiB"
    found = commsim(f"{line} --json").json
    assert found["communicator"]["graphs"]["ring"]["intra_bandwidth_bytes_per_s"] == 0.1e9
    assert "library's channels" not in [stage["stage"] for stage in found["waterfall"]]
    assert "writes 0.1 GB/s down" in commsim(line).out
