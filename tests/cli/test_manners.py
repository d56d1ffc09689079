"""What a shell expects of every command: help, quiet, colour, width, pipes, Ctrl-C, completion."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import shlex
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from commsim.cli._app import build, command_names
from commsim.cli.main import INTERRUPTED, run

from .conftest import Ran

Command = Callable[[str], Ran]
COMMSIM = [sys.executable, "-m", "commsim"]
STEP = "--tp 8 --global-batch 16 --seq 4096"
LINES = {
    "calibrate": "calibrate {log} --cluster dgx-h100",
    "compare": "compare dgx-a100 dgx-h100 all_reduce --size 1GiB",
    "diagnose": "diagnose {log} --cluster dgx-h100",
    "explain": "explain dgx-h100 all_reduce --size 2MiB --nodes 2",
    "infer": "infer --model llama3-8b --cluster dgx-h100 --tp 8",
    "names": "names clusters",
    "place": "place rtx4090x8 --traffic mine=all_reduce:1MiB:1:0,4/1,5/2,6/3,7",
    "plan": "plan -m llama3-8b -c dgx-h100 --global-batch 16 --seq 4096 --only pp=1 --simulate 0",
    "predict": "predict dgx-h100 all_reduce --size 1GiB --nodes 2",
    "report": "report predict dgx-h100 all_reduce --size 1GiB -o {folder}/report.html",
    "simulate": "simulate dgx-h100 all_reduce --size 1MiB --algorithm ring --nodes 2",
    "step": f"step --model llama3-8b --cluster dgx-h100 --nodes 2 {STEP}",
    "sweep": "sweep dgx-h100 all_reduce --nodes 2",
    "topo": "topo dgx-h100 --nodes 2",
    "trace": "trace convert {xml} --to goal --output {folder}/ring.goal",
    "validate": "validate {log} --cluster dgx-h100",
}
"""Of every command that needs neither torch nor a browser a line that ends soon."""
LONG = {
    "explore": "explore --port 0 --no-browser",
    "measure": "measure all_reduce --backend gloo --nproc 2 -b 4K -e 64K -n 5",
    "run": "run --cluster dgx-h100 {script}",
}
"""Of those that do."""
SCRIPT = """import torch, torch.distributed as dist
dist.init_process_group("nccl")
dist.all_reduce(torch.ones(1024, device="cuda"))
dist.destroy_process_group()
"""
ESCAPE = "\x1b"
COLOUR = re.compile(r"\x1b\[[\d;]*\b(?:3[0-7]|4[0-7]|9[0-7]|38;5;\d+)m")


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Files that the lines name."""
    folder = tmp_path_factory.mktemp("manners")
    log = folder / "log.jsonl"
    rows = [
        {"operation": "all_reduce", "size": 2**p, "n_ranks": 8, "duration_s": 3e-5 + 2**p / 2e11}
        for p in range(12, 31, 3)
    ]
    log.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    script, xml = folder / "script.py", folder / "ring.xml"
    script.write_text(SCRIPT, encoding="utf-8")
    line = "simulate dgx-h100 all_reduce --size 1KiB --algorithm ring --export"
    assert run([*line.split(), f"msccl={xml}", "--json"]) == 0
    return {"log": log, "folder": folder, "script": script, "xml": xml}


def test_every_command_is_looked_at() -> None:
    assert set(command_names()) == set(LINES) | set(LONG)


# ---- help ----


def every() -> Iterator[tuple[str, Any]]:
    """Every command with its own commands: what is typed, and the command."""
    for name in command_names():
        group: Any = typer.main.get_command(build((name,)))
        command = group.commands[name]
        yield name, command
        yield from (
            (f"{name} {inner}", each) for inner, each in getattr(command, "commands", {}).items()
        )


EVERY = dict(every())


@pytest.mark.parametrize("typed", EVERY)
def test_help_has_an_example_that_can_be_typed(typed: str) -> None:
    command = EVERY[typed]
    if getattr(command, "commands", None):
        return  # its commands have theirs
    text = command.help.replace("\b\n", "")
    example = re.search(r"^Example: (.*?)(?:\n\n|\Z)", text, re.DOTALL | re.MULTILINE)
    assert example, text
    line = " ".join(example[1].split()).rpartition("&& ")[2]
    words = shlex.split(line)
    assert " ".join(words).startswith(f"commsim {typed}")
    command.make_context(typed, words[1 + len(typed.split()) :])  # raises a UsageError if wrong


