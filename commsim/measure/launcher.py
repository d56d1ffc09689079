"""Starts the ranks on this machine, watches them, and never waits for one that is gone.

Each rank is a process with torchrun's variables; MPI's are started by its mpiexec. They are in
sessions of their own, so that Ctrl-C reaches only this process, which then ends them.
"""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import commsim
from commsim.errors import BrokenRunError, MeasureError
from commsim.measure.backend import missing
from commsim.measure.channel import Receiver
from commsim.measure.plan import Plan
from commsim.measure.reporter import Reporter
from commsim.units import Seconds, format_time

TICK = 0.05  # s between looks at the processes
GRACE = 1.0  # s for the others to fall, so that it shows who fell first
START = 120.0  # s for all ranks to find each other, if --timeout is less
LEAVE = 10.0  # s for the ranks to end after the last result
SHOWN = 8  # last lines of a rank's stderr
# What another launcher says of its process; its settings (OMPI_MCA_*, HYDRA_*) stay.
OTHERS = re.compile(
    r"PMI_\w+|PMIX_(?!MCA_)\w+|OMPI_(COMM_WORLD|UNIVERSE)_\w+|MPI_LOCAL\w+|RANK|WORLD_SIZE"
    r"|LOCAL_RANK|LOCAL_WORLD_SIZE|GROUP_RANK|GROUP_WORLD_SIZE|ROLE_\w+|TORCHELASTIC_\w+"
)


def launch(plan: Plan, reporter: Reporter) -> None:
    """Runs the plan with ranks started here. Raises MeasureError where it cannot begin,
    BrokenRunError where a rank dies or hangs; whatever is raised, no rank is left behind."""
    with tempfile.TemporaryDirectory(prefix="commsim-") as name:
        folder = Path(name)
        (folder / "plan.json").write_text(plan.to_json(), encoding="utf-8")
        receiver = Receiver(folder / "results")
        ranks: list[subprocess.Popen[bytes]] = []
        try:
            with _terminated_as_interrupted():
                ranks += _start(plan, folder)
                _watch(plan, folder, ranks, receiver, reporter)
        finally:
            _end(ranks)
            receiver.close()


def _start(plan: Plan, folder: Path) -> list[subprocess.Popen[bytes]]:
    worker = [sys.executable, "-m", "commsim.measure.worker", str(folder / "plan.json"),
              str(folder / "results")]  # fmt: skip
    env = environment(os.environ, plan.n_ranks)
    if plan.settings.backend == "mpi":
        command = [*mpiexec(plan.n_ranks), *worker]
        return [_process(command, env, folder / "mpiexec.err", told=True)]
    port = _free_port()
    return [
        _process(worker, env | torchrun(rank, plan, port), folder / f"rank{rank}.err")
        for rank in range(plan.n_ranks)
    ]


def _process(
    command: list[str], env: dict[str, str], errors: Path, told: bool = False
) -> subprocess.Popen[bytes]:
    """stderr goes to a file; so does, if `told`, stdout, else to our stderr (NCCL_DEBUG)."""
    with errors.open("ab") as file:
        return subprocess.Popen(
            command, env=env, stdin=subprocess.DEVNULL, stdout=file if told else 2, stderr=file,
            start_new_session=True,
        )  # fmt: skip


def environment(env: Mapping[str, str], n_ranks: int) -> dict[str, str]:
    """This process's environment without another launcher's variables; as torchrun, one OpenMP
    thread for each of several ranks; Gloo over loopback. What is set already stays."""
    kept = {name: value for name, value in env.items() if not OTHERS.fullmatch(name)}
    if n_ranks > 1:
        kept.setdefault("OMP_NUM_THREADS", "1")
    kept.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
    home = str(Path(commsim.__file__).parent.parent)
    kept["PYTHONPATH"] = os.pathsep.join(filter(None, (home, kept.get("PYTHONPATH"))))
    return kept


def torchrun(rank: int, plan: Plan, port: int) -> dict[str, str]:
    """What torchrun sets for a rank of one machine."""
    number, size = str(rank), str(plan.n_ranks)
    return {
        "RANK": number, "LOCAL_RANK": number, "GROUP_RANK": "0", "ROLE_RANK": number,
        "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "GROUP_WORLD_SIZE": "1",
        "ROLE_WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
    }  # fmt: skip


