"""What the devices of a host share: its clock, its memory, its name, work in a second thread."""

from __future__ import annotations

import os
import platform
import re
import threading
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from time import monotonic

from commsim.errors import MeasureError
from commsim.measure.device import Device, Spans, Stopwatch
from commsim.units import Bytes, Seconds


class HostStopwatch(Stopwatch):
    """Tells the time at once: a host's calls return when they are done."""

    def __init__(self) -> None:
        self.marks: list[Seconds] = []

    def mark(self) -> None:
        self.marks.append(monotonic())

    def read(self) -> list[Seconds]:
        marks, self.marks = self.marks, []
        return marks


def in_a_thread(
    work: Callable[[int], None], times: int, other: Callable[[], None]
) -> tuple[Spans, Spans]:
    """`work` `times` times while a second thread repeats `other`; when each run began and ended."""
    others: Spans = []
    begun, done = threading.Event(), threading.Event()

    def repeat() -> None:
        while not done.is_set():
            start = monotonic()
            other()
            others.append((start, monotonic()))
            begun.set()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    begun.wait()
    mine: Spans = []
    try:
        for i in range(times):
            start = monotonic()
            work(i)
            mine.append((start, monotonic()))
    finally:
        done.set()
        thread.join()
    return mine, others


def available() -> Bytes:
    """Memory that can be had without swapping."""
    text = _read("/proc/meminfo")
    found = re.search(r"MemAvailable:\s+(\d+) kB", text)
    return int(found[1]) * 1024 if found else 1 << 62


@lru_cache
def cache_bytes() -> Bytes:
    """The last-level cache; 0: not known."""
    sizes = [_read(str(p)).strip() for p in Path("/sys/devices/system/cpu/cpu0/cache").glob(
        "index*/size")]  # fmt: skip
    return max((int(s[:-1]) * 1024 for s in sizes if re.fullmatch(r"\d+K", s)), default=0)


@lru_cache
def processor() -> str:
    """The model of the CPU."""
    found = re.search(r"model name\s*:\s*(.+)", _read("/proc/cpuinfo"))
    return found[1].strip() if found else platform.processor() or platform.machine()


def cores() -> int:
    """CPUs that this process may run on."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        return os.cpu_count() or 1


@lru_cache
def identity() -> str:
    """What processes with one monotonic clock have in common: the boot of one kernel."""
    return _read("/proc/sys/kernel/random/boot_id").strip() or platform.node()


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:
        return ""


class Host(Device):
    """A device whose memory is the machine's and whose clock is the process's own."""

    kind = "cpu"
    clocked = True

    def stopwatch(self) -> Stopwatch:
        return HostStopwatch()

    def finish(self) -> None:
        pass

    def graph(self, work: Callable[[], None]) -> Callable[[], None]:
        raise MeasureError("--cudagraph: expected --backend nccl, got one on the CPU")

    def beside(
        self, work: Callable[[int], None], times: int, other: Callable[[], None], ratio: float
    ) -> tuple[Spans, Spans]:
        return in_a_thread(work, times, other)

    @property
    def cache(self) -> Bytes:
        return cache_bytes()

    @property
    def free(self) -> Bytes:
        return available()
