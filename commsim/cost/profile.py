"""Constants with a birthplace: what measurements or data sheets taught the cost model."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from commsim.errors import ProfileError

_V = TypeVar("_V")

FORMAT = 1
_SHIPPED = Path(__file__).with_name("profiles")


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """One number of the model: value x factors.

    by: for every kind of tag (generation, transport ...) the factor of each tag that was fitted; a
    tag that is missing has factor 1. limits: what physics allows. error: standard error of
    ln(value) in the fit.
    """

    value: float
    unit: str
    meaning: str
    birthplace: str
    error: float = 0.0
    limits: tuple[float, float] = (0.0, math.inf)
    by: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Left-out residuals of one class of points: quantiles of ln(measured / predicted)."""

    low: float
    high: float
    points: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Profile:
    """Constants, how far predictions with them may be trusted, and what they were fitted on.

    spreads: by "nodes class/regime" ("one node/latency" ...). fitted: for every kind of tag the
    tags present in the fit, and "max_nodes", "max_ranks".
    """

    name: str
    source: str
    constants: Mapping[str, Constant]
    spreads: Mapping[str, Spread]
    fitted: Mapping[str, tuple[str, ...]]
    _resolved: dict[Any, dict[str, float]] = field(default_factory=dict, repr=False)

    def values(self, tags: tuple[tuple[str, str], ...]) -> dict[str, float]:
        """Every constant for hardware with these (kind, tag) pairs, in base units."""
        found = self._resolved.get(tags)
        if found is None:
            found = Known(f"profile {self.name}: constants", {})
            for name, constant in self.constants.items():
                value = constant.value
                for kind, tag in tags:
                    factors = constant.by.get(kind)
                    if factors:
                        value *= factors.get(tag, 1.0)
                low, high = constant.limits
                found[name] = min(max(value, low), high)
            self._resolved[tags] = found
        return found

    @classmethod
    def load(cls, path: str | Path) -> Profile:
        """A profile from its TOML file. Raises ProfileError naming file and key."""
        try:
            data = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise ProfileError(
                f"{path}: cannot be read ({error.strerror}); name a profile file"
            ) from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ProfileError(f"{path}: not a TOML profile: {error}") from error
        if data.get("format") != FORMAT:
            raise ProfileError(
                f"{path}: format: expected {FORMAT}, got {data.get('format')!r}; "
                "save it again with this version of commsim"
            )
        try:
            return cls(
                name=_is_text(data, "name"),
                source=_is_text(data, "source"),
                constants=Known(
                    f"{path}: constants",
                    {n: _constant(n, c) for n, c in _table(data, "constants").items()},
                ),
                spreads=Known(
                    f"{path}: spreads",
                    {n: _spread(n, s) for n, s in _table(data, "spreads").items()},
                ),
                fitted={n: _texts(n, v) for n, v in _table(data, "fitted").items()},
            )
        except ProfileError as error:
            raise ProfileError(f"{path}: {error}; save it again with commsim") from None

    def save(self, path: str | Path) -> None:
        """Writes the profile as TOML. Raises ProfileError where it cannot be written."""
        try:
            Path(path).write_text(to_toml(self), encoding="utf-8")
        except OSError as error:
            raise ProfileError(
                f"{path}: cannot be written ({error.strerror}); name a file in an existing folder"
            ) from error


class Known(dict[str, _V]):
    """A table of a profile; a key that it lacks is a ProfileError, not a KeyError."""

    def __init__(self, where: str, values: Mapping[str, _V]) -> None:
        dict.__init__(self, values)
        self.where = where

    def __missing__(self, key: str) -> _V:
        raise ProfileError(
            f"{self.where}: {key!r} is missing; use a profile made for this library and version"
        )


# ---- the checks of a file ----


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
    by = {
        kind: {
            tag: _number(f"{where}.by.{kind}.{tag}", factor)
            for tag, factor in _table(_table(table, "by"), kind).items()
        }
        for kind in (_table(table, "by") if "by" in table else ())
    }
    return Constant(
        value=value, unit=_is_text(table, "unit"), meaning=_is_text(table, "meaning"),
        birthplace=_is_text(table, "birthplace"), by=by, limits=(low, high),
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


# ---- writing ----


def _text(value: str) -> str:
    """A TOML string: JSON's escapes are TOML's, but for DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _text(name)


def to_toml(profile: Profile) -> str:
    """The profile's file: one table a constant, floats with six significant digits."""
    lines = [
        f"format = {FORMAT}",
        f"name = {_text(profile.name)}",
        f"source = {_text(profile.source)}",
        "",
        "[fitted]",
        *(
            f"{_key(kind)} = [{', '.join(_text(t) for t in tags)}]"
            for kind, tags in profile.fitted.items()
        ),
    ]
    for name, c in profile.constants.items():
        lines += [
            "",
            f"[constants.{_text(name)}]",
            f"value = {c.value:.6g}",
            f"unit = {_text(c.unit)}",
            f"meaning = {_text(c.meaning)}",
            f"birthplace = {_text(c.birthplace)}",
            f"error = {c.error:.3g}",
            f"limits = [{c.limits[0]:.6g}, {c.limits[1]:.6g}]",
        ]
        for kind, factors in c.by.items():
            pairs = ", ".join(f"{_text(t)} = {v:.5g}" for t, v in factors.items())
            lines.append(f"by.{_key(kind)} = {{ {pairs} }}")
    for name, s in profile.spreads.items():
        lines += [
            "",
            f"[spreads.{_text(name)}]",
            f"low = {s.low:.4g}",
            f"high = {s.high:.4g}",
            f"points = {s.points}",
        ]
    return "\n".join(lines) + "\n"


@lru_cache(maxsize=8)
def shipped(name: str) -> Profile:
    """A profile that comes with commsim."""
    return Profile.load(_SHIPPED / f"{name}.toml")
