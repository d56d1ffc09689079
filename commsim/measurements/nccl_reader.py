"""What reads one kind of message of an NCCL log: a pattern, and a function from a match to facts.

Every pattern is bounded, so that no text is slow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from commsim.measurements import nccl_facts as facts
from commsim.measurements.nccl_facts import Fact
from commsim.measurements.nccl_messages import Message, Thread

NUMBER = r"(-?\d{1,9})"
REAL = r"(\d{1,9}(?:\.\d{1,9})?)"

_Reading = Callable[["State", Message, re.Match[str]], Iterator[Fact]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LineReader:
    """Which messages it reads, from their beginning, and the facts in one."""

    pattern: re.Pattern[str]
    facts: _Reading


def reads(pattern: str) -> Callable[[_Reading], LineReader]:
    return lambda reading: LineReader(pattern=re.compile(pattern), facts=reading)


@dataclass(slots=True, kw_only=True)
class State:
    """What a thread said before that its next line needs: only alive while a text is read."""

    communicators: dict[tuple[str, str, int | None], str] = field(default_factory=dict)
    pointers: dict[tuple[str, str, str], str] = field(default_factory=dict)
    columns: dict[Thread, list[tuple[str, str]]] = field(default_factory=dict)
    algorithms: dict[Thread, list[str]] = field(default_factory=dict)
    threads: dict[Thread, list[int]] = field(default_factory=dict)
    graphs: dict[Thread, facts.SearchedGraph] = field(default_factory=dict)


def at(line: Message, kind: type[Any], /, **values: Any) -> Any:
    at = line.where
    return kind(
        line=at.line, host=at.host, device=at.device,
        **{"communicator": at.communicator, **values},
    )  # fmt: skip
