"""Real ranks: Gloo and MPI on this machine; ranks that die, hang or are interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import commsim
from commsim.collectives.collective import OPERATIONS, Collective
from commsim.errors import MeasureError
from commsim.measure import steps
from commsim.measure.backend import join, offers
from commsim.measure.journal import Journal
from commsim.measure.launcher import environment, launch, mpiexec
from commsim.measure.plan import Plan, Settings, Step
from commsim.measure.rendezvous import Place
from commsim.measure.reporter import Reporter
from commsim.measure.run import ready

HERE = Path(__file__).parent


def available(backend: str) -> None:
    """Skips, saying what is missing."""
    try:
        ready(backend)
        if backend == "mpi":
            mpiexec(2)
    except MeasureError as error:
        pytest.skip(str(error))


def every_operation(settings: Settings) -> tuple[Step, ...]:
    """All operations in all forms at two sizes, and what is more than one collective."""
    found: tuple[Step, ...] = ()
    for operation in OPERATIONS:
        root = 1 if operation in ("broadcast", "gather") else None
        asked = Collective(operation, dtype="int32", root=root)
        found += steps.sweep(asked, (60, 70_000), 3, steps.forms(operation, settings, "both"))
    some = Collective("all_reduce", ranks=(0, 2), reduce_op="max")
    found += steps.sweep(some, (4096,), 3, steps.forms("all_reduce", settings, "both"))
    if settings.backend == "gloo":  # half floats, a dtype that only travels, an average
        for operation, dtype in (("all_reduce", "bfloat16"), ("all_to_all", "float8_e4m3fn")):
            found += steps.sweep(Collective(operation, dtype=dtype), (4096,), 3, steps.forms(
                operation, settings, "both"))  # fmt: skip
    found += steps.pairs(Collective("send_recv", ranks=(0, 1)), (64,), 3)
    places = steps.forms("all_gather", settings, "out")
    found += steps.together(Collective("all_gather"), (4096,), ((0, 1), (1, 2)), places)
    beside = steps.sweep(Collective("all_gather"), (4096,), 3, places)
    found += steps.interference(beside, ((32, 32, 32),), "float32")
    return found + steps.gemms(((32, 32, 32),), ("float32",))


def carried_out(backend: str, path: Path) -> list[dict[str, Any]]:
    settings = Settings(backend=backend, iterations=2, warmup=1, copies=True, timeout=60)
    plan = Plan(run="r", n_ranks=3, settings=settings, steps=every_operation(settings))
    with Journal(path) as journal:
        launch(plan, Reporter(plan, journal, quiet=True))
    lines: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()]
    return lines


def check_all(header: dict[str, Any], records: list[dict[str, Any]], backend: str) -> None:
    assert header["library"] == backend
    assert header["environment"]["OMP_NUM_THREADS"]
    assert all(rank["clock_error_s"] == 0 for rank in header["ranks"])
    for record in records:
        assert record.get("wrong", 0) == 0, record
        assert record["run"] == "r"
    seen = {(r["operation"], r["in_place"]) for r in records if r["kind"] == "collective"}
    forms = offers(backend).forms
    assert seen >= {(operation, form) for operation in OPERATIONS for form in forms[operation]}
    assert [r["kind"] for r in records if r["kind"] != "collective"] == [
        "together", "together", "interference", "gemm",
    ]  # fmt: skip
    assert all(
        record["expected_s"] > 0 for record in records if record["kind"] == "collective"
        and record["ranks"] == [0, 1, 2]
    )  # fmt: skip


def test_every_operation_over_gloo(tmp_path: Path) -> None:
    available("gloo")
    header, *records = carried_out("gloo", tmp_path / "m.jsonl")
    check_all(header, records, "gloo")
    whole = [r for r in records if r["kind"] == "collective"]
    assert any(r["operation"] == "all_reduce" and not r["in_place"] for r in whole)  # --copies
    read = commsim.read_measurements(tmp_path / "m.jsonl")
    assert len(read) == len(whole)
    assert {m.collective.ranks for m in read} >= {None, (0, 2), (1, 0)}


def test_every_operation_over_mpi(tmp_path: Path) -> None:
    available("mpi")
    header, *records = carried_out("mpi", tmp_path / "m.jsonl")
    check_all(header, records, "mpi")


# ---- runs that go wrong ----


def start(folder: Path, backend: str, *more: str) -> tuple[subprocess.Popen[str], list[int]]:
    """A run that would take minutes, once its first line is written, and its ranks' processes."""
    available(backend)
    path = folder / "m.jsonl"
    line = [
        sys.executable,
        "-m",
        "commsim",
        "measure",
        "all_reduce",
        "--backend",
        backend,
        "--nproc",
        "2",
        "-b",
        "1M",
        "-e",
        "1M",
        "-n",
        "100000",
        "--output",
        str(path),
        *more,
    ]
    run = subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"TMPDIR": str(folder)},
    )  # fmt: skip
    until = time.monotonic() + 60
    while time.monotonic() < until and run.poll() is None:
        if path.exists() and path.read_text().endswith("\n"):
            (work,) = folder.glob("commsim-*")
            return run, [int((work / f"rank{rank}.pid").read_text()) for rank in range(2)]
        time.sleep(0.05)
    raise AssertionError(run.communicate())


