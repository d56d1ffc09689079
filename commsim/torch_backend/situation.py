"""The moment at which no rank can run: where each of them stands."""

from __future__ import annotations

from dataclasses import dataclass

from commsim.torch_backend.records import Call, Operation, Post, Where
from commsim.units import Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked:
    """A rank that waits, for other ranks. post: None where it waits for a key of the store."""

    rank: int
    text: str
    where: Where
    waits_for: tuple[int, ...]
    post: Post | None = None

    @property
    def call(self) -> Call | None:
        """What it called."""
        return None if self.post is None else self.post.call


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """A rank whose script raised an exception: its class, and its text."""

    rank: int
    kind: str
    error: str
    where: Where | None
    traceback: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """All ranks at that moment, and the operations that are not complete.

    unmet: sends and receives without a counterpart. present: the ranks that are simulated.
    """

    time: Seconds
    present: frozenset[int]
    blocked: tuple[Blocked, ...]
    raised: tuple[Raised, ...]
    ended: tuple[int, ...]
    incomplete: tuple[Operation, ...]
    mismatched_messages: tuple[Operation, ...]
    unmet: tuple[Post, ...]
