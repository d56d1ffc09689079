"""What every log has in common: lines without colours, command lines, versions."""

from __future__ import annotations

import re
from collections.abc import Iterator

_COLOURS = re.compile(r"\x1b\[[0-9;?]{0,16}[A-Za-z]")
_LONGEST = 4096  # characters of a line that are looked at; no row of any format is longer
_PROCESSES = re.compile(r"(?:mpirun|mpiexec|srun|aprun|jsrun|torchrun)\b[^\n]{0,4000}")
_COUNT = re.compile(r"\s(?:-n|-np|--np|--ntasks)[ =](\d{1,7})\b")
_PROGRAM = re.compile(r"_perf\b|\bosu_|\.py\b")
_WORLD = re.compile(r"\bworld[_ ]?size\W{1,4}(\d{1,7})\b", re.IGNORECASE)
VERSION = re.compile(r"\b(N|R)CCL version ?:? ?(\d[\w.+-]{0,40})")


def lines(text: str) -> Iterator[tuple[int, str]]:
    """Number (from 1) and text of each line; any line end, no colours, none endlessly long."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if "\x1b" in text:
        text = _COLOURS.sub("", text)
    for i, line in enumerate(text.split("\n"), start=1):
        yield i, line if len(line) <= _LONGEST else line[:_LONGEST]


def processes(text: str) -> int | None:
    """How many processes a launcher's command line in the text starts, or a world size in it."""
    found = _WORLD.search(text)
    if found is None:
        command = _PROCESSES.search(text)
        # what follows the program is its own: -n of nccl-tests are iterations
        found = command and _COUNT.search(_PROGRAM.split(command[0])[0])
    return int(found[1]) if found else None


def versions(text: str) -> tuple[tuple[str, str], ...]:
    """The version of NCCL or RCCL that the text names, as provenance."""
    found = VERSION.search(text)
    return ((("library", "nccl" if found[1] == "N" else "rccl"), ("version", found[2])) if found
            else ())  # fmt: skip
