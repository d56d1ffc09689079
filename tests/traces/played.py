"""What every export must keep of a schedule, whatever its format."""

from __future__ import annotations

from dataclasses import dataclass
from graphlib import TopologicalSorter

from commsim.collectives.schedule import Schedule

Task = tuple[int, int]  # rank, op


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """An export parsed: messages by tag as (rank, peer, bytes), and per task what it waits for."""

    sends: dict[int, tuple[int, int, int]]
    receives: dict[int, tuple[int, int, int]]
    local: set[Task]
    waits: dict[Task, set[Task]]


def check(played: Played, schedule: Schedule) -> None:
    """Each op is one send and one receive, or one local task; it waits where its waits took place;
    and it can be played.
    """
    away = [op for op in schedule if op.source != op.destination]
    assert played.sends == {op.index: (op.source, op.destination, op.nbytes) for op in away}
    assert played.receives == {op.index: (op.destination, op.source, op.nbytes) for op in away}
    local = {(op.source, op.index) for op in schedule if op.source == op.destination}
    assert played.local == local

    tasks = {(v, op.index) for op in schedule for v in (op.source, op.destination)}
    assert played.waits.keys() == tasks
    for vertex, index in tasks:
        kept = {(vertex, w) for w in schedule[index].waits if (vertex, w) in tasks}
        assert played.waits[vertex, index] == kept
    for op in schedule:
        for w in op.waits:  # none is lost
            assert {(op.source, w), (op.destination, w)} & tasks

    order = {task: set(waits) for task, waits in played.waits.items()}
    for tag, (rank, _, _) in played.receives.items():
        order[rank, tag].add((played.sends[tag][0], tag))
    assert len(list(TopologicalSorter(order).static_order())) == len(tasks)
