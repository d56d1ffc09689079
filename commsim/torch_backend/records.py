"""What the simulator writes down: who asked for what, from which line, and when it took place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from commsim.units import Bytes, Seconds, format_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """A line of the user's script."""

    file: str
    line: int
    function: str = "<module>"

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


DEFAULT_GROUP = "0"  # torch's name for the group of all ranks
NOWHERE = Where(file="?", line=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A process group: torch's name for it, and its ranks in the world, in the group's order."""

    name: str
    ranks: tuple[int, ...]
    description: str = ""

    def __str__(self) -> str:
        shown = ", ".join(map(str, self.ranks[:8]))
        more = f", ... {self.ranks[-1]}" if len(self.ranks) > 8 else ""
        name = "" if self.name in ("", DEFAULT_GROUP) else f" of group {self.name}"
        return f"[{shown}{more}]{name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What one rank asked for. Ranks are those of the world.

    nbytes: as `Collective` counts it. counts: elements by which the ranks' calls are compared.
    splits: bytes this rank has for each rank of the group (all_to_all); expects: what it awaits.
    """

    rank: int
    function: str
    operation: str
    group: Group
    nbytes: Bytes = 0
    dtype: str = "float32"
    counts: tuple[int, ...] = ()
    root: int | None = None
    reduce_op: str | None = None
    peer: int | None = None
    tag: int = 0
    splits: tuple[Bytes, ...] | None = None
    expects: tuple[Bytes, ...] | None = None
    asynchronous: bool = False
    where: Where = NOWHERE

    @property
    def is_send(self) -> bool:
        return self.operation == "send"

    @property
    def signature(self) -> tuple[object, ...]:
        """What must be the same on every rank of a collective."""
        return self.operation, self.dtype, self.counts, self.root, self.reduce_op

    def __str__(self) -> str:
        """`all_reduce(sum, 4 x float32) on [0, 1]`."""
        if self.operation == "send":
            return f"{self.function}({self._size()}, dst={self.peer}{self._tag()})"
        if self.operation == "recv":
            source = "any rank" if self.peer is None else self.peer
            return f"{self.function}({self._size()}, src={source}{self._tag()})"
        parts = [self.reduce_op or "", "" if self.operation == "barrier" else self._size()]
        parts.append(f"root={self.root}" if self.root is not None else "")
        return f"{self.function}({', '.join(filter(None, parts))}) on ranks {self.group}"

    def _size(self) -> str:
        if len(self.counts) == 1:
            return f"{self.counts[0]} x {self.dtype}"
        return f"{format_size(self.nbytes)} of {self.dtype}"

    def _tag(self) -> str:
        return f", tag={self.tag}" if self.tag else ""


@dataclass(slots=True, kw_only=True, eq=False)
class Post:
    """One rank's side of an operation, and the buffers it gave.

    ready: s, when the rank's stream has come to it. buffered: s, when a send that needs no
    receiver was done with its buffer. exposed: s that the rank's compute stood still for it, of
    which awaiting_others before the operation could start.
    """

    call: Call
    ready: Seconds
    buffers: Any
    operation: Operation
    buffered: Seconds | None = None
    waited: bool = False
    exposed: Seconds = 0.0
    awaiting_others: Seconds = 0.0

    @property
    def done(self) -> bool:
        """Is it over, or has the data at least left the sender's buffer?"""
        return self.operation.over or self.buffered is not None

    @property
    def end(self) -> Seconds:
        """s, when this rank is done with it."""
        return self.operation.end if self.buffered is None else self.buffered


Mover = Callable[["Operation"], None]


@dataclass(slots=True, kw_only=True, eq=False)
class Operation:
    """One collective of a group, or one message: the posts of its ranks, and when it takes place.

    sequence: its number in the group (collectives). number: the order in which their ranks had all
    come. matched: they have, and the data has moved. over: start and end, s, are known. alone: s
    that it takes with the network to itself.
    """

    group: Group
    move: Mover
    sequence: int = -1
    posts: list[Post] = field(default_factory=list)
    matched: bool = False
    mismatched: bool = False
    number: int = -1
    start: Seconds = 0.0
    end: Seconds = 0.0
    over: bool = False
    alone: Seconds = 0.0
    algorithm: str = ""

    @property
    def call(self) -> Call:
        """What was asked, by the rank that came first."""
        return self.posts[0].call

    @property
    def is_message(self) -> bool:
        """Is it a send and its receive?"""
        return self.call.operation in ("send", "recv")

    @property
    def duration(self) -> Seconds:
        """s, from the arrival of the last rank on a free stream to the end."""
        return self.end - self.start

    @property
    def in_order(self) -> list[Post]:
        """The posts in the group's order of ranks."""
        place = {rank: i for i, rank in enumerate(self.group.ranks)}
        return sorted(self.posts, key=lambda post: place[post.call.rank])

    def of(self, operation: str) -> Post:
        """The `send` or `recv` of a message."""
        return next(post for post in self.posts if post.call.operation == operation)
