from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import commsim as package
from commsim.cli._app import command_names

from .conftest import Ran

Command = Callable[[str], Ran]


def shell(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "commsim", *arguments],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_commands_are_the_files_of_the_folder() -> None:
    assert {"compare", "explain", "predict", "sweep", "topo"} <= set(command_names())
    assert "main" not in command_names()


def test_version_and_help(commsim: Command) -> None:
    assert commsim("--version").out == f"commsim {package.__version__}\n"
    for line in ("", "--help"):
        ran = commsim(line)
        assert ran.code == 0
        for name in command_names():
            assert name in ran.out
        assert "Exit codes: 0 ok, 2 bad input" in ran.out


@pytest.mark.parametrize("name", command_names())
def test_every_command_documents_json_and_its_exit_codes(commsim: Command, name: str) -> None:
    ran = commsim(f"{name} --help")
    assert ran.code == 0
    text = " ".join(ran.out.split())
    assert "--json" in text or name == "explore"  # a page, whose answers are downloaded as JSON
    assert "Exit codes: 0 ok, 2 bad input" in text


def test_the_shell_sees_the_exit_code() -> None:
    good = shell("topo", "--list")
    assert (good.returncode, good.stderr) == (0, "")
    bad = shell("predict", "dgx-h100", "all_reduce", "--size", "-8")
    assert (bad.returncode, bad.stdout) == (2, "")
    assert bad.stderr.startswith("commsim: ")
    assert len(bad.stderr.splitlines()) == 1


def test_a_reader_that_leaves_early_is_no_error() -> None:
    line = f"{sys.executable} -m commsim sweep dgx-h100 all_reduce | head -1"
    run = subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, check=True, timeout=60
    )
    assert run.stderr == ""


def test_predict_answers_at_once() -> None:
    """At most 0.8 s on an idle machine: so its processor time is what is tested."""

    def took() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert shell("predict", "dgx-h100", "all_reduce", "--size", "1GiB").returncode == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(took() for _ in range(3)) < 0.8