def left(folder: Path, pids: list[int]) -> list[object]:
    """Processes and files that are still there after a moment."""
    until = time.monotonic() + 5
    while (found := [pid for pid in pids if alive(pid)]) and time.monotonic() < until:
        time.sleep(0.05)
    return [*found, *folder.glob("commsim-*")]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("backend", ["gloo", "mpi"])
def test_a_rank_that_dies_is_named_and_takes_nobody_hostage(tmp_path: Path, backend: str) -> None:
    run, pids = start(tmp_path, backend)
    os.kill(pids[1], signal.SIGKILL)
    _, err = run.communicate(timeout=30)
    assert run.returncode == 3
    assert err == "commsim: rank 1 was killed by SIGKILL; it left nothing on stderr\n"
    assert left(tmp_path, pids) == []
    assert json.loads((tmp_path / "m.jsonl").read_text())["kind"] == "run"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_keeps_what_was_measured(tmp_path: Path, number: int) -> None:
    run, pids = start(tmp_path, "mpi")
    run.send_signal(number)
    _, err = run.communicate(timeout=30)
    assert run.returncode == 130
    assert "lines so far are kept" in err
    assert left(tmp_path, pids) == []
    assert json.loads((tmp_path / "m.jsonl").read_text())["kind"] == "run"


def test_a_rank_that_hangs_is_given_up(tmp_path: Path) -> None:
    run, pids = start(tmp_path, "mpi", "--timeout", "1s")
    os.kill(pids[0], signal.SIGSTOP)
    _, err = run.communicate(timeout=30)
    assert run.returncode == 3
    assert err.splitlines() == [
        "commsim: no progress for 1 s (--timeout); where the ranks are:",
        "commsim:   rank 0: does not answer: it is stopped, or inside a library",
        err.splitlines()[2],
    ]
    assert "rank 1: File" in err.splitlines()[2]
    assert "line" in err.splitlines()[2]
    assert left(tmp_path, pids) == []


def test_a_result_that_is_wrong_is_counted(capfd: pytest.CaptureFixture[str]) -> None:
    """Two real ranks of Gloo, of which one spoils an element of each result on purpose."""
    pytest.importorskip("torch")
    env = environment(os.environ, 2) | {
        "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()
    }  # fmt: skip
    ranks = [
        subprocess.Popen([sys.executable, str(HERE / "corrupted.py")], env=env | {"RANK": str(r)})
        for r in range(2)
    ]
    assert [rank.wait(timeout=60) for rank in ranks] == [1, 0]  # rank 0 has the records
    out = capfd.readouterr().out
    (row,) = [line for line in out.splitlines() if not line.startswith("#")]
    assert row.split()[0] == "4096"
    assert row.split()[12] == "1"
    assert "# Out of bounds values : 1 FAILED" in out


def free_port() -> str:
    import socket

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return str(found.getsockname()[1])


def test_no_gpu_is_said_in_one_line() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    at = Place(rank=0, n_ranks=1, local_rank=0, address=("127.0.0.1", 1), launcher="torchrun")
    with pytest.raises(MeasureError, match="expected an NVIDIA or AMD GPU and a torch built for"):
        join("nccl", at, 10)


def test_a_missing_package_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MeasureError, match=r"mpi4py is not installed.*pip install mpi4py mpich"):
        ready("mpi")
    with pytest.raises(MeasureError, match="torch is not installed; install it with: pip install"):
        ready("gloo")


def test_ranks_get_no_other_launcher_s_variables() -> None:
    env = environment(
        {"PMI_RANK": "3", "OMPI_COMM_WORLD_SIZE": "8", "RANK": "1", "WORLD_SIZE": "2",
         "NCCL_DEBUG": "INFO", "GLOO_SOCKET_IFNAME": "eth0", "RANKING": "x",
         "OMPI_MCA_btl": "tcp"}, 2,
    )  # fmt: skip
    assert env.pop("PYTHONPATH")
    assert env == {"NCCL_DEBUG": "INFO", "GLOO_SOCKET_IFNAME": "eth0", "RANKING": "x",
                   "OMPI_MCA_btl": "tcp", "OMP_NUM_THREADS": "1"}  # fmt: skip
