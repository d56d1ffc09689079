"""All ranks' parts as one list of tasks: an operation begins once all its ranks have come."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from commsim.errors import ScheduleError
from commsim.traces.joining import Operation
from commsim.traces.line import PAUSE, Part
from commsim.traces.recording import WAIT, Call
from commsim.units import Bytes, Seconds
from commsim.workload.streams import Task

Place = tuple[int, int]  # a rank, and the number of its part
BEGIN = -1  # the number of what stands for its begin
ALL = -1  # the rank of what stands for the arrival of all ranks, by the number of the joint


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
    an operation's part stands for the arrival of its rank; once all have come, a task of no
    duration as part of rank ALL is over. ScheduleError names the operations that wait for each
    other.
    """
    joint_of = {place: n for n, joint in joints.items() for place in joint.places.items()}
    waits, behind = _waits(parts, joints, joint_of)
    number_of: dict[Place, int] = {(rank, BEGIN): i for i, rank in enumerate(parts)}
    tasks = [
        Task(name="begin", kind=PAUSE, stream=f"{rank} begin", duration=leads[rank])
        for rank in parts
    ]
    for here in _order(waits, behind):
        rank, place = here
        after = tuple(number_of[other] for other in waits[here] or [(rank, BEGIN)])
        number_of[here] = len(tasks)
        if rank == ALL:
            all_there = Task(name="all", kind=PAUSE, stream=f"all {place}", duration=0, after=after)
            tasks.append(all_there)
            continue
        part, number = parts[rank][place], joint_of.get(here)
        if number is None:
            duration = _own(part, factor)
        elif math.isnan(durations[number]):
            duration = _recorded(joints[number], rank)
        else:
            duration = durations[number]
        call = part.call
        tasks.append(
            Task(
                name=part.name, kind=part.kind if call is None else call.operation,
                stream=f"{rank} {part.stream}", duration=duration, after=after,
                nbytes=0 if call is None else call.nbytes or 0,
            )
        )  # fmt: skip
    if len(number_of) < len(waits) + len(parts):
        stuck = [here for here in joint_of if here not in number_of][:4]
        named = "; ".join(f"rank {r}: {joints[joint_of[r, i]].call.operation}" for r, i in stuck)
        raise ScheduleError(f"the step cannot be played, operations wait for each other: {named}")
    return tasks, list(number_of)


def _waits(
    parts: Mapping[int, tuple[Part, ...]],
    joints: Mapping[int, Joint],
    joint_of: Mapping[Place, int],
) -> tuple[dict[Place, list[Place]], dict[Place, Place]]:
    """Of every part what it waits for, and the part before it on its stream."""
    waits: dict[Place, list[Place]] = {}
    behind: dict[Place, Place] = {}
    for number, joint in joints.items():
        if len(joint.places) > 1:
            waits[ALL, number] = [(r, p - 1) for r, p in joint.places.items()]
    for rank, mine in parts.items():
        last: dict[str, int] = {}
        for i, part in enumerate(mine):
            here = (rank, i)
            waits[here] = [(rank, j) for j in part.after]
            joined = joint_of.get(here)
            if joined is not None and (ALL, joined) in waits and joints[joined].waits(rank):
                waits[here].append((ALL, joined))
            if part.stream in last:
                behind[here] = rank, last[part.stream]
                if not waits[here]:
                    waits[here].append(behind[here])
            last[part.stream] = i
    return waits, behind


def _order(waits: Mapping[Place, list[Place]], behind: Mapping[Place, Place]) -> Iterator[Place]:
    """The parts that can be played, each after those it waits for, those of a stream in order."""
    unblocks: dict[Place, list[Place]] = defaultdict(list)
    left: dict[Place, int] = {}
    for here, asked in waits.items():
        order = {*asked, behind[here]} if here in behind else set(asked)
        left[here] = len(order)
        for other in order:
            unblocks[other].append(here)
    ready = deque(here for here, n in left.items() if not n)
    while ready:
        here = ready.popleft()
        yield here
        for other in unblocks[here]:
            left[other] -= 1
            if not left[other]:
                ready.append(other)


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
