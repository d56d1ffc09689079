"""Constants with a birthplace: what measurements or data sheets taught the cost model."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from commsim.cost import profile_file
from commsim.cost.calibrated import Calibration, Report
from commsim.cost.constant import Constant, Known, Spread
from commsim.errors import ProfileError

__all__ = ["Constant", "Known", "Profile", "Spread", "shipped", "to_toml"]

_SHIPPED = Path(__file__).with_name("profiles")


@dataclass(frozen=True, kw_only=True, eq=False)
class Profile:
    """Constants, how far predictions with them may be trusted, and what they were fitted on.

    spreads: by "nodes class/regime" ("one node/latency" ...). fitted: for every kind of tag the
    tags present in the fit, and "max_nodes", "max_ranks". calibration: measurements of the user's
    own that moved the constants, and what is corrected beyond them.
    """

    name: str
    source: str
    constants: Mapping[str, Constant]
    spreads: Mapping[str, Spread]
    fitted: Mapping[str, tuple[str, ...]]
    calibration: Calibration | None = None
    _resolved: dict[Any, dict[str, float]] = field(default_factory=dict, repr=False, init=False)

    @property
    def report(self) -> Report | None:
        """Held-out error, outliers and what the measurements do not tell; None for a profile that
        was not calibrated."""
        return self.calibration.report if self.calibration else None

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
            read = Path(path).read_text(encoding="utf-8")
        except OSError as error:
            raise ProfileError(
                f"{path}: cannot be read ({error.strerror}); name a profile file"
            ) from error
        except UnicodeDecodeError as error:
            raise ProfileError(f"{path}: not a TOML profile: {error}") from error
        return cls.read(read, str(path))

    @classmethod
    def read(cls, text: str, where: str = "profile") -> Profile:
        """A profile from the text of its file, named `where` in a ProfileError."""
        try:
            data = tomllib.loads(text)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise ProfileError(f"{where}: not a TOML profile: {error}") from error
        return cls(**profile_file.check(data, where))

    def save(self, path: str | Path, overwrite: bool = True) -> None:
        """Writes the profile as TOML. Raises ProfileError where it cannot be written, and where a
        file is there already that `overwrite` protects."""
        mode = "w" if overwrite else "x"
        try:
            with Path(path).open(mode, encoding="utf-8") as file:
                file.write(to_toml(self))
        except FileExistsError as error:
            raise ProfileError(
                f"{path}: is there already; name another file, or overwrite it"
            ) from error
        except OSError as error:
            raise ProfileError(
                f"{path}: cannot be written ({error.strerror}); name a file in an existing folder"
            ) from error


def to_toml(profile: Profile) -> str:
    """The profile's file."""
    lines = list(profile_file.lines_of_head(profile.name, profile.source, profile.fitted))
    for name, constant in profile.constants.items():
        lines += profile_file.lines_of_constant(name, constant)
    for name, spread in profile.spreads.items():
        lines += profile_file.lines_of_spread(name, spread)
    if profile.calibration:
        lines += profile_file.lines_of_record("calibration", profile.calibration)
    return "\n".join(lines) + "\n"


@lru_cache(maxsize=8)
def shipped(name: str) -> Profile:
    """A profile that comes with commsim."""
    return Profile.load(_SHIPPED / f"{name}.toml")
