"""A value of the JSON as a reader wants it: the unit is in its key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from commsim.units import format_rate, format_size, format_time

SHARES = {
    "mfu", "likelihood", "bottleneck_share", "median", "mean", "worst_tenth", "fitted", "inside",
    "utilization", "before", "after", "tolerance", "communication_share",
}  # fmt: skip
"""Keys of numbers that are shares of one."""
DAY = 86400.0
UNITS = ("bytes_per_s", "per_s_per_gpu", "per_s", "bytes", "s")
"""Endings of keys that name a unit, the longest first."""


def words(path: str, value: Any) -> str:
    """The value at a path of the JSON as text: `1.5 GiB` for bytes, `12.3 us` for s, `41.2 %`."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case int() | float():
            return _number(_unit(path), value)
        case str():
            return value
        case Mapping():
            return ", ".join(f"{k}={words(f'{path}/{k}', v)}" for k, v in value.items())
        case Sequence():
            return "; ".join(words(f"{path}/{i}", v) for i, v in enumerate(value))
    return str(value)


def _unit(path: str) -> str:
    """The unit of the innermost key that names one: of breakdown_s/launch it is s."""
    for key in reversed(path.split("/")):
        if key in SHARES:
            return "share"
        for suffix in UNITS:
            if key == suffix == "bytes" or key.endswith(f"_{suffix}"):
                return suffix
    return ""


def _time(value: float) -> str:
    """Of two days and more in days: nobody reads millions of seconds."""
    days = value / DAY
    if days < 2:
        return format_time(value)
    return f"{days:,.0f} days" if days >= 1000 else f"{days:.4g} days"


def _number(unit: str, value: float) -> str:
    match unit:
        case "bytes_per_s":
            return format_rate(value)
        case "bytes":
            return ("-" if value < 0 else "") + format_size(round(abs(value)))
        case "s":
            return ("-" if value < 0 else "") + _time(abs(value))
        case "share":
            return f"{100 * value:.4g} %"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"
