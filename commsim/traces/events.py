"""What each vertex does in a schedule, as message passing sees it: sends, receives, local ops."""

from __future__ import annotations

from dataclasses import dataclass

from commsim.collectives.schedule import Op, Schedule
from commsim.errors import ScheduleError

SEND, RECEIVE, LOCAL = "send", "receive", "local"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An op's part at one of its vertices.

    waits: the ops whose part at this vertex must be over before this one begins.
    """

    op: Op
    kind: str
    waits: tuple[int, ...]


def events(schedule: Schedule) -> tuple[tuple[Event, ...], ...]:
    """Per vertex its events, in the order of the ops.

    A wait holds at every vertex that the two ops share: there the send or the receive begins after
    the other op's part is over. A message may still travel before its receiver is ready for it, as
    in eager message passing. Raises ScheduleError where an op waits for one of other vertices.
    """
    found: list[list[Event]] = [[] for _ in range(schedule.vertices)]
    ends = list(zip(schedule.source.tolist(), schedule.destination.tolist(), strict=True))
    for op in schedule:
        for w in op.waits:
            if not {op.source, op.destination} & set(ends[w]):
                raise ScheduleError(
                    f"{op} waits for {schedule[w]}, of which neither of its ends knows; "
                    "expected waits for ops of its own source or destination"
                )
        local = op.source == op.destination
        for vertex, kind in ((op.source, SEND), (op.destination, RECEIVE))[local:]:
            waits = tuple(w for w in op.waits if vertex in ends[w])
            found[vertex].append(Event(op=op, kind=LOCAL if local else kind, waits=waits))
    return tuple(tuple(each) for each in found)
