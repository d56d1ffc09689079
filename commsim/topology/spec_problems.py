"""From the tables of a cluster file to a checked ClusterSpec, or every problem at once.

Each problem is one line: file, key, what was expected, what was found, the nearest known word.
"""

from __future__ import annotations

import copy
import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from commsim.errors import SpecError
from commsim.topology.spec import ClusterSpec, table_of
from commsim.topology.spec_checks import cross_checks


def parse(raw: Mapping[str, Any], where: str, overrides: Iterable[str] = ()) -> ClusterSpec:
    """The checked file; SpecError with one line for each problem otherwise.

    `where` names the file in messages; keys of `overrides` are blamed on the override instead.
    """
    blamed = tuple(overrides)
    problems: dict[str, str] = {}
    try:
        spec = ClusterSpec.model_validate(raw)
    except ValidationError as error:
        wrong = [item["loc"] for item in error.errors()]
        problems = {
            _path(item["loc"]): _blame(_path(item["loc"]), where, blamed) + _line(item)
            for item in error.errors()
        }
        try:  # what is left may have more to say
            spec = ClusterSpec.model_validate(_without(raw, wrong))
        except ValidationError:
            raise SpecError(problems.values()) from None
    for key, text in cross_checks(spec):
        if not any(key == wrong or key.startswith(f"{wrong}.") for wrong in problems):
            problems[key] = f"{_blame(key, where, blamed)}{key}: {text}"
    if problems:
        raise SpecError(problems.values())
    return spec


def _without(raw: Any, locations: Iterable[tuple[int | str, ...]]) -> Any:
    """A copy of the tables without the values at these places."""
    out = copy.deepcopy(dict(raw))
    for loc in locations:
        at: Any = out
        for piece in loc[:-1]:
            at = at[piece] if isinstance(piece, int) or piece in at else {}
        if isinstance(at, dict):
            at.pop(loc[-1], None)
    return out


def _path(loc: tuple[int | str, ...]) -> str:
    out = ""
    for piece in loc:
        out += f"[{piece}]" if isinstance(piece, int) else f".{piece}" if out else piece
    return out


def _blame(key: str, where: str, overrides: tuple[str, ...]) -> str:
    return "override " if key in overrides else f"{where}: "


def _line(item: Any) -> str:
    """One of pydantic's findings as one of our lines."""
    at, kind, found = _path(item["loc"]), item["type"], item["input"]
    if kind == "extra_forbidden":
        return f"{at}: unknown key{_nearest_key(item['loc'])}"
    if kind == "missing":
        return f"{at}: missing, expected {_expected(item['loc'])}"
    if kind == "value_error":
        return f"{at}: {item['ctx']['error']}"
    if kind == "literal_error":
        expected = f"one of {item['ctx']['expected']}".replace("'", '"')
        return f"{at}: expected {expected}, got {_shown(found)}{_nearest_value(item, found)}"
    return f"{at}: expected {_expected(item['loc'])}, got {_shown(found)}"


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    text = repr(value)
    return text if len(text) < 60 else f"a {type(value).__name__}"


def _field(loc: tuple[int | str, ...]) -> Any:
    model: type[BaseModel] | None = ClusterSpec
    field = None
    for piece in loc:
        if isinstance(piece, int):
            continue
        if model is None or piece not in model.model_fields:
            break
        field = model.model_fields[piece]
        model = table_of(field.annotation) or table_of(next(iter(get_args(field.annotation)), None))
    return field


def _expected(loc: tuple[int | str, ...]) -> str:
    field = _field(loc)
    if field is None:
        return "another value"
    if field.description:
        return str(field.description)
    choices = [c for arg in (field.annotation, *get_args(field.annotation)) for c in get_args(arg)]
    texts = [c for c in choices if isinstance(c, str)] or [
        c for c in get_args(field.annotation) if isinstance(c, str)
    ]
    return "one of " + ", ".join(f'"{t}"' for t in texts)


def _nearest_key(loc: tuple[int | str, ...]) -> str:
    model: type[BaseModel] = ClusterSpec
    for piece in loc[:-1]:
        if isinstance(piece, str) and piece in model.model_fields:
            table = table_of(model.model_fields[piece].annotation)
            if table is not None:
                model = table
    known = sorted(model.model_fields)
    close = difflib.get_close_matches(str(loc[-1]), known, n=1, cutoff=0.6)
    hint = f'; did you mean "{close[0]}"?' if close else ""
    return f"{hint} (known here: {', '.join(known)})"


def _nearest_value(item: Any, found: object) -> str:
    choices = re.findall(r"'([^']*)'", str(item["ctx"]["expected"]))
    close = difflib.get_close_matches(str(found), choices, n=1, cutoff=0.6)
    return f'; did you mean "{close[0]}"?' if close else ""
