"""The lab itself, on a machine where it can be built: who sends what, how long, and no traces."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from commsim.units import MIB
from validation.lab import __main__ as lab
from validation.lab.compare import compare
from validation.lab.layout import parse
from validation.lab.network import PREFIX, LabError, clean, network, refusal
from validation.lab.run import Case, run

ROOT = Path(__file__).resolve().parents[2]
TRIES = 3
STEADY = 0.1  # spread of the repeats up to which a time tells about the network
needs_lab = pytest.mark.skipif(bool(refusal()), reason=refusal() or "it can be built")

HOLD = """
import sys, time
from validation.lab.layout import parse
from validation.lab.network import network
with network(parse("2@1Gbit/s")):
    print("up", flush=True)
    time.sleep(60)
"""


def namespaces(pid: int) -> list[str]:
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
    return [line for line in listed.stdout.splitlines() if line.startswith(f"{PREFIX}{pid}-")]


@needs_lab
@pytest.mark.slow
def test_gloo_does_what_the_model_says() -> None:
    pytest.importorskip("torch")
    layout = parse("3@300Mbit/s")
    cases = [Case(op=op, nbytes=4 * MIB) for op in ("all_reduce", "broadcast")]
    for _ in range(TRIES):
        with network(layout) as built:
            found = compare("gloo", layout, run("gloo", cases, built, layout.n))
        reduced, sent = found
        assert reduced.identified is not None
        assert reduced.identified.names == ("ring",)
        # 2 x 2/3 of the size from every rank, 2 sizes from the root and nothing from the others;
        # headers and control messages add up to 3 %
        for shares, row in (((4 / 3, 4 / 3, 4 / 3), reduced), ((2, 0, 0), sent)):
            measured = [nbytes / row.result.case.nbytes for nbytes in row.result.device]
            assert measured == pytest.approx(shares, rel=0.03, abs=0.03)
        if max(row.result.spread for row in found) < STEADY:
            assert all(abs(row.error) < 0.25 for row in found), found
            return
    pytest.skip(f"this machine is too busy: times spread by more than {STEADY:.0%} {TRIES} times")


@needs_lab
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_behind(number: signal.Signals) -> None:
    held = subprocess.Popen(
        [sys.executable, "-c", HOLD], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT
    )
    with held:
        assert held.stdout is not None
        assert held.stdout.readline() == b"up\n"
        assert len(namespaces(held.pid)) == 3  # two ranks, the switches
        held.send_signal(number)
        held.wait(timeout=30)
    if number == signal.SIGKILL:  # nobody can tidy up after that: clean does
        assert len(namespaces(held.pid)) == 3
        assert set(clean()) >= {f"{PREFIX}{held.pid}-r0", f"{PREFIX}{held.pid}-switches"}
    assert namespaces(held.pid) == []


@needs_lab
def test_a_rank_that_fails_says_why() -> None:
    pytest.importorskip("torch")
    start = time.monotonic()
    layout = parse("2@1Gbit/s")
    with (
        network(layout) as built,
        pytest.raises(LabError, match=r"rank [01]: exit status 1: .*KeyError"),
    ):
        run("gloo", [Case(op="no such operation", nbytes=8)], built, layout.n)
    assert time.monotonic() - start < 60


@pytest.mark.slow
def test_without_root_the_loopback_runs_and_it_is_said_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(lab, "refusal", lambda: "the lab needs root")
    assert lab.main(["--op", "all_reduce", "--size", "64KiB"]) == 0
    said = capsys.readouterr().out
    assert "no shaped links here: the lab needs root" in said
    assert "gloo loopback all_reduce" in said


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--topology", "4"], "topology '4': expected"),
        (["--op", "allreduce"], "--op allreduce: expected one of"),
        (["--size", "4 apples"], "--size: expected a size"),
        (["--repeats", "0"], "--repeats 0: expected 1 or more"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str],
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(lab, "refusal", lambda: "")
    assert lab.main(arguments) == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1


def test_ranks_that_take_too_long_are_ended() -> None:
    pytest.importorskip("torch")
    with pytest.raises(LabError, match="rank 0: over 0 s: it said nothing"):
        run("gloo", [Case(op="all_reduce", nbytes=8)], None, 2, limit=0.2)
