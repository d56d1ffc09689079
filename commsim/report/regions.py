"""The choice of a library over all sizes, as regions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from commsim.report.explanation import switch_points
from commsim.units import GIB, Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """From `low` to before `high` bytes one algorithm and protocol (`choice`) is taken."""

    low: Bytes
    high: Bytes
    choice: str


def regions_of(
    choose: Callable[[Bytes], tuple[str, str]], *, low: Bytes = 8, high: Bytes = 8 * GIB
) -> tuple[Region, ...]:
    """The regions of `choose` (algorithm and protocol of a size) from `low` to `high` bytes."""
    begin, choice, found = low, choose(low), []
    for switch in switch_points(choose, low=low, high=high):
        found.append(Region(low=begin, high=switch.nbytes, choice=_words(choice)))
        begin, choice = switch.nbytes, switch.after
    return (*found, Region(low=begin, high=high, choice=_words(choice)))


def _words(choice: tuple[str, str]) -> str:
    return "/".join(filter(None, choice))
