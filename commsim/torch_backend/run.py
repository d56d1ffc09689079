"""What came of a simulated run: times, operations, exposed communication."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from commsim.topology.cluster import Cluster
from commsim.torch_backend.failure import Failure
from commsim.torch_backend.records import Operation
from commsim.torch_backend.world import World
from commsim.units import Bytes, Seconds, format_time

WARM_UP = (
    2  # optimizer steps left out: DDP's first has one bucket, and its buckets are then rebuilt
)
SLOWED = 1e-9  # of the run's duration: less is rounding


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Operations of one kind. duration, exposed: s of all of them; exposed is of the rank where it
    is longest, of which awaiting_others before the operation could begin.
    """

    operation: str
    nbytes: Bytes
    dtype: str
    ranks: int
    count: int
    duration: Seconds
    exposed: Seconds
    awaiting_others: Seconds
    algorithm: str

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON-able."""
        return {
            "operation": self.operation, "size_bytes": self.nbytes, "dtype": self.dtype,
            "n_ranks": self.ranks, "count": self.count, "duration_s": self.duration,
            "exposed_s": self.exposed, "awaiting_others_s": self.awaiting_others,
            "algorithm": self.algorithm,
        }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSummary:
    """One rank's time in s: until its end, computing, in operations, standing still for them, of
    which before they could begin, as another rank was late.
    """

    rank: int
    duration: Seconds
    computing: Seconds
    communicating: Seconds
    exposed: Seconds
    awaiting_others: Seconds

    @property
    def overlapped(self) -> float:
        """The share of its operations' time in which the rank did not stand still for them."""
        if not self.communicating:
            return 0.0
        return max(0.0, 1 - (self.exposed - self.awaiting_others) / self.communicating)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON-able."""
        return {
            "rank": self.rank, "duration_s": self.duration, "computing_s": self.computing,
            "communicating_s": self.communicating, "exposed_s": self.exposed,
            "awaiting_others_s": self.awaiting_others,
        }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A finished run. Its operations come in the order in which they began."""

    world: World
    cluster: Cluster
    compute: str

    @property
    def failure(self) -> Failure | None:
        """Why it did not end well; None: it did."""
        return self.world.failure

    @property
    def duration(self) -> Seconds:
        """s of virtual time, from the start of the script to the end of the last rank."""
        return max(rank.now for rank in self.world.ranks.values())

    @property
    def operations(self) -> tuple[Operation, ...]:
        """Collectives and messages."""
        return tuple(sorted(self.world.operations, key=lambda o: (o.start, o.number)))

    @property
    def step_ends(self) -> tuple[Seconds, ...]:
        """s, when the slowest rank came to the end of each optimizer step."""
        steps = [rank.steps for rank in self.world.ranks.values()]
        return tuple(max(ends) for ends in zip(*steps, strict=False))

    @property
    def steps(self) -> tuple[Seconds, ...]:
        """s, the duration of each step after the first."""
        ends = self.step_ends
        return tuple(b - a for a, b in itertools.pairwise(ends))

    @property
    def step_duration(self) -> Seconds | None:
        """s, the median of the steps after warming up; None without at least two steps."""
        steps = self._steady
        return statistics.median(steps) if steps else None

    @property
    def steady_steps(self) -> int:
        """How many steps that is the median of."""
        return len(self._steady)

    @property
    def _steady(self) -> tuple[Seconds, ...]:
        return self.steps[WARM_UP - 1 :] or self.steps[-1:]

    def table(self) -> tuple[Row, ...]:
        """Operations by kind, those that take longest in all first."""
        kinds: dict[tuple[Any, ...], list[Operation]] = {}
        for operation in self.operations:
            kinds.setdefault(_kind(operation), []).append(operation)
        rows = [_row(kind, operations) for kind, operations in kinds.items()]
        return tuple(sorted(rows, key=lambda row: -row.duration))

    def ranks(self) -> tuple[RankSummary, ...]:
        """Where the time of each rank went."""
        in_operations = dict.fromkeys(self.world.ranks, 0.0)
        for rank, busy in _covered(self.operations).items():
            in_operations[rank] = busy
        return tuple(
            RankSummary(
                rank=rank.number, duration=rank.now, computing=rank.clock.busy,
                communicating=in_operations[rank.number], exposed=rank.clock.exposed,
                awaiting_others=rank.clock.awaiting_others,
            )
            for rank in self.world.ranks.values()
        )  # fmt: skip

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know about these figures."""
        found = dict(self.world.notes)
        for post in self.world.messages.unmet() if self.failure is None else ():
            what = "sent" if post.call.is_send else "posted as a receive"
            found[f"{post.call} at {post.call.where} of rank {post.call.rank} was {what}, and "
                  f"never met its counterpart"] = None  # fmt: skip
        longer = [o.duration - o.alone for o in self.operations if o.over]
        slowed = [more for more in longer if more > SLOWED * self.duration]
        if slowed:
            more = format_time(sum(slowed))
            found[
                f"operations under way at once slowed each other: {len(slowed)} of {len(longer)} "
                f"took longer than alone, by {more} in all"
            ] = None
        for prediction in list(self.world.prices.known.values())[:1]:
            found |= dict.fromkeys(prediction.notes)
        return tuple(found)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON-able figures, keys with a unit suffix."""
        return {
            "cluster": self.cluster.name,
            "nodes": self.cluster.nodes,
            "n_ranks": self.world.size,
            "simulated_ranks": len(self.world.ranks),
            "library": f"{self.world.prices.library.name}@{self.world.prices.library.version}",
            "compute": self.compute,
            "duration_s": self.duration,
            "step_duration_s": self.step_duration,
            "steps_s": list(self.steps),
            "operations": [row.to_dict() for row in self.table()],
            "ranks": [summary.to_dict() for summary in self.ranks()],
            "failure": None if self.failure is None else self.failure.to_dict(),
            "notes": list(self.notes),
        }


def _kind(operation: Operation) -> tuple[Any, ...]:
    call = operation.call
    name = "send_recv" if operation.is_message else call.operation
    ranks = 2 if operation.is_message else len(operation.group.ranks)
    return name, call.nbytes, call.dtype, ranks, operation.algorithm


def _row(kind: tuple[Any, ...], operations: list[Operation]) -> Row:
    exposed: dict[int, Seconds] = {}
    awaiting: dict[int, Seconds] = {}
    for operation in operations:
        for post in operation.posts:
            rank = post.call.rank
            exposed[rank] = exposed.get(rank, 0.0) + post.exposed
            awaiting[rank] = awaiting.get(rank, 0.0) + post.awaiting_others
    worst = max(exposed, key=lambda rank: (exposed[rank], -rank))
    name, nbytes, dtype, ranks, algorithm = kind
    return Row(
        operation=name, nbytes=nbytes, dtype=dtype, ranks=ranks, count=len(operations),
        duration=sum(o.duration for o in operations), exposed=exposed[worst],
        awaiting_others=awaiting[worst], algorithm=algorithm,
    )  # fmt: skip


def _covered(operations: Iterable[Operation]) -> dict[int, Seconds]:
    """s that each rank has at least one operation under way; `operations` by their start."""
    until: dict[int, Seconds] = {}
    total: dict[int, Seconds] = {}
    for operation in operations:
        for post in operation.posts:
            rank = post.call.rank
            start = max(operation.start, until.get(rank, 0.0))
            total[rank] = total.get(rank, 0.0) + max(0.0, operation.end - start)
            until[rank] = max(until.get(rank, 0.0), operation.end)
    return total
