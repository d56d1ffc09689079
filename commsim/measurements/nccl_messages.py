"""The messages of NCCL in a text: each with its line, who printed it, and what it says.

What stands before NCCL's own prefix (srun's or mpirun's rank, a time, figures of a benchmark that
were printed at the same moment) does not matter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from commsim.measurements.nccl_facts import Fact

_LONGEST = 1 << 16  # characters of a line that are looked at
_BEFORE = 400  # characters before `NCCL INFO` in which its prefix lies
_LEVEL = re.compile(r"\bNCCL (INFO|WARN|TRACE|ERROR|ABORT) ?")
_PREFIX = re.compile(
    r"([\w.-]{1,255}):(\d{1,10}):(\d{1,10}) (?:\[(-?\d{1,6})\] )?(?:(\S{1,200}:\d{1,6}) )?$"
)
_TIME = re.compile(r"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[^ ]{0,20} $")
_FIGURE = re.compile(r"-?\d+(\.\d+)?|-?N/A")
_COLOURS = re.compile(r"\x1b\[[0-9;?]{0,16}[A-Za-z]")
_BARE_VERSION = re.compile(r"\s*NCCL version (\d[\w.+-]{0,40})\s*$")

Thread = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message: where it stands, who printed it, and its text."""

    where: Fact
    thread: Thread
    level: str
    place: str
    text: str


def messages(text: str) -> Iterator[Message]:
    """Every message of NCCL in a text; two that share a line are two."""
    hosts: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if "NCCL " not in line:
            continue
        line = _COLOURS.sub("", line[:_LONGEST]).rstrip()
        if bare := _BARE_VERSION.match(line):
            yield _message(number, "", None, ("", "", ""), f"NCCL version {bare[1]}")
            continue
        found = list(_LEVEL.finditer(line))
        if not found:
            continue
        starts = [0, *(m.end() for m in found)]
        prefixes = [
            _prefix(line, start, m.start(), hosts) for start, m in zip(starts, found, strict=False)
        ]
        ends = [begin for begin, *_ in prefixes[1:]] + [len(line)]
        for m, (_, host, process, thread, device, place), end in zip(
            found, prefixes, ends, strict=True
        ):
            says = line[m.end() : max(m.end(), end)]
            key = (host, process, thread)
            yield _message(number, host, device, key, says, level=m[1], place=place)


def _message(
    number: int, host: str, device: int | None, thread: Thread, text: str,
    *, level: str = "INFO", place: str = "",
) -> Message:  # fmt: skip
    where = Fact(line=number, host=host, device=device)
    return Message(where=where, thread=thread, level=level, place=place, text=text)


def _prefix(
    line: str, start: int, end: int, hosts: dict[str, str]
) -> tuple[int, str, str, str, int | None, str]:
    """Where the prefix before `NCCL INFO` begins, and its host, process, thread, device, place.

    A figure of a benchmark or the message before may be glued to the host: then the host is the
    one that the process has elsewhere.
    """
    begin = max(start, end - _BEFORE)
    found = _PREFIX.search(line[begin:end])
    if found is None:
        return end, "", "", "", None, ""
    begin += found.start()
    host, process, thread, device, place = found.groups("")
    before = line[max(start, begin - _BEFORE) : begin]
    if start or sum(1 for word in before.split() if _FIGURE.fullmatch(word)) >= 2:
        glued, host = host, hosts.get(process, host.lstrip("-"))
        begin += len(glued) - len(host) if glued.endswith(host) else 0
    else:
        hosts.setdefault(process, host)
    if time := _TIME.search(before[-64:]):
        begin -= len(time[0])
    return begin, host, process, thread, int(device) if device else None, place
