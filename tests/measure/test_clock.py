"""Ranks on other machines have other clocks: here threads, each with a shifted one."""

from __future__ import annotations

import threading
from time import monotonic
from typing import Any

import pytest

from commsim.measure import clock
from commsim.measure.clock import StartLine, offset
from tests.measure.threads import Board, ThreadBackend

SHIFTS = (0.0, 100.0, -3.0, 100.0)  # s that each rank's clock is ahead
HOSTS = ["a", "b", "c", "b"]


@pytest.fixture
def shifted(monkeypatch: pytest.MonkeyPatch) -> dict[int, float]:
    """Each thread's own shift of the clock."""
    shifts: dict[int, float] = {}
    monkeypatch.setattr(
        clock, "monotonic", lambda: monotonic() + shifts.get(threading.get_ident(), 0.0)
    )
    return shifts


def on_every_rank(shifts: dict[int, float], what: Any) -> list[Any]:
    board, found = Board(4), [None] * 4
    boards: dict[Any, Any] = {}

    def rank(number: int) -> None:
        shifts[threading.get_ident()] = SHIFTS[number]
        found[number] = what(ThreadBackend(number, board, boards, lambda asked, receive: None))

    threads = [threading.Thread(target=rank, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_every_rank_learns_rank_0_s_clock(shifted: dict[int, float]) -> None:
    found = on_every_rank(shifted, lambda backend: offset(backend, HOSTS))
    for (apart, error), shift in zip(found, SHIFTS, strict=True):
        assert abs(apart + shift) <= error + 1e-9  # within what it says of itself
        assert error < 0.1
    assert found[0] == (0.0, 0.0)


def test_ranks_start_together_on_rank_0_s_clock(shifted: dict[int, float]) -> None:
    def start(backend: ThreadBackend) -> float:
        line = StartLine(backend, -SHIFTS[backend.rank])
        line.margin = 0.3
        line.wait()
        return monotonic()

    begun = monotonic()
    times = on_every_rank(shifted, start)
    assert min(times) - begun >= 0.3
    assert max(times) - min(times) < 0.25


def test_ranks_that_come_late_get_more_time() -> None:
    line = StartLine(object(), 0.0)  # type: ignore[arg-type]
    line.learn(0.1e-3)
    assert line.margin == 0.5e-3
    for _ in range(20):
        line.learn(1e-3)
    assert line.margin == 20e-3
