"""`commsim measure`: what is refused before anything runs. What runs is in tests/measure."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from commsim.measure import rendezvous

from .conftest import Ran

Command = Callable[[str], Ran]


@pytest.fixture(autouse=True)
def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """No launcher's variables, and a plan that gets this far fails the test."""

    def refuse(*arguments: object) -> None:
        raise AssertionError("it would have run")

    for names in rendezvous.VARIABLES:
        for name in names[1:]:
            monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("commsim.cli.measure.carry_out", refuse)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "expected an operation such as all_reduce, or --compute"),
        ("all_redu", "unknown operation 'all_redu'; did you mean 'all_reduce'?"),
        ("all_reduce --backend glo", "--backend: expected one of gloo, mpi, nccl, got 'glo'"),
        ("all_reduce --nproc 0", "--nproc: expected 1 rank or more, got 0"),
        ("all_reduce --nproc 100000", "--nproc: expected "),
        ("all_reduce -b 64M -e 1M", "expected -e of at least -b"),
        ("all_reduce -b 1 -e 3", "2 bytes are less than one float32; raise -e"),
        ("all_gather -b 4 -e 8 --nproc 3", "less than one float32 for each of 3 ranks"),
        ("all_reduce -d int16", "--dtype: gloo reduces bfloat16, float16"),
        ("all_reduce --redop avg", "--redop: gloo reduces with max, min, prod, sum, got avg"),
        ("all_reduce --ranks 0,2 --nproc 2", "--ranks: expected ranks below 2 (--nproc), got 2"),
        ("broadcast --root 5", "--root: expected a rank below 2 (--nproc), got 5"),
        ("send_recv --root 0 --nproc 3", "expected --ranks A,B, got 3 ranks"),
        ("send_recv --nproc 1", "expected 2 ranks or more, got 1"),
        ("all_reduce --place out", "gloo's all_reduce is in place only"),
        ("all_reduce --place back", "--place: expected one of both, in, out, got 'back'"),
        ("all_reduce --timing fast", "--timing: expected one of isolated, loop, got 'fast'"),
        ("all_reduce --pairs", "--pairs: expected send_recv, without --root"),
        ("send_recv --pairs --ranks 0,5", "--ranks: expected ranks below 2 (--nproc), got 5"),
        ("send_recv --pairs -G", "--cudagraph: expected --backend nccl, got gloo"),
        ("all_reduce -G --groups 0,1/1,2 --nproc 3 --backend nccl", "groups without a common rank"),
        ("barrier -G --backend nccl", "expected an operation other than barrier"),
        ("send_recv --pairs --interfere", "expected one of them, got more"),
        ("all_reduce --groups 0,1/2 --nproc 3", "two groups or more of 2 ranks or more"),
        ("all_reduce --groups 0,1/2,3", "--ranks: expected ranks below 2 (--nproc), got 3"),
        ("--compute --gemm 4096,4096", "--gemm: expected m,n,k such as 4096,4096,4096"),
        ("--compute --gemm 0,1,1", "--gemm: expected m,n,k"),
        ("all_reduce -G", "--cudagraph: expected --backend nccl, got gloo"),
        ("all_reduce --timeout 5", "expected a time with its unit"),
        ("all_reduce --nodes 2", "--nodes, --set: expected with --cluster"),
        ("all_reduce --cluster dgx-h10", "unknown cluster preset 'dgx-h10'"),
        ("all_reduce --output no/such/folder.jsonl", "cannot be written: No such file"),
        ("all_reduce --output x --append --overwrite", "expected one of them, got both"),
    ],
)
def test_what_cannot_be_measured(commsim: Command, line: str, message: str) -> None:
    ran = commsim(
        f"measure {line} --backend gloo" if "--backend" not in line else f"measure {line}"
    )
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err
    assert len(ran.err.splitlines()) == 1


def test_an_existing_file_is_refused_before_anything_runs(commsim: Command, tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text("mine\n")
    ran = commsim(f"measure all_reduce --backend gloo --output {path}")
    assert ran.code == 2
    assert "exists already" in ran.err
    assert path.read_text() == "mine\n"


def test_ranks_of_a_launcher_are_not_started_again(
    commsim: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "4"), ("LOCAL_RANK", "0")):
        monkeypatch.setitem(os.environ, name, value)
    ran = commsim("measure all_reduce --backend gloo --nproc 4")
    assert ran.code == 2
    assert "torchrun has started 4 ranks already" in ran.err


def test_help_says_the_exit_codes(commsim: Command) -> None:
    text = " ".join(commsim("measure --help").out.split())
    assert "1 wrong results, 3 cut short" in text
    assert "130 Ctrl-C" in text
