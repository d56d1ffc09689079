"""A collective on two levels: inside groups of neighbours, and across them on rails.

Of n ranks the first `size` form group 0, the next group 1, and so on; rail r joins the ranks with
place r in their group. all_reduce is a reduce-scatter inside every group, an all_reduce along every
rail and an all-gather inside, so a rail carries 1/size of the buffer. Any algorithms that serve
these operations may be the parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm

import numpy as np

from commsim.collectives.algorithm import Algorithm, Cost
from commsim.collectives.builder import NONE, Builder
from commsim.collectives.catalogue import algorithm
from commsim.collectives.chunks import Ints, cut, split
from commsim.collectives.collective import Collective
from commsim.collectives.schedule import Schedule
from commsim.collectives.teams import Teams
from commsim.errors import CollectiveError

INSIDE, ACROSS = 0, 1
PHASES = {
    "all_reduce": ((INSIDE, "reduce_scatter"), (ACROSS, "all_reduce"), (INSIDE, "all_gather")),
    "barrier": ((INSIDE, "reduce_scatter"), (ACROSS, "all_reduce"), (INSIDE, "all_gather")),
    "reduce_scatter": ((INSIDE, "reduce_scatter"), (ACROSS, "reduce_scatter")),
    "all_gather": ((ACROSS, "all_gather"), (INSIDE, "all_gather")),
}
OPERATIONS = frozenset(PHASES)


def named(part: Algorithm | str) -> Algorithm:
    """The algorithm itself, or the one of that name with its defaults."""
    return algorithm(part) if isinstance(part, str) else part


def divisor(n: int, most: int) -> int:
    """The largest divisor of n that is not above `most`."""
    if most < 1:
        raise CollectiveError(f"ranks of a group: expected at least 1, got {most}")
    return max(d for d in range(1, min(n, most) + 1) if n % d == 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoLevel:
    """`inside` on groups of `size` ranks, which divides n, and `across` on the rails.

    The buffer goes in `pieces`, each op after the same op of the piece before, so that phases on
    different links overlap.
    """

    size: int
    inside: Algorithm
    across: Algorithm
    pieces: int = 1

    def __post_init__(self) -> None:
        if self.pieces < 1:
            raise CollectiveError(f"pieces of the buffer: expected at least 1, got {self.pieces}")

    def schedule(self, collective: Collective, n: int, channels: int = 1) -> Schedule:
        """Phase after phase for every rank, as soon as the rank itself is through with one."""
        lanes, groups = channels * self.pieces, n // self.size
        found = self._parts(collective, n, lanes)
        schedules = [(level, part.schedule(sub, members)) for level, part, sub, members in found]
        fine = lcm(*(schedule.chunks.parts for _, schedule in schedules))
        by_rank = collective.operation in ("all_gather", "reduce_scatter")
        place, block = np.ogrid[: self.size, : groups if by_rank else 1]
        cells = (block * self.size + place) * fine * (lanes if by_rank else 1)  # of lane 0
        stride = fine * (1 if by_rank else self.size)  # from one lane to the next
        chunks = cut(collective, n, lanes * stride)
        vertices, switches = self._vertices(n, schedules)
        phases = [
            Teams(
                schedule,
                vertices[level],
                _places(cells, level, schedule.chunks.parts, fine),
                fine // schedule.chunks.parts,
            )
            for level, schedule in schedules
        ]
        scratch = max(phase.scratch for phase in phases)
        builder = Builder(chunks, scratch=lanes * scratch, switches=switches)
        for channel in range(channels):
            twins: list[Ints | None] = [None] * len(phases)
            for piece in range(self.pieces):
                lane, step = channel * self.pieces + piece, piece
                ready = np.full(n + switches, NONE)
                for i, phase in enumerate(phases):
                    ops = phase.append(
                        builder,
                        data=lane * stride,
                        scratch=chunks.places + lane * scratch,
                        ready=ready,
                        twins=twins[i],
                        channel=channel,
                        round=step,
                    )
                    twins[i] = ops
                    step += phase.rounds
                    if i < len(phases) - 1:
                        phase.join(builder, ops, ready, channel=channel, round=step)
                        step += 1
        return builder.build()

    def cost(self, collective: Collective, n: int) -> Cost:
        """The phases one after the other. More pieces neither gain nor lose much where all phases
        use the same ports.
        """
        found = self._parts(collective, n, 1)
        phases = [part.cost(sub, members) for _, part, sub, members in found]
        return Cost(
            rounds=sum(phase.rounds for phase in phases),
            nbytes=sum(phase.nbytes for phase in phases),
            exact=self.pieces == 1 and all(phase.exact for phase in phases),
        )

    def _parts(
        self, collective: Collective, n: int, lanes: int
    ) -> list[tuple[int, Algorithm, Collective, int]]:
        """Per phase its level, its algorithm, what a team does in one lane, and with how many."""
        total = 0 if collective.operation == "barrier" else collective.nbytes
        nbytes = int(split(total, lanes)[0])
        share = int(split(nbytes, self.size)[0])
        level_of = (self.inside, nbytes, self.size), (self.across, share, n // self.size)
        found = []
        for level, operation in PHASES[collective.operation]:
            part, size, members = level_of[level]
            if members > 1:
                found.append((level, part, Collective(operation, size, collective.dtype), members))
        return found

    def _vertices(
        self, n: int, schedules: list[tuple[int, Schedule]]
    ) -> tuple[tuple[Ints, ...], int]:
        """Per level who plays each vertex of a team, [team, vertex], and how many switches."""
        grid, first, found = np.arange(n).reshape(-1, self.size), n, []
        for level, teams in ((INSIDE, grid), (ACROSS, grid.T)):
            each = max((s.switches for at, s in schedules if at == level), default=0)
            own = first + np.arange(len(teams) * each).reshape(len(teams), each)
            found.append(np.hstack([teams, own]))
            first += own.size
        return tuple(found), first - n


def _places(cells: Ints, level: int, parts: int, fine: int) -> Ints:
    """Where each place of a team's data begins, [team or 1, place, piece], from where each block of
    each rail does, [place in the group, block].
    """
    each = cells[..., np.newaxis] + np.arange(parts) * (fine // parts)
    if level == INSIDE:
        return each.transpose(0, 2, 1).reshape(1, len(cells) * parts, -1)
    return each.reshape(len(cells), -1, 1)
