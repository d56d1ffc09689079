"""Who meets whom: collectives by (group, sequence), messages by (group, source, destination, tag).

Collectives of a group meet in the order in which each rank calls them, as in NCCL and Gloo, so a
rank that calls another one at its turn meets the wrong call: that operation never completes.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from commsim.torch_backend.records import Call, Group, Mover, Operation, Post
from commsim.units import Seconds

Channel = tuple[Group, int, int, int]  # group, source, destination, tag


@dataclass(slots=True, eq=False)
class Collectives:
    """The collectives of every group that still wait for ranks.

    present: the ranks that are simulated; an operation is complete once they have all come.
    """

    present: frozenset[int]
    open: dict[tuple[Group, int], Operation] = field(default_factory=dict)
    _counts: dict[tuple[Group, int], int] = field(default_factory=lambda: defaultdict(int))

    def post(self, call: Call, ready: Seconds, buffers: object, move: Mover) -> tuple[Post, bool]:
        """The rank's post, and whether it was the last one that the operation waited for."""
        turn = self._counts[call.group, call.rank]
        self._counts[call.group, call.rank] += 1
        operation = self.open.get((call.group, turn))
        if operation is None:
            operation = Operation(group=call.group, move=move, sequence=turn)
            self.open[call.group, turn] = operation
        post = Post(call=call, ready=ready, buffers=buffers, operation=operation)
        operation.posts.append(post)
        if conflict(operation):
            operation.mismatched = True
        come = len(operation.posts) == len(self.present.intersection(call.group.ranks))
        if come and not operation.mismatched:
            del self.open[call.group, turn]
            return post, True
        return post, False

    def incomplete(self) -> tuple[Operation, ...]:
        """Operations that not every rank has come to, or that the ranks disagree about."""
        return tuple(self.open.values())


def conflict(operation: Operation) -> bool:
    """Do the calls of an operation contradict each other?"""
    last = operation.posts[-1].call
    if last.signature != operation.call.signature:
        return True
    if last.splits is None or last.expects is None:
        return False
    place = operation.group.ranks.index
    me = place(last.rank)
    for post in operation.posts:
        other, you = post.call, place(post.call.rank)
        if other.expects is None or other.splits is None:
            return True
        if other.expects[me] != last.splits[you] or other.splits[me] != last.expects[you]:
            return True
    return False


@dataclass(slots=True, eq=False)
class Messages:
    """Sends and receives that have not met."""

    sends: dict[Channel, deque[Post]] = field(default_factory=lambda: defaultdict(deque))
    receives: dict[Channel, deque[Post]] = field(default_factory=lambda: defaultdict(deque))
    wildcards: list[Post] = field(default_factory=list)
    mismatched: list[Operation] = field(default_factory=list)

    def post(self, call: Call, ready: Seconds, buffers: object, move: Mover) -> tuple[Post, bool]:
        """The rank's post, and whether its counterpart was there.

        A receive from any rank waits for `settle`.
        """
        operation = Operation(group=call.group, move=move)
        post = Post(call=call, ready=ready, buffers=buffers, operation=operation)
        operation.posts.append(post)
        if call.peer is None:
            self.wildcards.append(post)
            return post, False
        if call.is_send:
            channel = (call.group, call.rank, call.peer, call.tag)
            mine, theirs = self.sends, self.receives
        else:
            channel = (call.group, call.peer, call.rank, call.tag)
            mine, theirs = self.receives, self.sends
        if not theirs[channel]:
            mine[channel].append(post)
            return post, False
        return post, self._meet(post, theirs[channel].popleft())

    def settle(self) -> Post | None:
        """Let the earliest receive from any rank meet the earliest send to it, if there is one.

        Asked when nothing else can happen, so that no earlier send can still come.
        """
        for receive in sorted(self.wildcards, key=lambda p: (p.ready, p.call.rank)):
            call = receive.call
            waiting = [
                queue[0]
                for (group, _, destination, tag), queue in self.sends.items()
                if queue and (group, destination, tag) == (call.group, call.rank, call.tag)
            ]
            if waiting:
                send = min(waiting, key=lambda p: (p.ready, p.call.rank))
                self.wildcards.remove(receive)
                self.sends[call.group, send.call.rank, call.rank, call.tag].popleft()
                return receive if self._meet(receive, send) else None
        return None

    def _meet(self, post: Post, other: Post) -> bool:
        operation = other.operation
        post.operation = operation
        operation.posts.append(post)
        a, b = post.call, other.call
        if (a.counts, a.dtype) == (b.counts, b.dtype):
            return True
        operation.mismatched = True
        self.mismatched.append(operation)
        return False

    def unmet(self) -> Iterator[Post]:
        """Sends and receives without a counterpart."""
        for table in (self.sends, self.receives):
            for queue in table.values():
                yield from queue
        yield from self.wildcards
