"""All ranks' parts as one list of tasks: an operation begins once all its ranks have come."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass

from commsim.errors import ScheduleError
from commsim.traces.joining import Operation
from commsim.traces.line import PAUSE, Part
from commsim.traces.recording import WAIT, Call
from commsim.units import Bytes, Seconds
from commsim.workload.streams import Task

Place = tuple[int, int]  # a rank, and the number of its part
BEGIN = -1  # the number of what stands for its begin


@dataclass(frozen=True, slots=True, kw_only=True)
class Joint:
    """An operation and, by rank, the place of its part. operation: None of a bucket made."""

    call: Call
    operation: Operation | None
    nbytes: Bytes | None
    places: dict[int, int]

    @property
    def asked(self) -> dict[int, Call]:
        """By rank what it asked for."""
        if self.operation is None:
            return dict.fromkeys(self.places, self.call)
        return {r: c for r, c in self.operation.asked.items() if r in self.places}

    def waits(self, rank: int) -> bool:
        """Whether the rank stays until all have come."""
        return self.operation is None or self.operation.waits(rank)


def merged(
    parts: Mapping[int, tuple[Part, ...]],
    joints: Mapping[int, Joint],
    durations: Mapping[int, Seconds],
    leads: Mapping[int, Seconds],
    factor: float,
) -> tuple[list[Task], list[Place]]:
    """The tasks in an order in which each comes after those it waits for, and whose they are.

    durations: s of each joint's transfer; nan: what each rank took. leads: by rank, s after which
    it begins; these are the first tasks, as part BEGIN. factor: on all computing. The pause before
    an operation's part stands for the arrival of its rank. ScheduleError names the operations that
    wait for each other.
    """
    joint_of = {place: n for n, joint in joints.items() for place in joint.places.items()}
    waits: dict[Place, list[Place]] = {}
    unblocks: dict[Place, list[Place]] = defaultdict(list)
    left: dict[Place, int] = {}
    for rank, mine in parts.items():
        last: dict[str, int] = {}
        for i, part in enumerate(mine):
            here = (rank, i)
            asked = [(rank, j) for j in part.after]
            number = joint_of.get(here)
            if number is not None and joints[number].waits(rank):
                others = joints[number].places.items()
                asked += [(r, p - 1) for r, p in others if r != rank]
            waits[here] = asked
            before = last.get(part.stream)
            order = asked if before is None else [*asked, (rank, before)]
            last[part.stream] = i
            if not order:
                waits[here] = [(rank, BEGIN)]
            left[here] = len(order)
            for other in order:
                unblocks[other].append(here)
    ready = deque(here for here, n in left.items() if not n)
    number_of: dict[Place, int] = {(rank, BEGIN): i for i, rank in enumerate(parts)}
    tasks = [
        Task(name="begin", kind=PAUSE, stream=f"{rank} begin", duration=leads[rank])
        for rank in parts
    ]
    while ready:
        here = ready.popleft()
        number_of[here] = len(tasks)
        part, number = parts[here[0]][here[1]], joint_of.get(here)
        if number is None:
            duration = _own(part, factor)
        elif math.isnan(durations[number]):
            duration = _recorded(joints[number], here[0])
        else:
            duration = durations[number]
        tasks.append(
            Task(
                name=part.name, kind=part.kind if part.call is None else part.call.operation,
                stream=f"{here[0]} {part.stream}", duration=duration,
                after=tuple(number_of[other] for other in waits[here]),
                nbytes=part.call.nbytes or 0 if part.call is not None else 0,
            )
        )  # fmt: skip
        for other in unblocks[here]:
            left[other] -= 1
            if not left[other]:
                ready.append(other)
    if len(tasks) < len(left) + len(parts):
        stuck = [here for here, n in left.items() if n and here in joint_of][:4]
        named = "; ".join(f"rank {r}: {joints[joint_of[r, i]].call.operation}" for r, i in stuck)
        raise ScheduleError(f"the step cannot be played, operations wait for each other: {named}")
    return tasks, list(number_of)


def _own(part: Part, factor: float) -> Seconds:
    """s of what a rank does alone."""
    if part.kind in (PAUSE, WAIT):
        return part.duration
    return 0.0 if math.isnan(part.duration) else part.duration * factor


def _recorded(joint: Joint, rank: int) -> Seconds:
    """s that a rank took for the transfer; 0 where it is not recorded."""
    operation = joint.operation
    assert operation is not None
    waited = operation.timed and operation.waits(rank)
    start = operation.last_start if waited else operation.starts[rank]
    end = operation.ends[rank]
    return 0.0 if math.isnan(end) else max(0.0, end - start)
