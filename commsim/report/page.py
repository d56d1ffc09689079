"""A report as one HTML file: facts and tables read from the JSON, pictures as SVG, no network.

Every figure names the place in the JSON that it was written from (`data-path`), and the JSON lies
in the page: what a reader sees and what a program reads are one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, TypeAlias

from commsim.report.words import words

TEMPLATE = Path(__file__).with_name("page.html")


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Two columns: a word, and the value at a path of the JSON."""

    title: str
    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A row for each element of the list or object at `path`; "" is the whole.

    columns: a heading and where in the element its value lies ("" the element, "#key" its key).
    most: rows that are shown; the JSON has all.
    """

    title: str
    path: str
    columns: tuple[tuple[str, str], ...]
    most: int = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """A list of sentences at a path of the JSON."""

    title: str
    path: str


Part: TypeAlias = Facts | Table | Lines


@dataclass(frozen=True, slots=True)
class Cell:
    """Text, and the path that it was written from ("" for words of our own)."""

    text: str
    path: str = ""
    number: bool = False


@dataclass(frozen=True, slots=True)
class Block:
    """A part filled in. head is empty for facts."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    left_out: int = 0


def page(
    title: str,
    parts: Sequence[Part],
    data: Any,
    pictures: Sequence[tuple[str, str]] = (),
    *,
    version: str = "",
) -> str:
    """The HTML of a report of `data` (what --json prints). pictures: what each shows, its SVG;
    version: of commsim."""
    from jinja2 import Environment  # of the extra `plot`

    from commsim.report.plots.style import DARK, PAGE

    # With autoescape everything but the pictures and the JSON is text.
    template = Environment(autoescape=True).from_string(TEMPLATE.read_text(encoding="utf-8"))
    embedded = json.dumps(data, allow_nan=False).replace("<", "\\u003c")
    return template.render(
        title=title, made=str(date.today()), version=version, embedded=embedded,
        blocks=[b for b in (_block(part, data) for part in parts) if b.rows], pictures=pictures,
        light={name: colour for colour, name in PAGE.items()},
        dark={name: DARK[colour] for colour, name in PAGE.items()},
    )  # fmt: skip


def value_at(data: Any, path: str) -> Any:
    """What lies at a path such as `plans/0/duration_s`; None where there is nothing."""
    for key in filter(None, path.split("/")):
        if isinstance(data, Mapping):
            data = data.get(key)
        elif isinstance(data, Sequence) and not isinstance(data, str) and key.isdigit():
            data = data[int(key)] if int(key) < len(data) else None
        else:
            return None
    return data


def _block(part: Part, data: Any) -> Block:
    if isinstance(part, Facts):
        rows = [
            (Cell(word), _cell(data, path))
            for word, path in part.rows
            if value_at(data, path) is not None
        ]
        return Block(part.title, (), tuple(rows))
    if isinstance(part, Lines):
        found = value_at(data, part.path) or ()
        return Block(
            part.title, (), tuple((_cell(data, f"{part.path}/{i}"),) for i in range(len(found)))
        )
    keys = list(_keys(value_at(data, part.path)))
    rows_of = [
        tuple(_column(data, f"{part.path}/{key}".lstrip("/"), key, where)
              for _, where in part.columns)
        for key in keys[: part.most]
    ]  # fmt: skip
    head = tuple(name for name, _ in part.columns)
    return Block(part.title, head, tuple(rows_of), max(0, len(keys) - part.most))


def _keys(found: Any) -> Iterator[str]:
    if isinstance(found, Mapping):
        yield from map(str, found)
    elif isinstance(found, Sequence) and not isinstance(found, str):
        yield from map(str, range(len(found)))


def _column(data: Any, row: str, key: str, where: str) -> Cell:
    if where == "#key":
        return Cell(key)
    return _cell(data, f"{row}/{where}".rstrip("/"))


def _cell(data: Any, path: str) -> Cell:
    value = value_at(data, path)
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return Cell(words(path, value), path, number)