def mpiexec(n_ranks: int) -> list[str]:
    """The command that starts MPI's ranks: of the wheel beside this Python, else of the PATH."""
    beside = str(Path(sys.executable).parent)
    found = shutil.which("mpiexec", path=beside) or shutil.which("mpiexec")
    if found is None:
        raise MeasureError(missing("mpi", "no mpiexec is found"))
    said = subprocess.run([found, "--version"], capture_output=True, text=True, check=False)
    many = ["--oversubscribe"] if re.search("Open ?MPI|OpenRTE|PRRTE", said.stdout) else []
    return [found, *many, "-n", str(n_ranks)]


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _watch(
    plan: Plan,
    folder: Path,
    ranks: list[subprocess.Popen[bytes]],
    receiver: Receiver,
    reporter: Reporter,
) -> None:
    """Passes on what comes until the end, or until a rank falls or nothing comes for too long."""
    heard = monotonic()
    patience = max(START, plan.settings.timeout)
    ended = False
    while True:
        select.select([receiver], [], [], TICK)
        fallen = [rank for rank, process in enumerate(ranks) if process.poll() not in (None, 0)]
        for message in receiver.messages():
            heard, patience = monotonic(), plan.settings.timeout
            ended = ended or "end" in message
            _pass_on(message, reporter)
        gone = all(process.poll() is not None for process in ranks)
        if ended and (gone or monotonic() - heard > LEAVE):
            return
        if fallen and not ended:
            sleep(GRACE)
            raise _fall(plan, folder, ranks, fallen)
        if gone and not ended:
            raise BrokenRunError("the ranks ended before everything was measured")
        if not ended and monotonic() - heard > patience:
            raise _hang(plan, folder, patience)


def _pass_on(message: dict[str, Any], reporter: Reporter) -> None:
    if "begin" in message:
        reporter.begin(message["begin"])
    elif "records" in message:
        reporter.done(message["step"], message["records"])


def _fall(
    plan: Plan, folder: Path, ranks: list[subprocess.Popen[bytes]], fallen: list[int]
) -> Exception:
    """Who fell, how, and its last words; MeasureError where it says that it cannot begin."""
    last = {rank: _last_words(folder / f"rank{rank}.err") for rank in range(plan.n_ranks)}
    for words in last.values():
        if words and words[-1].startswith("MeasureError: "):
            return MeasureError(words[-1].partition(": ")[2])
    if plan.settings.backend == "mpi":
        return _mpi_fall(folder, last, ranks[0].returncode)
    # one that was killed fell first; the others lost their connection to it
    first = next((rank for rank in fallen if (ranks[rank].returncode or 0) < 0), fallen[0])
    return BrokenRunError(_told(first, ended(ranks[first].returncode), last[first]))


def _mpi_fall(folder: Path, last: dict[int, list[str]], code: int) -> BrokenRunError:
    """mpiexec ends all ranks with one: who it was, from its own report or that one's words."""
    words = _last_words(folder / "mpiexec.err", 40)
    said = "\n".join(words)
    pid = re.search(r"\bPID (\d+)\b", said)
    pids = {_pid(folder / f"rank{rank}.pid"): rank for rank in last}
    killed = re.search(r"\bsignal (\d+)\b", said)
    how = ended(-int(killed[1]) if killed else code)
    rank = pids.get(int(pid[1])) if pid else None
    if rank is None:
        rank = next((rank for rank, lines in last.items() if lines), None)
    if rank is not None:
        return BrokenRunError(_told(rank, how, last[rank]))
    shown = [line for line in words if line.strip(" =")][-SHOWN:]
    return BrokenRunError("\n".join([f"mpiexec {how}", *(f"  {line}" for line in shown)]))


def _told(rank: int, how: str, words: list[str]) -> str:
    """One line, and the rank's last lines of stderr."""
    what = "its last lines on stderr:" if words else "it left nothing on stderr"
    return "\n".join([f"rank {rank} {how}; {what}", *(f"  {line}" for line in words)])


def ended(code: int) -> str:
    """How a process ended, from its exit code."""
    if code < 0:
        try:
            return f"was killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"was killed by signal {-code}"
    return f"died with exit code {code}"


def _hang(plan: Plan, folder: Path, patience: Seconds) -> BrokenRunError:
    """Where every rank stands when nothing comes any more."""
    pids = {rank: _pid(folder / f"rank{rank}.pid") for rank in range(plan.n_ranks)}
    for pid in pids.values():
        if pid is not None:
            try:
                os.kill(pid, signal.SIGUSR1)  # faulthandler writes where it is
            except OSError:
                continue
    sleep(GRACE)
    lines = [f"no progress for {format_time(patience)} (--timeout); where the ranks are:"]
    for rank in pids:
        at = [w for w in _last_words(folder / f"rank{rank}.err", 60) if w.startswith("  File")]
        where = at[0].strip() if at else "does not answer: it is stopped, or inside a library"
        lines.append(f"  rank {rank}: {where}")
    return BrokenRunError("\n".join(lines))


def _pid(path: Path) -> int | None:
    return int(path.read_text()) if path.exists() else None


def _last_words(path: Path, most: int = SHOWN) -> list[str]:
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return [line.rstrip() for line in lines if line.strip()][-most:]


def _end(ranks: list[subprocess.Popen[bytes]]) -> None:
    """No rank is left behind."""
    for send, wait in ((signal.SIGTERM, 2.0), (signal.SIGKILL, 5.0)):
        for process in ranks:
            if process.poll() is None:
                try:
                    os.killpg(process.pid, send)
                except ProcessLookupError:
                    continue
        until = monotonic() + wait
        while any(process.poll() is None for process in ranks) and monotonic() < until:
            sleep(TICK / 5)


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM ends this as Ctrl-C does, so that the ranks end with it."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # not in the main thread, which alone gets signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
