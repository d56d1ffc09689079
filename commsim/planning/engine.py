"""Where tasks run: here, on the cores of this machine, or on a cluster that is there.

    auto                    "local" where there is enough to do, else "serial"
    serial                  in this process
    local                   processes on the cores (joblib's loky)
    dask://host:8786        a Dask scheduler, ray://host:10001 a Ray cluster (joblib's backends)

Results come back in the order of the tasks, whoever finished first, so they are the same to the bit
on every engine. A task whose worker dies is run again. With a store, a task whose answer is there
is never run.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from commsim.errors import PlanError
from commsim.planning.store import Store
from commsim.planning.survey import READ, Question

RETRIES = 3
"""How often the tasks of workers that died are run again before giving up."""

MANY = 200
"""Tasks from which on "auto" starts processes: that takes them some seconds."""

DEATHS = {
    "BrokenProcessPool", "TerminatedWorkerError", "KilledWorker", "RayActorError",
    "WorkerCrashedError", "NodeDiedError",
}  # fmt: skip
"""What joblib's processes, Dask and Ray raise where a worker ended."""

SLICE = 32
"""Tasks given to Ray at a time."""

Function = Callable[[Question, Any], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """where: "auto", "serial", "local", or the address of a cluster; jobs: processes (None: all
    cores); store: where results are kept."""

    where: str = "auto"
    jobs: int | None = None
    store: Store | None = None

    def __post_init__(self) -> None:
        kind, _, address = self.where.partition("://")
        here = self.where in ("auto", "serial", "local")
        if not here and (kind not in ("dask", "ray") or not address):
            raise PlanError(
                f"plan: engine: expected auto, serial, local, dask://host:port or ray://host:port, "
                f"got {self.where!r}"
            )
        if self.jobs is not None and self.jobs < 1:
            raise PlanError(f"plan: jobs: expected 1 or more, got {self.jobs}")

    def run(
        self,
        function: Function,
        question: Question,
        tasks: Sequence[Any],
        done: Callable[[int], None] | None,
    ) -> list[Any]:
        """function(question, task) of every task, in their order; done: told how many are."""
        known: dict[int, Any] = {}
        if self.store is not None:
            there = self.store.known(function.__name__, question.digest, tasks)
            known = {i: READ[function](value) for i, value in there.items()}
        waiting = [i for i in range(len(tasks)) if i not in known]
        if done is not None:
            done(len(known))
        failures = 0
        while waiting:
            try:
                for i, result in self._results(function, question, tasks, waiting):
                    known[i] = result
                    if self.store is not None:
                        self.store.keep(function.__name__, question.digest, tasks[i], result)
                    if done is not None:
                        done(len(known))
            except Exception as error:
                if not _died(error) or failures == RETRIES:
                    raise
                failures += 1
            waiting = [i for i in waiting if i not in known]
        return [known[i] for i in range(len(tasks))]

    def _results(
        self, function: Function, question: Question, tasks: Sequence[Any], waiting: Sequence[int]
    ) -> Iterator[tuple[int, Any]]:
        kind = self.where.partition("://")[0]
        if kind == "auto":
            many = len(waiting) >= MANY and cores() > 1
            kind = "local" if many and importlib.util.find_spec("joblib") else "serial"
        if kind == "serial" or (kind == "local" and len(waiting) == 1):
            for i in waiting:
                yield i, function(question, tasks[i])
            return
        joblib = _module("joblib", self.where)
        # Ray's backend has no generators: there, results come part by part.
        at_once, how = (SLICE, "list") if kind == "ray" else (len(waiting), "generator_unordered")
        with self._backend(joblib, kind):
            for first in range(0, len(waiting), at_once):
                parallel = joblib.Parallel(n_jobs=self.jobs or -1, return_as=how, batch_size=1)
                yield from parallel(
                    joblib.delayed(_numbered)(function, question, tasks[i], i)
                    for i in waiting[first : first + at_once]
                )

    @contextlib.contextmanager
    def _backend(self, joblib: Any, kind: str) -> Iterator[None]:
        address = self.where.partition("://")[2]
        with contextlib.ExitStack() as stack:
            if kind == "local":
                stack.enter_context(joblib.parallel_config(backend="loky"))
            elif kind == "dask":
                distributed = _module("distributed", self.where)
                with self._reaching():
                    client = distributed.Client(f"tcp://{address}", set_as_default=False)
                stack.enter_context(client)
                stack.enter_context(
                    joblib.parallel_config(backend="dask", scheduler_host=f"tcp://{address}")
                )
            else:
                with self._reaching():
                    _module("ray", self.where).init(address=self.where, ignore_reinit_error=True)
                _module("ray.util.joblib", self.where).register_ray()
                stack.enter_context(joblib.parallel_config(backend="ray"))
            yield

    @contextlib.contextmanager
    def _reaching(self) -> Iterator[None]:
        """Raises PlanError where nobody answers at the address."""
        try:
            yield
        except (OSError, ValueError) as error:
            raise PlanError(
                f"plan: engine {self.where}: nobody answers there ({error}); start it first, or "
                "use engine local"
            ) from None


def _numbered(function: Function, question: Question, task: Any, i: int) -> tuple[int, Any]:
    return i, function(question, task)


def _module(name: str, where: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise PlanError(
            f"plan: engine {where}: the package {name.split('.')[0]} is missing; "
            "pip install 'commsim[scale]' (Ray: pip install 'ray[client]'), or use engine serial"
        ) from None


def _died(error: Exception) -> bool:
    """Did a worker end, rather than its task fail?"""
    names = {cls.__name__ for cls in type(error).__mro__}
    return bool(names & DEATHS)


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
