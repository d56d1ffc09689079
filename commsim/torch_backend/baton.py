"""One thread per rank, of which exactly one runs: the ready one whose clock is furthest behind.

A thread hands the baton on only where it must wait for another rank, so that a run is repeatable,
and so that "nobody can run" is known at once, without a time-out.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from commsim.units import Seconds

UNWINDING = 5.0  # s that a stopped rank's thread may take for its `finally` blocks
PATIENCE = 1000  # polls in a row, during which nothing happens, before a rank counts as blocked


class Stopped(BaseException):
    """Ends a rank's thread from within: the run is over."""


class State(Enum):
    """Where a rank stands."""

    READY = "ready"
    BLOCKED = "blocked"
    DONE = "done"


class HasClock(Protocol):
    """A rank, as far as the baton is concerned."""

    number: int

    @property
    def now(self) -> Seconds: ...


class Isolation(Protocol):
    """What a rank has of its own in a process that all ranks share."""

    def enter(self, rank: Any) -> None: ...

    def leave(self, rank: Any) -> None: ...


def _closed() -> threading.Lock:
    """A gate that lets one thread pass each time another opens it."""
    gate = threading.Lock()
    gate.acquire()
    return gate


@dataclass(slots=True, eq=False)
class Seat:
    """A rank's place in the ring of those who may hold the baton."""

    rank: Any
    gate: threading.Lock = field(default_factory=_closed)
    state: State = State.READY
    waits_for: object = None
    thread: threading.Thread | None = None


class Baton:
    """Runs `body(rank)` for every rank, one at a time.

    go_on is called when no rank can run but those that poll, when_stuck when none can; both return
    True after waking one.
    """

    def __init__(
        self,
        ranks: Sequence[HasClock],
        isolation: Isolation,
        when_stuck: Callable[[], bool],
        go_on: Callable[[], bool] = lambda: False,
    ) -> None:
        self.seats = {rank.number: Seat(rank) for rank in ranks}
        self.stopping = False
        self.switches = 0
        self._isolation = isolation
        self._when_stuck, self._go_on = when_stuck, go_on
        self._ready = [(rank.now, rank.number) for rank in ranks]
        self._polling: list[int] = []
        self._idle = 0
        self._over = _closed()
        heapq.heapify(self._ready)

    def run(self, body: Callable[[Any], None]) -> None:
        """Returns when every rank's thread has ended; see `stop`."""
        for seat in self.seats.values():
            seat.thread = threading.Thread(
                target=self._live, args=(seat, body), name=f"rank {seat.rank.number}", daemon=True
            )
            seat.thread.start()
        self._pass_on()
        self._over.acquire()
        self.stopping = True
        for seat in self.seats.values():
            if seat.state is not State.DONE and seat.thread is not None:
                seat.gate.release()
                seat.thread.join(UNWINDING)

    def block(self, rank: HasClock, waits_for: object, until: Callable[[], bool]) -> None:
        """Return when `until()` holds; others run meanwhile, and one of them must call `wake`."""
        seat = self.seats[rank.number]
        while not until():
            self._check()
            seat.state, seat.waits_for = State.BLOCKED, waits_for
            self._give_way(seat)
        self._check()

    def poll(self, rank: HasClock, waits_for: object) -> None:
        """Let others run first, if any can; for scripts that ask again and again."""
        self._check()
        seat = self.seats[rank.number]
        seat.state, seat.waits_for = State.BLOCKED, waits_for
        self._idle += 1
        if self._idle <= PATIENCE:
            self._polling.append(rank.number)
        self._give_way(seat)

    def wake(self, number: int) -> None:
        """Rank `number` may run again, if it is blocked."""
        self._idle = 0
        seat = self.seats.get(number)
        if seat is not None and seat.state is State.BLOCKED:
            seat.state = State.READY
            if number in self._polling:
                self._polling.remove(number)
            heapq.heappush(self._ready, (seat.rank.now, number))

    def waits_for(self, number: int) -> object:
        """What a rank waits for; None: it does not, or does not run at all."""
        seat = self.seats.get(number)
        return None if seat is None or seat.state is not State.BLOCKED else seat.waits_for

    def waiting(self) -> dict[int, object]:
        """What each blocked rank waits for."""
        return {n: s.waits_for for n, s in self.seats.items() if s.state is State.BLOCKED}

    def done(self) -> tuple[int, ...]:
        """The ranks whose script has ended."""
        return tuple(n for n, s in self.seats.items() if s.state is State.DONE)

    def _check(self) -> None:
        if self.stopping:
            raise Stopped

    def _live(self, seat: Seat, body: Callable[[Any], None]) -> None:
        seat.gate.acquire()
        self._isolation.enter(seat.rank)
        try:
            if not self.stopping:
                body(seat.rank)
        except Stopped:
            pass
        finally:
            seat.state = State.DONE
            self._isolation.leave(seat.rank)
            if not self.stopping:
                self._idle = 0
                self._pass_on()

    def _give_way(self, seat: Seat) -> None:
        """Hand the baton on; return when it is this seat's turn again."""
        following = self._next()
        if following is seat:
            seat.state = State.READY
            return
        self._isolation.leave(seat.rank)
        self._start(following)
        seat.gate.acquire()
        self._isolation.enter(seat.rank)
        seat.state = State.READY
        self._check()

    def _pass_on(self) -> None:
        self._start(self._next())

    def _start(self, seat: Seat | None) -> None:
        self.switches += 1
        if seat is None:
            self._over.release()
        else:
            seat.gate.release()

    def _next(self) -> Seat | None:
        """Who runs next; None: nobody can."""
        while True:
            if self._ready:
                return self.seats[heapq.heappop(self._ready)[1]]
            if self._go_on():
                continue
            if self._polling:
                return self.seats[self._polling.pop(0)]
            if not self._when_stuck():
                return None
