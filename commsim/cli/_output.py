"""How commands print: JSON, plain lines, and tables that keep their shape in a pipe.

On a terminal lines are as wide as it is; colour is Rich's, which leaves it out for NO_COLOR.
"""

from __future__ import annotations

import json
import math
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_QUIET: ContextVar[bool] = ContextVar("quiet", default=False)
PIPE_WIDTH = 200  # columns of a table that nobody's terminal limits


def print_json(value: Any) -> None:
    """Valid JSON: a number that is infinite or not a number becomes null."""
    print(json.dumps(finite(value), indent=2, allow_nan=False))


def finite(value: Any) -> Any:
    """The value as JSON can have it: a number that is infinite or not a number is None."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return value


@contextmanager
def hush(quiet: bool) -> Iterator[None]:
    """Inside, where quiet, neither notes nor progress are shown."""
    token = _QUIET.set(quiet or _QUIET.get())
    try:
        yield
    finally:
        _QUIET.reset(token)


def hushed() -> bool:
    """Whether quiet was asked for."""
    return _QUIET.get()


def chatty() -> bool:
    """Whether progress is to be shown: stderr is a terminal, and nobody asked for quiet."""
    return sys.stderr.isatty() and not hushed()


def print_notes(notes: Iterable[str]) -> None:
    """A section of notes, unless quiet was asked for."""
    if not hushed():
        print_section("notes", notes)


def print_facts(facts: Iterable[tuple[str, str]]) -> None:
    """Two columns: a word and what it is."""
    rows = list(facts)
    width = max((len(word) for word, _ in rows), default=0)
    for word, text in rows:
        print_wrapped(f"  {word:<{width}}  {text}", indent=width + 4)


def print_section(title: str, lines: Iterable[str]) -> None:
    """A title and indented lines; nothing where there are no lines."""
    rows = list(lines)
    if rows:
        print(f"\n{title}")
        for line in rows:
            print_wrapped(f"  {line}", indent=4)


def print_wrapped(line: str, indent: int) -> None:
    """The line; on a terminal that is narrower, what is too long goes on below, indented."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else PIPE_WIDTH
    if not sys.stdout.isatty() or len(line) <= width or indent > width // 2:
        print(line)
        return
    print(
        textwrap.fill(
            line, width, subsequent_indent=" " * indent, break_long_words=False,
            break_on_hyphens=False, replace_whitespace=False, drop_whitespace=True,
        )
    )  # fmt: skip


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table; a column whose name starts with `>` is set flush right, the last column wraps."""
    from rich.box import SIMPLE_HEAD  # Rich takes 60 ms to load, and JSON does not need it
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for index, column in enumerate(columns):
        right = column.startswith(">")
        table.add_column(
            column.removeprefix(">"),
            justify="right" if right else "left",
            no_wrap=index < len(columns) - 1 or right,
        )
    for row in rows:
        table.add_row(*row)
    width = None if sys.stdout.isatty() else PIPE_WIDTH
    console = Console(width=width, markup=False, highlight=False, emoji=False)
    with console.capture() as captured:
        console.print(table)
    print(f"\n{title}")
    for line in captured.get().splitlines():
        print(line.rstrip())
