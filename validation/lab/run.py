"""Runs a plan of operations on a network (or on plain loopback) and reads what every rank saw."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from commsim.units import Bytes, Seconds
from validation.lab.network import LabError, Network, address, rank_of

Matrix = NDArray[np.float64]
ROOT = Path(__file__).resolve().parents[2]
BACKENDS = ("gloo", "mpi")
NEEDS = {"gloo": "torch", "mpi": "mpi4py"}
WHEELS = {"gloo": ("torch",), "mpi": ("mpi4py", "mpich")}
PORT = 29511
# Buffers on pages of 2 MiB: some hypervisors take a small page back that nobody touched for a tenth
# of a second, and the next touch costs microseconds.
PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", "THP_MEM_ALLOC_ENABLE": "1"}
FIFO = ("chrt", "-f", "20")  # Gloo ranks run when they are ready to, whoever else is busy


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One operation at one of nccl-tests' sizes, `repeats` times. pause: s of rest before each."""

    op: str
    nbytes: Bytes
    repeats: int = 3
    pause: Seconds = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one case took. times: from the common start to the last rank's end, s. device: bytes
    that each rank's interface sent, per repeat. pairs: bytes from each rank to each other by its
    sockets, per repeat (empty on loopback)."""

    case: Case
    times: tuple[Seconds, ...]
    device: tuple[float, ...]
    pairs: Matrix

    @property
    def median(self) -> Seconds:
        return statistics.median(self.times)

    @property
    def spread(self) -> float:
        """(most - least) / median."""
        return (max(self.times) - min(self.times)) / self.median


def run(
    backend: str, cases: Sequence[Case], network: Network | None, ranks: int, limit: Seconds = 300
) -> list[Result]:
    """Every case in order, by `ranks` processes; network: None for the machine's loopback.

    Raises LabError with what the ranks said where one fails or all take longer than `limit`, and
    where what the backend needs is not installed.
    """
    if find_spec(NEEDS[backend]) is None:
        raise LabError(
            f"{backend}: needs {NEEDS[backend]}; pip install {' '.join(WHEELS[backend])}"
        )
    plan = {
        "backend": backend, "ranks": ranks, "device": "eth0" if network else "",
        "cases": [[c.op, c.nbytes, c.repeats, c.pause] for c in cases],
    }  # fmt: skip
    worker = [sys.executable, "-m", "validation.lab.worker", json.dumps(plan)]
    return _read(cases, outputs(backend, worker, network, ranks, limit), ranks)


def outputs(
    backend: str, worker: list[str], network: Network | None, ranks: int, limit: Seconds
) -> list[str]:
    """What a worker prints on each rank, started by the backend's own means."""
    with tempfile.TemporaryDirectory(prefix="commsim-lab-") as folder:
        if backend == "gloo":
            jobs = [_gloo(worker, network, rank, ranks) for rank in range(ranks)]
        else:
            jobs = [_mpi(worker, network, ranks, folder)]
        with _started(jobs, Path(folder)) as processes:
            _wait(processes, Path(folder), limit)
        said = "said-{}" if backend == "gloo" else "rank-{}"
        return [(Path(folder) / said.format(rank)).read_text() for rank in range(ranks)]


def _gloo(
    worker: list[str], network: Network | None, rank: int, ranks: int
) -> tuple[list[str], dict[str, str]]:
    own = {
        "RANK": str(rank), "WORLD_SIZE": str(ranks), "MASTER_PORT": str(PORT + os.getpid() % 1000),
        "MASTER_ADDR": address(0) if network else "127.0.0.1",
        "GLOO_SOCKET_IFNAME": "eth0" if network else "lo", "TORCH_CPP_LOG_LEVEL": "ERROR",
    }  # fmt: skip
    return [*(network.inside(rank) if network else []), *_first(), *worker], own


def _first() -> tuple[str, ...]:
    return FIFO if os.geteuid() == 0 and shutil.which("chrt") else ()


