"""One time for all ranks, and a line from which they start together."""

from __future__ import annotations

from time import monotonic, sleep

from commsim.measure.backend import Backend
from commsim.units import Seconds

MARGIN, MOST_MARGIN = 0.5e-3, 20e-3  # s from saying when to begin until then
SPIN = 0.1e-3  # s of it that are not slept: a core that just woke up would be slow, and late
LATE = 0.2e-3  # s apart at which the ranks need more margin
PINGS = 50


class StartLine:
    """Where ranks wait until one and the same time: rank 0 says when.

    offset: s to add to this host's monotonic clock to have rank 0's.
    """

    def __init__(self, backend: Backend, offset: Seconds) -> None:
        self.backend = backend
        self.offset = offset
        self.margin = MARGIN

    def now(self) -> Seconds:
        """Rank 0's monotonic clock."""
        return monotonic() + self.offset

    def wait(self) -> None:
        """Returns at the time that rank 0 says, or at once where that is over."""
        begin = self.backend.share(self.now() + self.margin)
        left = begin - self.now()
        if left > SPIN:
            sleep(left - SPIN)
        while self.now() < begin:
            pass

    def learn(self, apart: Seconds) -> None:
        """More time next time, if the ranks began that far apart."""
        if apart > LATE:
            self.margin = min(MOST_MARGIN, 2 * self.margin)


def offset(backend: Backend, hosts: list[str]) -> tuple[Seconds, Seconds]:
    """What this rank adds to its clock to have rank 0's, and how wrong that may be, s.

    Ranks of rank 0's host share its clock. Another takes the quickest of PINGS answers, whose
    middle is taken for the time it came from: wrong by half of its round trip at most (Cristian,
    Distributed Computing 3, 1989, 10.1007/BF01784024).
    """
    mine, error = 0.0, 0.0
    for rank in range(1, backend.n_ranks):
        if hosts[rank] == hosts[0]:
            continue
        if backend.rank == 0:
            for _ in range(PINGS):
                backend.hear(rank)
                backend.tell(monotonic(), rank)
        elif backend.rank == rank:
            mine, error = min((_ping(backend) for _ in range(PINGS)), key=lambda found: found[1])
    return mine, error


def _ping(backend: Backend) -> tuple[Seconds, Seconds]:
    asked = monotonic()
    backend.tell(asked, 0)
    theirs = backend.hear(0)
    answered = monotonic()
    return theirs - (asked + answered) / 2, (answered - asked) / 2
