"""Constants with a birthplace: what measurements or data sheets taught the cost model."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from commsim.errors import ProfileError

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
            found = {}
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
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ProfileError(f"{path}: not a TOML profile: {error}") from error
        if data.get("format") != FORMAT:
            raise ProfileError(
                f"{path}: format: expected {FORMAT}, got {data.get('format')!r}; "
                "save it again with this version of commsim"
            )
        try:
            return cls(
                name=data["name"],
                source=data["source"],
                constants={n: Constant(**c) for n, c in data["constants"].items()},
                spreads={n: Spread(**s) for n, s in data["spreads"].items()},
                fitted={n: tuple(v) for n, v in data["fitted"].items()},
            )
        except (KeyError, TypeError) as error:
            raise ProfileError(f"{path}: incomplete profile: {error}") from error

    def save(self, path: str | Path) -> None:
        """Writes the profile as TOML."""
        Path(path).write_text(to_toml(self), encoding="utf-8")


def _text(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def to_toml(profile: Profile) -> str:
    """The profile's file: one table a constant, floats with six significant digits."""
    lines = [
        f"format = {FORMAT}",
        f"name = {_text(profile.name)}",
        f"source = {_text(profile.source)}",
        "",
        "[fitted]",
        *(
            f"{kind} = [{', '.join(_text(t) for t in tags)}]"
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
            lines.append(f"by.{kind} = {{ {pairs} }}")
    for name, s in profile.spreads.items():
        lines += [
            "",
            f"[spreads.{_text(name)}]",
            f"low = {s.low:.4g}",
            f"high = {s.high:.4g}",
            f"points = {s.points}",
        ]
    # a float such as 1e-06 or 3 must stay a float
    return "\n".join(lines) + "\n"


@lru_cache(maxsize=8)
def shipped(name: str) -> Profile:
    """A profile that comes with commsim."""
    return Profile.load(_SHIPPED / f"{name}.toml")