def _mpi(
    worker: list[str], network: Network | None, ranks: int, folder: str
) -> tuple[list[str], dict[str, str]]:
    """Without the priority of Gloo's ranks: these spin while they wait, and two would lock two
    cores."""
    own = {
        "MPIR_CVAR_NOLOCAL": "1", "MPIR_CVAR_CH4_NETMOD": "ofi",
        "FI_PROVIDER": "tcp", "FI_TCP_IFACE": "eth0" if network else "lo",
    }  # fmt: skip
    inside = "ip netns exec " + network.namespaces[0][: -len("0")] + "$PMI_RANK" if network else ""
    shell = f'exec {inside} "$@" > {folder}/rank-$PMI_RANK'
    hydra = Path(sys.executable).with_name("mpiexec")
    launch = [str(hydra if hydra.exists() else "mpiexec"), "-n", str(ranks)]
    return [*launch, "sh", "-c", shell, "rank", *worker], own


@contextmanager
def _started(
    jobs: list[tuple[list[str], dict[str, str]]], folder: Path
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The jobs as processes, none of which outlives the block."""
    processes: list[subprocess.Popen[bytes]] = []
    common = {**PAGES, **os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    try:
        for number, (command, own) in enumerate(jobs):
            with (
                (folder / f"said-{number}").open("wb") as out,
                (folder / f"error-{number}").open("wb") as error,
            ):
                processes.append(
                    subprocess.Popen(command, env=common | own, stdout=out, stderr=error, cwd=ROOT)
                )
        yield processes
    finally:
        for process in processes:
            if process.poll() is None:
                process.terminate()
        for process in processes:
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait(processes: list[subprocess.Popen[bytes]], folder: Path, limit: Seconds) -> None:
    """Returns when all have ended well; LabError at the first that has not, or at the limit."""
    end = time.monotonic() + limit
    while running := [i for i, process in enumerate(processes) if process.poll() is None]:
        if time.monotonic() > end or any(process.poll() for process in processes):
            break
        time.sleep(0.05)
    failed = [i for i, process in enumerate(processes) if process.poll()]
    for number in failed or running:
        lines = (folder / f"error-{number}").read_text(errors="replace").strip().splitlines()
        why = f"exit status {processes[number].poll()}" if failed else f"over {limit:.0f} s"
        raise LabError(f"rank {number}: {why}: {lines[-1] if lines else 'it said nothing'}")


def _read(cases: Sequence[Case], said: list[str], ranks: int) -> list[Result]:
    """Joins what the ranks wrote: [case, device bytes so far, bytes by peer so far, start, end]."""
    records = [json.loads(text) for text in said]
    found: dict[int, list[tuple[float, list[int], Matrix]]] = {}
    for at in range(len(records[0]) - 1):
        index = records[0][at][0]
        if at == 0 or records[0][at - 1][0] != index:
            continue  # the first of a case opens connections
        now, later = [r[at] for r in records], [r[at + 1] for r in records]
        time_ = max(r[4] for r in now) - now[0][3]
        device = [b[1] - a[1] for a, b in zip(now, later, strict=True)]
        pairs = np.zeros((ranks, ranks))
        for rank, (a, b) in enumerate(zip(now, later, strict=True)):
            for peer, nbytes in b[2].items():
                to = rank_of(peer.partition(":")[0])
                if to is not None and to < ranks:
                    pairs[rank, to] += nbytes - a[2].get(peer, 0)
        found.setdefault(index, []).append((time_, device, pairs))
    return [
        Result(
            case=case,
            times=tuple(time_ for time_, _, _ in found[index]),
            device=tuple(float(x) for x in np.median([d for _, d, _ in found[index]], axis=0)),
            pairs=np.median([p for _, _, p in found[index]], axis=0),
        )
        for index, case in enumerate(cases)
    ]