@pytest.mark.parametrize("typed", EVERY)
def test_help_names_what_all_commands_share(commsim: Command, typed: str) -> None:
    ran = commsim(f"{typed} --help")
    assert (ran.code, ran.err) == (0, "")
    text = " ".join(ran.out.split())
    assert "Exit codes: 0 ok, 2 bad input" in text
    if not getattr(EVERY[typed], "commands", None):
        assert "--quiet" in text
    assert ESCAPE not in ran.out
    assert max(map(len, ran.lines)) <= 80


def test_the_list_of_commands_says_what_each_is_for_and_loads_none(commsim: Command) -> None:
    script = (
        "import sys; from commsim.cli.main import run; run(['--help']);"
        "print('numpy' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "False"
    for name in command_names():
        assert re.search(rf"│ {name}\s+[A-Z]", done.stdout), name


# ---- typos ----


@pytest.mark.parametrize("typed", EVERY)
def test_a_typo_in_an_option_is_answered_with_the_option(commsim: Command, typed: str) -> None:
    command = EVERY[typed]
    options = [o for p in command.params for o in p.opts if o.startswith("--") and len(o) > 6]
    if typed in ("run", "report", "trace") or not options:
        return  # what follows is a script's or another command's
    wrong = options[0][:-2] + options[0][-1]
    ran = commsim(f"{typed} {wrong} x")
    assert (ran.code, ran.out) == (2, "")
    assert len(ran.err.splitlines()) == 1
    assert options[0] in ran.err
    assert f"(see `commsim {typed} --help`)" in ran.err


def test_typos_in_commands(commsim: Command) -> None:
    for line, meant in (
        ("predcit x", "predict"), ("trace sumary x", "summary"), ("report plam -o x", "plan"),
        ("names gpu", "gpus"),
    ):  # fmt: skip
        ran = commsim(line)
        assert (ran.code, ran.out) == (2, "")
        assert len(ran.err.splitlines()) == 1
        assert f"'{meant}'" in ran.err


# ---- quiet ----


@pytest.mark.parametrize("name", ["predict", "explain", "simulate", "step", "sweep", "topo"])
def test_quiet_leaves_out_the_notes_alone(
    commsim: Command, places: dict[str, Path], name: str
) -> None:
    line = LINES[name].format(**places)
    told, hushed = commsim(line), commsim(f"{line} --quiet")
    assert (hushed.code, hushed.err) == (0, "")
    assert "note" in told.out
    assert "notes\n" not in hushed.out
    assert "# note" not in hushed.out
    assert (
        hushed.lines == [x for x in told.lines if not x.startswith("# note")][: len(hushed.lines)]
    )
    assert commsim(line).out == told.out  # the next one is not quiet
    assert commsim(f"-q {line}").out == hushed.out


@pytest.mark.parametrize("name", LINES)
def test_quiet_is_taken_by_all(commsim: Command, places: dict[str, Path], name: str) -> None:
    ran = commsim(LINES[name].format(**places) + " -q")
    assert ran.err == ""
    assert ran.code in (0, 1)
    assert ESCAPE not in ran.out


# ---- pipes and Ctrl-C ----


def line_of(name: str, places: dict[str, Path]) -> list[str]:
    """What is typed after `commsim`; skips what cannot be run here."""
    if name in ("measure", "run"):
        pytest.importorskip("torch")
    elif name == "explore":
        pytest.importorskip("uvicorn")
    return (LINES | LONG)[name].format(**places).split()


@pytest.mark.slow
@pytest.mark.parametrize("name", [*LINES, "measure", "run"])
def test_a_reader_that_has_left_is_no_error(places: dict[str, Path], name: str) -> None:
    line = line_of(name, places)
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as closed:
        done = subprocess.run(
            [*COMMSIM, *line],
            stdout=closed, stderr=subprocess.PIPE, text=True, timeout=120, check=False,
        )  # fmt: skip
    assert done.stderr == ""
    assert done.returncode in (0, 1)


INTERRUPTING = """
import signal, sys
from commsim.cli.main import main
import commsim.{module} as module
def interrupted(*_, **__):
    signal.raise_signal(signal.SIGINT)
module.{name} = interrupted
sys.argv = ["commsim", *{words!r}]
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("line", "module", "name"),
    [
        ("predict dgx-h100 all_reduce --size 1GiB", "cli._arguments", "read_cluster"),
        ("topo dgx-h100", "cli._arguments", "read_cluster"),
        ("predict dgx-h100 all_reduce --size 1GiB", "cli._app", "build"),
        ("names models", "cli._app", "command_names"),
    ],
)
def test_ctrl_c_leaves_no_trace_back(line: str, module: str, name: str) -> None:
    script = INTERRUPTING.format(module=module, name=name, words=line.split())
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (INTERRUPTED, "")


UP = """
import sys
from commsim.cli.main import main
print("up", flush=True)
sys.argv = ["commsim", *sys.argv[1:]]
sys.exit(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", [*LINES, *LONG])
def test_ctrl_c_at_any_time_leaves_no_trace_back(places: dict[str, Path], name: str) -> None:
    """The whole group of processes gets it, as from a terminal."""
    line = line_of(name, places)
    for wait in (0.4,):
        with subprocess.Popen(
            [sys.executable, "-c", UP, *line],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        ) as process:  # fmt: skip
            assert process.stdout
            assert process.stdout.readline() == "up\n"
            time.sleep(wait)
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGINT)
            _, error = process.communicate(timeout=60)
        assert error == ""
        # While Python itself comes to its end, the signal ends it without a word.
        assert process.returncode in (0, 1, INTERRUPTED, -signal.SIGINT)


# ---- a terminal ----


def on_terminal(line: str, columns: int, **environment: str) -> str:
    """What a terminal of that width shows."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    clean = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS", "FORCE_COLOR")}
    with subprocess.Popen(
        [*COMMSIM, *line.split()],
        stdout=theirs, stderr=theirs, stdin=theirs,
        env={**clean, "TERM": "xterm-256color", **environment},
    ) as process:  # fmt: skip
        os.close(theirs)
        shown = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # Linux: the other end is closed
                break
            if not piece:
                break
            shown += piece
        process.wait(timeout=60)
    os.close(ours)
    return shown.decode()


def test_colour_is_for_terminals_and_not_for_who_wants_none() -> None:
    assert COLOUR.search(on_terminal("predict --help", 100))
    assert not COLOUR.search(on_terminal("predict --help", 100, NO_COLOR="1"))
    assert ESCAPE not in on_terminal("predict --help", 100, TERM="dumb")


@pytest.mark.slow
@pytest.mark.parametrize("columns", [60])
@pytest.mark.parametrize("name", ["predict", "explain", "compare", "step", "diagnose", "infer"])
def test_a_terminals_width_is_kept(places: dict[str, Path], name: str, columns: int) -> None:
    shown = on_terminal(LINES[name].format(**places), columns)
    plain = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", shown).replace("\r", "").splitlines()
    long = [line for line in plain if len(line) > columns]
    # One word that is longer than the line, or a title, is left to the terminal.
    assert all(not line.startswith("  ") or " " not in line.strip() for line in long), long


# ---- completion ----


def completed(typed: str) -> list[str]:
    """What bash offers for the line's last word."""
    done = subprocess.run(
        COMMSIM, capture_output=True, text=True, timeout=60, check=True,
        env={
            **os.environ, "_COMMSIM_COMPLETE": "complete_bash", "COMP_WORDS": typed,
            "COMP_CWORD": str(len(typed.split()) - (not typed.endswith(" "))),
        },
    )  # fmt: skip
    return done.stdout.split()


def test_a_shell_completes_commands_options_and_names() -> None:
    assert completed("commsim pre") == ["predict"]
    assert completed("commsim ") == list(command_names())
    assert completed("commsim predict dgx-h") == ["dgx-h100", "dgx-h200"]
    assert completed("commsim predict dgx-h100 all_g") == ["all_gather"]
    assert completed("commsim trace su") == ["summary"]
    assert "--size" in completed("commsim predict dgx-h100 all_reduce --s")
    assert "llama3-8b" in completed("commsim step --model llama3-8")


def test_the_script_for_the_shell_is_printed() -> None:
    done = subprocess.run(
        COMMSIM, capture_output=True, text=True, timeout=60, check=True,
        env={**os.environ, "_COMMSIM_COMPLETE": "source_bash"},
    )  # fmt: skip
    assert "complete -o default -F _commsim_completion commsim" in done.stdout
