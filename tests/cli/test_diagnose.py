from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import Ran

Command = Callable[[str], Ran]

# nccl-tests' table of 8 ranks; `slow` multiplies the times of the large sizes.
HEAD = """\
# nThread 1 nGpus 8 minBytes 1024 maxBytes 1073741824 step: 32(factor) warmup iters: 5 iters: 20
# Collective test starting: all_reduce_perf
#
#       size         count      type   redop    root     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)
"""
LARGE = 1 << 20


def table(slow: float, command: Command) -> str:
    lines = []
    for size in (1024, 32768, 1 << 20, 1 << 25, 1 << 30):
        line = f"predict dgx-a100 all_reduce --size {size} --json"
        us = command(line).json["duration_s"] * 1e6 * (slow if size >= LARGE else 1)
        lines.append(
            f"{size:>12} {size // 4:>12} float sum -1 {us:.2f} {size / us / 1e3:.2f} "
            f"{1.75 * size / us / 1e3:.2f} 0"
        )
    return HEAD + "\n".join(lines) + "\n"


@pytest.fixture
def measured(tmp_path: Path, commsim: Command) -> Callable[[float], Path]:
    def write(slow: float) -> Path:
        path = tmp_path / f"slow-{slow:g}.log"
        path.write_text(table(slow, commsim), encoding="utf-8")
        return path

    return write


def test_a_healthy_machine_exits_with_0(
    commsim: Command, measured: Callable[[float], Path]
) -> None:
    ran = commsim(f"diagnose {measured(1.0)} --cluster dgx-a100")
    assert (ran.code, ran.err) == (0, "")
    assert ran.lines[0].startswith("dgx-a100: healthy (likelihood of health ")
    assert "5 points: median 1.00 x the expected time" in ran.lines[1]
    assert "causes" not in ran.out


def test_a_sick_machine_exits_with_1_and_says_why_how_to_check_and_how_to_fix(
    commsim: Command, measured: Callable[[float], Path]
) -> None:
    ran = commsim(f"diagnose {measured(6.0)} --cluster dgx-a100 --curves")
    assert ran.code == 1
    assert ran.lines[0].startswith("dgx-a100: sick")
    for word in ("causes, most likely first", "evidence", "check", "fix", "1. ", "3. ", "curves"):
        assert word in ran.out
    assert "not visible in these measurements: " in ran.out
    assert "6.00" in ran.out  # the ratio of a large size


def test_json_has_the_ranking_and_the_curves(
    commsim: Command, measured: Callable[[float], Path]
) -> None:
    ran = commsim(f"diagnose {measured(6.0)} -c dgx-a100 --library nccl@2.27.3 --json")
    assert ran.code == 1
    found = ran.json
    assert found["healthy"] is False
    assert [set(h) for h in found["hypotheses"][:1]] == [
        {"cause", "likelihood", "what", "detail", "evidence", "check", "fix", "curve_s"}
    ]
    assert sum(h["likelihood"] for h in found["hypotheses"]) == pytest.approx(1.0)
    assert all(len(h["curve_s"]) == len(found["points"]) == 5 for h in found["hypotheses"])


def test_a_log_is_evidence(
    commsim: Command, measured: Callable[[float], Path], tmp_path: Path
) -> None:
    log = tmp_path / "debug.log"
    log.write_text("a:1:1 [0] NCCL INFO NCCL_PROTO set by environment to LL\n", encoding="utf-8")
    line = f"diagnose {measured(3.0)} -c dgx-a100 --json"
    plain, told = commsim(line).json, commsim(f"{line} --nccl-log {log}").json

    def forced(found: dict[str, Any]) -> dict[str, Any]:
        return next(h for h in found["hypotheses"] if h["cause"] == "forced_protocol")

    assert forced(told)["likelihood"] > forced(plain)["likelihood"]
    assert "NCCL log: NCCL_PROTO=LL is set" in forced(told)["evidence"]


def test_a_setting_that_was_meant_is_no_fault(commsim: Command, tmp_path: Path) -> None:
    lines = []
    for size in (1024, 1 << 20, 1 << 28):
        asked = f"predict dgx-a100 all_reduce -s {size} --env NCCL_PROTO=LL --json"
        us = commsim(asked).json["duration_s"] * 1e6
        lines.append(f"{size} {size // 4} float sum -1 {us:.2f} {size / us / 1e3:.2f} 0.00 0")
    path = tmp_path / "LL.log"
    path.write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")
    assert commsim(f"diagnose {path} -c dgx-a100").code == 1
    assert commsim(f"diagnose {path} -c dgx-a100 --env NCCL_PROTO=LL").code == 0


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("diagnose nowhere.log -c dgx-a100", "nowhere.log"),
        ("diagnose {file} -c no-such-cluster", "unknown cluster preset"),
        ("diagnose {file}", "--cluster"),
        ("diagnose -c dgx-a100", "FILE"),
        ("diagnose {file} -c dgx-a100 --nccl-log {file}", "no line of NCCL"),
        ("diagnose {file} -c dgx-a100 --profile {file}", "not a TOML profile"),
        ("diagnose {file} -c dgx-a100 --nodes 2 --set node.nics.count=0", "node.nics.count"),
    ],
)
def test_bad_input_exits_with_2_and_one_line(
    commsim: Command, measured: Callable[[float], Path], line: str, words: str
) -> None:
    ran = commsim(line.format(file=measured(1.0)))
    assert ran.code == 2
    assert ran.out == ""
    assert words in ran.err
    assert len(ran.err.splitlines()) == 1
