"""A real Dask scheduler with two workers, one of them killed in mid-run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import commsim
from commsim.planning.engine import Engine
from commsim.planning.search import search
from commsim.planning.space import Space
from commsim.workload.trust import shipped

pytest.importorskip("distributed")
pytest.importorskip("joblib")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # theirs, not ours


def started(module: str, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", f"distributed.cli.{module}", *arguments],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """The scheduler's address and its two workers' processes."""
    file = tmp_path / "scheduler.json"
    scheduler = started(
        "dask_scheduler", "--port", "0", "--scheduler-file", str(file), "--no-dashboard"
    )
    workers: list[subprocess.Popen[bytes]] = []
    try:
        deadline = time.monotonic() + 60
        while not (file.exists() and file.read_text("utf-8")) and time.monotonic() < deadline:
            time.sleep(0.05)
        address = json.loads(file.read_text("utf-8"))["address"]
        workers = [
            started(
                "dask_worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard",
                "--local-directory", str(tmp_path),
            )
            for _ in range(2)
        ]  # fmt: skip
        yield address.removeprefix("tcp://"), workers
    finally:
        for process in (*workers, scheduler):
            process.kill()
            process.wait()


def test_dask_gives_the_same_though_a_worker_is_killed(
    machines: tuple[str, list[subprocess.Popen[bytes]]],
    model: commsim.Model,
    cluster: commsim.Cluster,
) -> None:
    address, workers = machines
    space = Space(
        model=model, cluster=cluster, global_batch=16, seq_len=1024,
        only={"tp": (1, 2), "recompute": ("none",)},
    )  # fmt: skip
    here = search(space, shipped(), Engine(where="serial"))
    killed: list[int] = []

    def watch(what: str, done: int, of: int) -> None:
        if what == "time" and done < of and not killed:
            killed.append(workers[0].pid)
            os.kill(workers[0].pid, signal.SIGKILL)

    there = search(space, shipped(), Engine(where=f"dask://{address}"), progress=watch)
    assert killed
    assert workers[1].poll() is None
    assert there == here