def test_predict_loads_nothing_that_it_does_not_use() -> None:
    script = (
        "import sys; from commsim.cli.main import run;"
        "run(['predict', 'dgx-h100', 'all_reduce', '--size', '1GiB']);"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert "duration" in done.stdout
    loaded = set(done.stdout.splitlines()[-1].split())
    assert not loaded & {"matplotlib", "networkx", "rich", "scipy", "simpy", "torch"}


# ---- bad input: one line that says what to do, exit code 2, nothing on stdout ----

BAD = {
    "unknown command": ("predic dgx-h100 all_reduce -s 8", "did you mean 'predict'"),
    "unknown option": ("predict dgx-h100 all_reduce --sise 8", "--size"),
    "missing argument": ("predict dgx-h100", "OP"),
    "missing size": ("predict dgx-h100 all_reduce", "--size 1GiB"),
    "unknown preset": ("predict dgx-h10 all_reduce -s 8", "dgx-h100"),
    "unknown operation": ("predict dgx-h100 all_reduse -s 8", "did you mean 'all_reduce'"),
    "unknown library": ("predict dgx-h100 all_reduce -s 8 -l ncl", "did you mean 'nccl'"),
    "unknown dtype": ("predict dgx-h100 all_reduce -s 8 -d flaot32", "did you mean 'float32'"),
    "unknown redop": ("predict dgx-h100 all_reduce -s 8 -o summ", "did you mean 'sum'"),
    "unknown key": (
        "predict dgx-h100 all_reduce -s 8 --set node.nic.count=4",
        'did you mean "node.nics.count"',
    ),
    "unknown launch": ("predict dgx-h100 all_reduce -s 8 --launch thread", "threads"),
    "unknown version": ("predict dgx-h100 all_reduce -s 8 -l nccl@two", "two"),
    "no KEY=VALUE": ("predict dgx-h100 all_reduce -s 8 --set nodes", "KEY=VALUE"),
    "negative size": ("predict dgx-h100 all_reduce -s -8", "not negative"),
    "half a byte": ("predict dgx-h100 all_reduce -s 0.5", "whole number of bytes"),
    "no size": ("predict dgx-h100 all_reduce -s lots", "256MiB"),
    "endless size": ("predict dgx-h100 all_reduce -s 99999999999G", "less than 2^63"),
    "no rank": ("predict dgx-h100 all_reduce -s 8 --ranks 0,x", "0-7,16"),
    "wrong rank": ("predict dgx-h100 all_reduce -s 8 --ranks 0,8", "8 does not exist"),
    "negative rank": ("predict dgx-h100 all_reduce -s 8 --ranks -1,2", "0-7,16"),
    "rank twice": ("predict dgx-h100 all_reduce -s 8 --ranks 0,1,1", "listed twice"),
    "one rank": ("predict dgx-h100 all_reduce -s 8 --ranks 3", "at least 2 ranks"),
    "one GPU": ("predict dgx-h100 all_reduce -s 8 --set node.gpus=1", "at least 2"),
    "root outside": ("predict dgx-h100 broadcast -s 8 --root 8", "root"),
    "root not in group": ("predict dgx-h100 broadcast -s 8 --ranks 0,1 --root 2", "root"),
    "no nodes": ("predict dgx-h100 all_reduce -s 8 --nodes 0", "nodes"),
    "nodes in words": ("predict dgx-h100 all_reduce -s 8 --nodes two", "--nodes"),
    "bits or bytes": ("predict dgx-h100 all_reduce -s 8 --set node.nics.rate=400", "Gbit/s"),
    "missing file": ("predict nowhere.toml all_reduce -s 8", "no such file"),
    "missing profile": ("predict dgx-h100 all_reduce -s 8 --profile none.toml", "none.toml"),
    "empty range": ("sweep dgx-h100 all_reduce -b 1M -e 1K", "-e of at least -b"),
    "factor of one": ("sweep dgx-h100 all_reduce -f 1", "-f of 2"),
    "step of zero": ("sweep dgx-h100 all_reduce -i 0", "-i of 1 byte"),
    "too small to share": ("sweep dgx-h100 all_gather -e 16", "raise -e"),
    "compare with nothing": ("compare dgx-h100 dgx-h10 all_reduce", "dgx-h100"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line_and_exit_code_2(commsim: Command, name: str) -> None:
    line, hint = BAD[name]
    ran = commsim(line)
    assert (ran.code, ran.out) == (2, ""), ran
    assert ran.err.startswith("commsim: ")
    assert len(ran.err.splitlines()) == 1, ran.err
    assert hint in ran.err


FILES = {
    "empty": ("", "node.gpu"),
    "not TOML": ("nodes = = 2", "not valid TOML"),
    "a GPU twice": (
        '[[device]]\nname = "a"\nkind = "gpu"\npart = "A100-SXM4-80GB"\n'
        '[[device]]\nname = "a"\nkind = "gpu"\npart = "A100-SXM4-80GB"\n',
        '"a"',
    ),
    "no network": (
        'nodes = 2\n[node]\ngpu = "A100-SXM4-80GB"\ngpus = 8\ninterconnect = "nvswitch"\n',
        "nics",
    ),
    "a rate without its unit": (
        '[node]\ngpu = "A100-SXM4-80GB"\ngpus = 8\ninterconnect = "nvswitch"\n'
        "[node.nics]\ncount = 8\nrate = 200\n",
        "Gbit/s",
    ),
    "GPUs that nothing joins": (
        '[[device]]\nname = "a"\nkind = "gpu"\npart = "A100-SXM4-80GB"\n'
        '[[device]]\nname = "b"\nkind = "gpu"\npart = "A100-SXM4-80GB"\n',
        "a",
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_bad_files(commsim: Command, tmp_path: Path, name: str) -> None:
    text, hint = FILES[name]
    path = tmp_path / "bad.toml"
    path.write_text(text, encoding="utf-8")
    ran = commsim(f"predict {path} all_reduce -s 1M")
    assert (ran.code, ran.out) == (2, ""), ran
    assert all(row.startswith("commsim: ") for row in ran.err.splitlines())
    assert hint in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize("suffix", [".xml", ".txt"])
def test_empty_topologies(commsim: Command, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"empty{suffix}"
    path.write_text("", encoding="utf-8")
    ran = commsim(f"topo {path}")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"commsim: {path}") or path.name in ran.err
    assert len(ran.err.splitlines()) == 1


def test_several_problems_are_a_line_each(commsim: Command, tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text('nodes = -1\n[node]\ngpu = "H100"\ngpuz = 8\n', encoding="utf-8")
    ran = commsim(f"topo {path}")
    assert ran.code == 2
    assert len(ran.err.splitlines()) >= 2


def test_a_folder_is_no_file(commsim: Command, tmp_path: Path) -> None:
    ran = commsim(f"topo {tmp_path}{os.sep}")
    assert (ran.code, ran.out) == (2, "")
    assert len(ran.err.splitlines()) == 1
