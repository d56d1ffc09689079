"""One rank at work: what holds for all steps, and how work is timed together with the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from commsim.measure import statistics
from commsim.measure.backend import Backend
from commsim.measure.clock import StartLine, offset
from commsim.measure.host import identity
from commsim.measure.plan import Settings
from commsim.units import Bytes, Seconds

Record = dict[str, Any]
Work = Callable[[int], None]
BLOCKS = 5  # samples of a loop on a GPU, where a mark for each run would take time itself


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """When this rank began each run on rank 0's clock, how long each took there (as its device
    saw it), and how long a call kept the host busy; s."""

    starts: list[Seconds]
    durations: list[Seconds]
    host: Seconds
    looped: bool


class Session:
    """The connected backend, and what holds for all steps."""

    def __init__(self, backend: Backend, settings: Settings) -> None:
        self.backend = backend
        self.device = backend.device
        self.settings = settings
        self.hosts: list[str] = backend.everyone(identity())
        # ranks that take their buffers from one memory
        on_gpu = self.device.kind == "cuda"
        self.sharers = 1 if on_gpu else self.hosts.count(identity())
        apart, self.clock_error = offset(backend, self.hosts)
        self.line = StartLine(backend, apart)
        self.loops = settings.timing == "loop" or (on_gpu and not settings.timing)
        self._groups: dict[tuple[tuple[int, ...], int], Any] = {}

    @property
    def rotate(self) -> Bytes:
        """Bytes of buffers in rotation."""
        if self.settings.rotate is not None:
            return self.settings.rotate
        return 2 * self.device.cache if self.device.kind == "cuda" else 0

    def nodes(self, ranks: Sequence[int]) -> int:
        """Machines under these ranks."""
        return len({self.hosts[rank] for rank in ranks})

    def group(self, ranks: tuple[int, ...], copy: int = 0) -> Any:
        """The communicator of these ranks; every rank asks for it. copy: one more of the same."""
        key = ranks, copy
        if key not in self._groups:
            self._groups[key] = self.backend.group(ranks)
        return self._groups[key]

    def run(self, work: Work | None, times: int, loops: bool | None = None) -> Run | None:
        """`work` that many times, together with the other ranks; None: only the others work.

        loops: one right after the other (None: as the settings say).
        """
        if self.loops if loops is None else loops:
            return self._loop(work, times)
        return self._isolated(work, times)

    def _isolated(self, work: Work | None, times: int) -> Run | None:
        watch, starts, host = self.device.stopwatch(), [], 0.0
        for i in range(times):
            self.device.finish()
            self.line.wait()
            if work is not None:
                starts.append(self.line.now())
                watch.mark()
                work(i)
                watch.mark()
                host += self.line.now() - starts[-1]
        if work is None:
            return None
        marks = watch.read()
        durations = [b - a for a, b in zip(marks[::2], marks[1::2], strict=True)]
        return Run(
            starts=starts, durations=durations, host=host / max(1, times), looped=False
        )  # fmt: skip

    def _loop(self, work: Work | None, times: int) -> Run | None:
        block = self.settings.block or (
            max(1, times // BLOCKS) if self.device.kind == "cuda" else 1
        )
        block = min(block, max(1, times))
        watch = self.device.stopwatch()
        self.device.finish()
        self.line.wait()
        if work is None:
            return None
        begin = self.line.now()
        watch.mark()
        for i in range(times // block * block):
            work(i)
            if (i + 1) % block == 0:
                watch.mark()
        host = (self.line.now() - begin) / max(1, times)
        marks = watch.read()
        return Run(
            starts=[begin + mark - marks[0] for mark in marks[:-1]],
            durations=[(b - a) / block for a, b in pairwise(marks)],
            host=host, looped=True,
        )  # fmt: skip

    def summary(self, runs: Sequence[Run]) -> Record:
        """What the runs of a group's ranks say together; on rank 0."""
        starts = np.array([run.starts for run in runs])
        durations = np.array([run.durations for run in runs])
        host = {"host_s": float(np.mean([run.host for run in runs]))}
        if runs[0].looped:
            samples, skew = statistics.looped(durations)
            return statistics.summary(samples) | {"skew_s": skew.tolist()} | host
        samples, skew = statistics.isolated(starts, starts + durations)
        self.line.learn(float(np.median(skew)))
        waits = {"skew_s": skew.tolist(), "waiting_s": statistics.waiting(starts)}
        return statistics.summary(samples) | waits | host
