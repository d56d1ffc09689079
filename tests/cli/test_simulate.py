from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commsim.cli import simulate as command
from commsim.collectives.collective import Collective
from commsim.prediction import predict
from commsim.topology.load import load_cluster
from commsim.units import GIB, MIB

from .conftest import Ran

Command = Callable[[str], Ran]
ONE = "simulate dgx-h100 all_reduce --size 1MiB"
TWO = "simulate dgx-h100 all_gather --size 1MiB --nodes 2"


def facts(ran: Ran) -> dict[str, str]:
    """The lines of two columns."""
    found = (re.fullmatch(r"  (\S+(?: \S+)*)  +(\S.*)", line) for line in ran.lines)
    return {m[1]: m[2] for m in found if m}


def sections(ran: Ran) -> list[str]:
    """The titles of what follows the facts."""
    return [b for a, b in zip(ran.lines, ran.lines[1:], strict=False) if not a and b]


def duration(ran: Ran) -> float:
    assert (ran.code, ran.err) == (0, ""), ran.err
    found: float = ran.json["duration_s"]
    return found


# ---- in lines ----


def test_the_answer_in_lines(commsim: Command) -> None:
    ran = commsim("simulate dgx-h100 all_reduce --size 64MiB --nodes 2")
    assert (ran.code, ran.err) == (0, "")
    assert ran.lines[0] == (
        "all_reduce of 64 MiB (float32) on dgx-h100, 2 nodes: 16 ranks, nccl 2.30.7"
    )
    found = facts(ran)
    assert list(found)[:6] == [
        "duration", "closed form", "bus bandwidth", "played", "transfers", "critical path",
    ]  # fmt: skip
    expected = predict(Collective("all_reduce", 64 * MIB), load_cluster("dgx-h100", nodes=2))
    assert found["closed form"] == f"{expected.duration * 1e6:.4g} us; simulated x 1"
    assert found["duration"] == f"{expected.duration * 1e6:.4g} us"
    assert found["bus bandwidth"] == f"{expected.bus_bandwidth / 1e9:.4g} GB/s"
    assert found["played"] == (
        f"{expected.algorithm}, {expected.protocol}, {expected.channels} channels"
    )
    assert re.fullmatch(
        r"launch .* us \(\d+%\), transfer .* us \(\d+%\), latency .* us \(\d+%\)",
        found["critical path"],
    )
    assert sections(ran) == ["hottest links", "notes"]
    first, line, hottest = ran.lines[ran.lines.index("hottest links") + 1 :][:3]
    assert first.split() == ["link", "share", "of", "its", "time", "bytes"]
    assert set(line) == {"─"}
    assert re.fullmatch(r"\S+ -> \S+ +\d+\.\d% +\S+ [KM]iB", hottest)
    assert len(re.findall(" -> ", ran.out)) == command.HOTTEST


def test_a_barrier_in_lines(commsim: Command) -> None:
    ran = commsim("simulate dgx-h100 barrier")
    assert ran.code == 0
    assert ran.lines[0] == "barrier on dgx-h100, 1 node: 8 ranks, nccl 2.30.7"
    assert "bus bandwidth" not in facts(ran)
    assert sections(ran) == ["notes"]  # no byte on any link


def test_two_collectives_in_lines(commsim: Command) -> None:
    ran = commsim("simulate dgx-h100 all_gather --size 1GiB --also all_to_all:64MiB@100us")
    assert ran.code == 0
    numbered = [line for line in ran.lines if re.match(r"\d\. ", line)]
    assert numbered == [
        "1. all_gather of 1 GiB, from 0 us",
        "2. all_to_all of 64 MiB, from 100 us",
    ]
    assert len([line for line in ran.lines if line.startswith("  duration ")]) == 2
    assert len([line for line in ran.lines if line.startswith("  closed form ")]) == 1


