"""The file of a profile: TOML, checked on the way in, one table a constant on the way out."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from commsim.cost.calibrated import Calibration
from commsim.cost.constant import Constant, Known, Spread
from commsim.errors import ProfileError

FORMAT = 3
"""Written. 2 has what 1 has not: `machines` of a constant and a profile's `calibration`; in 3 its
corrections are by the size of a message."""
READABLE = (1, 2, 3)


def check(data: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The fields of a Profile from a file's tables. Raises ProfileError naming `where` and key."""
    if data.get("format") not in READABLE:
        known = " or ".join(map(str, READABLE))
        raise ProfileError(
            f"{where}: format: expected {known}, got {data.get('format')!r}; "
            "save it again with this version of commsim"
        )
    if "calibration" in data and data["format"] != FORMAT:
        raise ProfileError(
            f"{where}: format: expected {FORMAT} of a calibrated profile, got {data['format']}; "
            "calibrate again with this version of commsim"
        )
    try:
        return {
            "name": _is_text(data, "name"),
            "source": _is_text(data, "source"),
            "constants": Known(
                f"{where}: constants",
                {n: _constant(n, c) for n, c in _table(data, "constants").items()},
            ),
            "spreads": Known(
                f"{where}: spreads",
                {n: _spread(n, s) for n, s in _table(data, "spreads").items()},
            ),
            "fitted": {n: _texts(n, v) for n, v in _table(data, "fitted").items()},
            "calibration": _calibration(data["calibration"]) if "calibration" in data else None,
        }
    except ProfileError as error:
        raise ProfileError(f"{where}: {error}; save it again with commsim") from None


def _is_text(data: Mapping[str, Any], key: str) -> str:
    value = data.get(key)
    if not isinstance(value, str):
        raise ProfileError(f"{key}: expected text, got {value!r}")
    return value


def _table(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = data.get(key)
    if not isinstance(value, dict):
        raise ProfileError(f"{key}: expected a table, got {value!r}")
    return value


def _texts(key: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise ProfileError(f"fitted.{key}: expected a list of texts, got {value!r}")
    return tuple(value)


def _number(where: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
        raise ProfileError(f"{where}: expected a number, got {value!r}")
    return float(value)


def _only(where: str, given: object, cls: type) -> Mapping[str, Any]:
    """The table `given`, of whose keys `cls` knows every one."""
    if not isinstance(given, dict):
        raise ProfileError(f"{where}: expected a table, got {given!r}")
    names = {f.name for f in fields(cls)}
    if unknown := sorted(set(given) - names):
        raise ProfileError(f"{where}.{unknown[0]}: unknown key, expected {', '.join(names)}")
    return given


def _constant(name: str, given: object) -> Constant:
    where = f"constants.{name}"
    table = _only(where, given, Constant)
    value = _number(f"{where}.value", table.get("value"))
    limits = table.get("limits", [0.0, math.inf])
    if not isinstance(limits, list) or len(limits) != 2:
        raise ProfileError(f"{where}.limits: expected [low, high], got {limits!r}")
    low, high = (_number(f"{where}.limits", limit) for limit in limits)
    if low > high or not math.isfinite(value):
        raise ProfileError(f"{where}: expected a finite value and low <= high, got {given!r}")
    machines = _number(f"{where}.machines", table.get("machines", 0.0))
    if not 0 <= machines < math.inf:
        raise ProfileError(f"{where}.machines: expected a number from 0, got {machines!r}")
    by = {
        kind: {
            tag: _number(f"{where}.by.{kind}.{tag}", factor)
            for tag, factor in _table(_table(table, "by"), kind).items()
        }
        for kind in (_table(table, "by") if "by" in table else ())
    }
    return Constant(
        value=value, unit=_is_text(table, "unit"), meaning=_is_text(table, "meaning"),
        birthplace=_is_text(table, "birthplace"), by=by, limits=(low, high), machines=machines,
        # nan: the fit could not tell
        error=math.nan if _is_nan(table.get("error")) else _number(
            f"{where}.error", table.get("error", 0.0)
        ),
    )  # fmt: skip


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _spread(name: str, given: object) -> Spread:
    where = f"spreads.{name}"
    table = _only(where, given, Spread)
    low, high = (_number(f"{where}.{key}", table.get(key)) for key in ("low", "high"))
    points = _number(f"{where}.points", table.get("points"))
    if not low <= 0 <= high:
        raise ProfileError(f"{where}: expected low <= 0 <= high, got {low:g} and {high:g}")
    return Spread(low=low, high=high, points=int(points))


def _calibration(given: object) -> Calibration:
    from pydantic import TypeAdapter, ValidationError  # 0.1 s that other profiles do not need

    try:
        return TypeAdapter(Calibration).validate_python(given)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in ("calibration", *first["loc"]))
        raise ProfileError(f"{key}: {first['msg'].lower()}, got {first['input']!r:.60}") from None


# ---- writing ----


def text(value: str) -> str:
    """A TOML string: JSON's escapes are TOML's, but for DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else text(name)


def lines_of_constant(name: str, c: Constant) -> Iterator[str]:
    """One constant's table, floats with six significant digits."""
    yield f"\n[constants.{text(name)}]"
    yield f"value = {c.value:.6g}"
    yield f"unit = {text(c.unit)}"
    yield f"meaning = {text(c.meaning)}"
    yield f"birthplace = {text(c.birthplace)}"
    yield f"error = {c.error:.3g}"
    yield f"machines = {c.machines:.3g}"
    yield f"limits = [{c.limits[0]:.6g}, {c.limits[1]:.6g}]"
    for kind, factors in c.by.items():
        pairs = ", ".join(f"{text(t)} = {v:.5g}" for t, v in factors.items())
        yield f"by.{_key(kind)} = {{ {pairs} }}"


def lines_of_head(name: str, source: str, fitted: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """What a profile is, and on which hardware it was fitted."""
    yield f"format = {FORMAT}"
    yield f"name = {text(name)}"
    yield f"source = {text(source)}"
    yield "\n[fitted]"
    for kind, tags in fitted.items():
        yield f"{_key(kind)} = [{', '.join(text(t) for t in tags)}]"


def lines_of_spread(name: str, s: Spread) -> Iterator[str]:
    """One class's interval."""
    yield f"\n[spreads.{text(name)}]"
    yield f"low = {s.low:.4g}"
    yield f"high = {s.high:.4g}"
    yield f"points = {s.points}"


def lines_of_record(name: str, record: Any, head: str = "[{}]") -> Iterator[str]:
    """A dataclass as a table, the dataclasses in it as tables below it."""
    yield "\n" + head.format(name)
    below: list[tuple[str, Any, str]] = []
    for f in fields(record):
        value = getattr(record, f.name)
        if f.name.startswith("_"):
            continue
        if is_dataclass(value):
            below.append((f.name, value, "[{}]"))
        elif isinstance(value, tuple) and value and is_dataclass(value[0]):
            below += [(f.name, each, "[[{}]]") for each in value]
        else:
            yield f"{f.name} = {_value(value)}"
    for key, value, form in below:
        yield from lines_of_record(f"{name}.{key}", value, form)


def _value(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(_value(v) for v in value)}]"
    if isinstance(value, float):
        return f"{value:.5g}"
    return text(value) if isinstance(value, str) else str(value)
