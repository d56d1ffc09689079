"""A cluster as TOML text: the tables of a cluster file written out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def written(tables: Mapping[str, Any]) -> str:
    """The tables as TOML: keys of the file first, then each table, then lists of tables."""
    return "\n".join(_lines(tables, "")).strip() + "\n"


def _lines(table: Mapping[str, Any], path: str) -> list[str]:
    plain = {k: v for k, v in table.items() if not isinstance(v, Mapping) and not _tables(v)}
    lines = [f"{_key(key)} = {_value(value)}" for key, value in plain.items()]
    for key, value in table.items():
        inner = f"{path}.{_key(key)}" if path else _key(key)
        if isinstance(value, Mapping):
            lines += ["", f"[{inner}]", *_lines(value, inner)]
        elif _tables(value):
            for each in value:
                lines += ["", f"[[{inner}]]", *_lines(each, inner)]
    return lines


def _tables(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, Mapping) for v in value)


def _key(key: str) -> str:
    bare = key.isascii() and key.replace("_", "").replace("-", "").isalnum()
    return key if bare else json.dumps(key, ensure_ascii=False)


def _value(value: object) -> str:
    """A text, number, truth value, or a list of those; JSON writes them as TOML does."""
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{_key(k)} = {_value(v)}' for k, v in value.items())} }}"
    if isinstance(value, str | int | float | bool):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value)  # dates, which a cluster file has none of