def test_who_waited_for_late_ranks_in_lines(commsim: Command) -> None:
    """Rank 3 comes 2 ms late: all others wait, it hardly does; no noise of rounding."""
    ran = commsim(f"{ONE} --late 3=2ms")
    assert ran.code == 0
    at = ran.lines.index("ranks that waited longest for late ones")
    rows = {line.split()[0]: line for line in ran.lines[at + 3 : at + 11]}
    assert set(rows) == set("01234567")
    assert list(rows)[-1] == "3"
    arrived = {rank: re.split(r"  +", row.strip())[1:3] for rank, row in rows.items()}
    assert arrived["3"][0] == "2.005 ms"
    assert re.fullmatch(r"\d\.?\d* us", arrived["3"][1])
    for rank in set("01234567") - {"3"}:
        assert arrived[rank][0] == facts(ran)["critical path"].split("launch ")[1].split(" (")[0]
        waited, unit = arrived[rank][1].split()
        assert (float(waited), unit) == (pytest.approx(2, rel=0.01), "ms")
    assert "late 2 ms" in facts(ran)["critical path"]
    assert not re.search(r"\de-", ran.out)


def test_what_never_ends_in_lines(commsim: Command) -> None:
    ran = commsim("simulate dgx-h100 all_reduce --size 1GiB --nodes 2 --die 9=1ms --watchdog 20s")
    assert (ran.code, ran.err) == (3, "")
    assert facts(ran)["duration"] == "never ends"
    assert "bus bandwidth" not in facts(ran)
    reports = [line for line in ran.lines if line.startswith("  [rank ")]
    assert len(reports) == 10
    assert ran.lines[ran.lines.index(reports[-1]) + 1] == "  and 5 ranks more"
    assert all("ran for 20 s: rank " in r and "Cause: rank 9 died at 1 ms" in r for r in reports)
    assert "rank switch" not in ran.out


def test_a_failed_link_is_named(commsim: Command) -> None:
    ran = commsim(
        "simulate dgx-h100 all_reduce --size 1GiB --nodes 2 --fail node1/nic3@1ms"
        " --env NCCL_ALGO=Ring"
    )
    assert ran.code == 3
    causes = re.findall(r"Cause: (.*)", ran.out)
    assert len(causes) == 10
    for cause in causes:
        assert re.fullmatch(r"link (\S+ -> )?node1/nic3( -> \S+)? failed at 1 ms", cause)


# ---- as JSON ----


def keys(value: Any) -> set[str]:
    if isinstance(value, dict):
        return set(value).union(*map(keys, value.values()))
    return set().union(*map(keys, value)) if isinstance(value, list) else set()


def test_json_in_base_units(commsim: Command) -> None:
    found = commsim(f"{TWO} --late 3=2ms --also barrier@1ms --json").json
    assert set(found) >= {
        "duration_s", "collectives", "links", "links_left_out", "notes", "waiting",
    }  # fmt: skip
    first, second = found["collectives"]
    assert (first["operation"], first["size_bytes"], first["n_ranks"]) == ("all_gather", MIB, 16)
    assert (second["operation"], second["start_s"]) == ("barrier", 1e-3)
    assert first["end_s"] == first["start_s"] + first["duration_s"]
    path = first["critical_path_s"]
    assert sum(path.values()) == pytest.approx(first["duration_s"], rel=1e-9)
    assert [r["rank"] for r in first["ranks"]] == list(range(16))
    assert [r["rank"] for r in found["waiting"]] == list(range(16))
    for r in found["waiting"]:
        parts = r["transferring_s"] + r["late_s"] + r["waiting_s"]
        assert parts == pytest.approx(r["end_s"] - r["arrival_s"], rel=1e-9)
    hottest = found["links"][0]
    assert 0 < hottest["utilization"] <= 1
    assert hottest["capacity_bytes_per_s"] > 1e9
    quantities = {k for k in keys(found) if re.search("duration|bandwidth|time|start|end$", k)}
    assert all(k.endswith(("_s", "_bytes", "_bytes_per_s")) for k in quantities), quantities


def test_json_of_what_never_ends(commsim: Command) -> None:
    ran = commsim("simulate dgx-h100 all_reduce --size 1GiB --die 3=1ms --json")
    assert ran.code == 3
    (one,) = ran.json["collectives"]
    assert ran.json["duration_s"] is None
    assert (one["end_s"], one["duration_s"], one["bus_bandwidth_bytes_per_s"]) == (None, None, 0)
    assert {r["rank"] for r in one["watchdog"]} == {0, 1, 2, 4, 5, 6, 7}
    assert {(r["cause"], r["cause_in"]) for r in one["watchdog"]} == {("dead", 3)}
    assert all(r["time_s"] > 600 for r in one["watchdog"])


def test_equal_commands_print_equal_bytes(commsim: Command) -> None:
    line = f"{TWO} --routing ecmp --seed 3 --jitter normal=2us --json"
    assert commsim(line).out == commsim(line).out


# ---- every option ----


def test_options_that_ask_something_else(commsim: Command) -> None:
    plain = duration(commsim(f"{TWO} --json"))
    for more in (
        "--ranks 0-3,8-11", "--dtype int8 --set node.nics.rate=100Gbit/s", "--library gloo",
        "--env NCCL_PROTO=Simple", "--algorithm bruck",
        "--algorithm ring --channels 8", "--placement spread=4", "--placement packed=4",
        "--nodes 3",
    ):  # fmt: skip
        assert duration(commsim(f"{TWO} {more} --json")) != plain, more


@pytest.mark.parametrize(
    "more",
    [
        "--late 3=2ms", "--late 3=20us --late 9=40us", "--slow 3=4", "--slow 3=4 --slow 4=2",
        "--jitter exponential=5us", "--jitter uniform=5us", "--jitter normal=5us",
        "--jitter lognormal=5us --seed 2", "--degrade node0/nic3=0.1",
        "--degrade node0/nic3=0.1@5us", "--degrade */gpu?=0.1", "--fail node0/nic3",
        "--traffic 0-8:8MiB", "--traffic 0-8:8MiB@1us", "--traffic 0-8:8MiB@1us/20GB/s",
        "--also all_gather:8MiB", "--also all_to_all:8MiB@2us",
    ],
)  # fmt: skip
def test_disturbances_take_time(commsim: Command, more: str) -> None:
    line = TWO.replace("1MiB", "8MiB")
    plain, disturbed = (commsim(f"{line} {each} --json") for each in ("", more))
    assert (disturbed.code, disturbed.err) == (0, "")
    first = disturbed.json["collectives"][0]["duration_s"]
    assert first > duration(plain) * 1.001


def test_folding_and_routing_alone_change_nothing(commsim: Command) -> None:
    times = [duration(commsim(f"{TWO} {more} --json")) for more in ("", "--no-fold", "--fold")]
    assert times == pytest.approx([times[0]] * 3, rel=0.01)
    adaptive, hashed = (
        duration(commsim(f"{TWO} --routing {r} --json")) for r in ("adaptive", "ecmp")
    )
    assert hashed >= adaptive * (1 - 1e-6)


def test_one_thread_that_launches_on_all_gpus_takes_longer(commsim: Command) -> None:
    tiny = "simulate dgx-h100 all_reduce --size 8"
    one, single = (commsim(f"{tiny} {more} --json") for more in ("", "--launch single"))
    assert duration(single) > 1.5 * duration(one)


def test_root_and_reduce_op(commsim: Command) -> None:
    ran = commsim("simulate dgx-h100 broadcast --size 1MiB --nodes 2 --root 9 --redop sum --json")
    ranks = {r["rank"]: r for r in ran.json["collectives"][0]["ranks"]}
    # The root has sent before anybody further on has received.
    assert min(ranks, key=lambda rank: ranks[rank]["end_s"]) == 9


def test_a_short_watchdog_reports_what_is_only_slow(commsim: Command) -> None:
    ran = commsim(f"{ONE} --slow 3=9 --watchdog 20us")
    assert ran.code == 0
    assert "ran for 20 us" in ran.out
    assert "is still under way" in ran.out
    assert "Watchdog" not in commsim(f"{ONE} --slow 3=9").out


def test_a_profile_of_ones_own(commsim: Command, tmp_path: Path) -> None:
    shipped = Path(command.__file__).parent.parent / "cost" / "profiles" / "nccl.toml"
    (tmp_path / "mine.toml").write_text(shipped.read_text())
    same = duration(commsim(f"{ONE} --profile {tmp_path}/mine.toml --json"))
    assert same == duration(commsim(f"{ONE} --json"))
    assert commsim(f"{ONE} --profile {tmp_path}/none.toml").code == 2


# ---- files ----


def test_a_timeline_that_perfetto_can_read(commsim: Command, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    ran = commsim(f"{ONE} --timeline {path}")
    assert ran.code == 0
    assert ran.lines[-1] == f"timeline written to {path}; open it at https://ui.perfetto.dev"
    events = json.loads(path.read_text())["traceEvents"]
    slices = [e for e in events if e["ph"] in ("X", "b", "B")]
    assert len(slices) >= 112  # 2 x 7 rounds of 8 ranks
    quiet = commsim(f"{ONE} --timeline {path} --json")
    assert quiet.json["duration_s"] > 0  # nothing but JSON on stdout


def test_a_timeline_of_what_never_ends_is_written_too(commsim: Command, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    assert commsim(f"{ONE} --die 3=10us --timeline {path}").code == 3
    assert json.loads(path.read_text())["traceEvents"]


@pytest.mark.parametrize("option", ["--timeline {}/no/trace.json", "--export goal={}/no/ring.goal"])
def test_a_folder_that_does_not_exist(commsim: Command, tmp_path: Path, option: str) -> None:
    """Told at once, not after the simulation."""
    ran = commsim(f"{ONE} --time-limit 0s {option.format(tmp_path)}")
    assert (ran.code, ran.out) == (2, "")
    assert len(ran.err.splitlines()) == 1
    assert f"the folder {tmp_path}/no does not exist; make it first" in ran.err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_no_file(commsim: Command, tmp_path: Path) -> None:
    ran = commsim(f"{ONE} --timeline {tmp_path}")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == f"commsim: {tmp_path}: Is a directory\n"


# ---- limits and bad input ----


@pytest.mark.parametrize("operation", ["all_reduce", "all_to_all"])
def test_a_time_limit_stops_a_big_case(commsim: Command, tmp_path: Path, operation: str) -> None:
    path = tmp_path / "trace.json"
    ran = commsim(
        f"simulate dgx-h100 {operation} --size 1GiB --nodes 16 --time-limit 0.001s"
        f" --timeline {path}"
    )
    assert (ran.code, ran.out) == (2, "")
    (line,) = ran.err.splitlines()[-1:]
    assert re.match(
        r"commsim: --time-limit: 1 ms are over with [\d,]+ of [\d,]+ transfers played", line
    )
    assert "raise it, use fewer ranks, or leave out --no-fold" in line
    assert not path.exists()


def test_a_time_limit_that_is_kept_changes_nothing(commsim: Command) -> None:
    assert commsim(f"{ONE} --time-limit 1h --json").out == commsim(f"{ONE} --json").out


BAD = {
    "--late 3": "--late: expected KEY=VALUE such as 3=2ms, got '3'",
    "--late x=2ms": "--late: expected RANK=VALUE such as 3=2ms, got 'x=2ms'",
    "--late 3=2": "--late 3=2: expected a time with its unit such as \"2.5us\", got '2'",
    "--late 3=-2ms": '--late 3=-2ms: expected a time with its unit such as "2.5us"',
    "--late 8=2ms": "late: rank 8 does not exist on dgx-h100; expected 0 .. 7",
    "--slow 3=x": "--slow: expected RANK=VALUE such as 3=1.5, got '3=x'",
    "--slow 3=0": "slow: rank 3: expected a factor above 0 (2: half as fast), got 0.0",
    "--slow 3=nan": "slow: rank 3: expected a factor above 0 (2: half as fast), got nan",
    "--slow 3=inf": "slow: rank 3: expected a factor above 0 (2: half as fast), got inf",
    "--die 3=5": "--die 3=5: expected a time with its unit such as \"2.5us\", got '5'",
    "--die 99=5us": "deaths: rank 99 does not exist on dgx-h100; expected 0 .. 7",
    "--jitter exponential": (
        "--jitter: expected DISTRIBUTION=MEAN such as exponential=2us, got 'exponential'"
    ),
    "--jitter gauss=2us": (
        "unknown distribution 'gauss' (known: exponential, lognormal, normal, uniform)"
    ),
    "--jitter normal=2": '--jitter normal=2: expected a time with its unit such as "2.5us"',
    "--degrade node0/nic3": (
        "--degrade: expected LINK=SHARE[@TIME] such as node0/nic3=0.5, got 'node0/nic3'"
    ),
    "--degrade node0/nic3=x": (
        "--degrade: expected LINK=SHARE[@TIME] such as node0/nic3=0.5, got 'node0/nic3=x'"
    ),
    "--degrade =0.5": "--degrade: expected LINK=SHARE[@TIME] such as node0/nic3=0.5, got '=0.5'",
    "--degrade node0/nic3=0.5@": (
        "--degrade: expected LINK=SHARE[@TIME] such as node0/nic3=0.5, got 'node0/nic3=0.5@'"
    ),
    "--degrade node0/nic3=2": ("link node0/nic3: share: expected 0 (failed) to 1 (whole), got 2.0"),
    "--degrade node0/nic3=0.5@1": "--degrade node0/nic3=0.5@1: expected a time with its unit",
    "--degrade node9/nic3=0.5": "unknown link or device 'node9/nic3'; did you mean 'node0/nic3'",
    "--fail nosuch": "unknown link or device 'nosuch'",
    "--fail node0/nic3@": "--fail: expected LINK[@TIME] such as node0/nic3@1ms, got 'node0/nic3@'",
    "--fail @1ms": "--fail: expected LINK[@TIME] such as node0/nic3@1ms, got '@1ms'",
    "--fail node0/nic3@1": '--fail node0/nic3@1: expected a time with its unit such as "2.5us"',
    "--traffic 0": ("--traffic: expected FROM-TO:SIZE[@TIME][/RATE] such as 0-8:1GiB@1ms, got '0'"),
    "--traffic 0-9:1GiB": "traffic: rank 9 does not exist on dgx-h100; expected 0 .. 7",
    "--traffic 3-3:1GiB": "traffic: expected two different ranks, got 3 twice",
    "--traffic 0-1:1XB": '--traffic 0-1:1XB: expected a size such as "256MiB", "1G" or "8"',
    "--traffic 0-1:1GiB@1": "--traffic 0-1:1GiB@1: expected a time with its unit",
    "--traffic 0-1:1GiB/10": "--traffic 0-1:1GiB/10: expected a rate with its unit",
    "--traffic 0-1:1GiB/0GB/s": "traffic: rate: expected more than 0 bytes/s, got 0.0",
    "--also foo:1MiB": "unknown operation 'foo' (known: all_gather,",
    "--also all_gather": (
        "--also: expected OP:SIZE[@TIME] such as all_gather:64MiB@1ms, got 'all_gather'"
    ),
    "--also all_gather:x": "--also all_gather:x: expected a size such as \"256MiB\", got 'x'",
    "--also all_gather:1MiB@5": "--also all_gather:1MiB@5: expected a time with its unit",
    "--watchdog 5": "--watchdog 5: expected a time with its unit such as \"2.5us\", got '5'",
    "--time-limit x": "--time-limit x: expected a time such as \"2.5us\", got 'x'",
    "--routing valiant": "unknown routing 'valiant' (known: adaptive, ecmp)",
    "--algorithm rings": "unknown algorithm 'rings'; did you mean 'ring'?",
    "--algorithm pat": "Pat: expected one of all_gather, reduce_scatter, got all_reduce",
    "--algorithm ring --channels 0": "all_reduce: expected a group of at least 2 ranks",
    "--algorithm /nowhere/ring.xml": "ring.xml: cannot be read",
    "--placement spread=1": "--placement: expected packed=N or spread=N with N from 2 to 8",
    "--export pdf=ring.pdf": "'pdf'",
    "--seed x": "Invalid value for '--seed'",
    "--ranks 0-9": "dgx-h100: ranks: 9 does not exist; 8 ranks",
}


@pytest.mark.parametrize("option", BAD)
def test_bad_input_is_one_line(commsim: Command, option: str) -> None:
    ran = commsim(f"{ONE} {option}")
    assert (ran.code, ran.out) == (2, "")
    (line,) = ran.err.splitlines()
    assert line.startswith("commsim: ")
    assert BAD[option] in line


def test_several_bad_inputs_are_told_together(commsim: Command) -> None:
    ran = commsim(f"{ONE} --late 3 --late 4")
    assert ran.code == 2
    assert [line[-3:] for line in ran.err.splitlines()] == ["'3'", "'4'"]


def test_a_size_is_needed(commsim: Command) -> None:
    ran = commsim("simulate dgx-h100 all_reduce")
    assert ran.code == 2
    assert ran.err == ("commsim: all_reduce: --size is missing; give one such as --size 1GiB\n")


def test_a_gibibyte_on_a_rack(commsim: Command) -> None:
    found = commsim("simulate gb200-nvl72 all_to_all --size 1GiB --json").json
    (one,) = found["collectives"]
    assert (one["n_ranks"], one["size_bytes"]) == (72, GIB)
    assert (len(found["links"]), found["links_left_out"]) == (50, 2 * 72 - 50)  # up and down
