"""The contract of a reader: from the text of a file to rows, or to what is wrong with it.

A reader is a module of `readers/` with `recognises(text) -> bool`, which is cheap, and
`read(text, name) -> Iterator[Row | Problem]`. It knows one format and nothing of clusters.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from commsim.collectives.collective import bus_factor
from commsim.units import Bytes, BytesPerSecond, Seconds


class Row(NamedTuple):
    """One figure of a file; `n_ranks` and `nodes` are None where the file does not say.

    `per_rank`: the size is what one rank has for one other, so commsim's is that times the ranks.
    """

    line: int
    operation: str
    nbytes: Bytes
    duration: Seconds
    n_ranks: int | None
    nodes: int | None = None
    dtype: str = "float32"
    reduce_op: str = "sum"
    root: int | None = None
    in_place: bool = False
    wrong: int | None = None
    source: tuple[tuple[str, str], ...] = ()
    samples: tuple[Seconds, ...] = ()
    per_rank: bool = False


class Problem(NamedTuple):
    """What is wrong with one line: what was expected, what was found."""

    line: int
    message: str


def number(text: object) -> float | None:
    """A figure that is not negative; None for `N/A` or nothing. Raises ValueError."""
    if isinstance(text, str) and text.strip().upper() in ("", "N/A", "NA", "NONE", "NULL", "-"):
        return None
    if text is None:
        return None
    if isinstance(text, bool) or not isinstance(text, (str, int, float)):
        raise ValueError(f"a number, got {str(text)[:40]!r}")
    try:
        found = float(text)
    except (ValueError, OverflowError):
        raise ValueError(f"a number, got {str(text)[:40]!r}") from None
    if not 0 <= found < math.inf:
        raise ValueError(f"a number >= 0, got {str(text)[:40]!r}")
    return found


def duration_of(
    time: Seconds | None,
    algorithm_bandwidth: BytesPerSecond | None,
    bus_bandwidth: BytesPerSecond | None,
    operation: str,
    nbytes: Bytes,
    n_ranks: int | None,
) -> tuple[Seconds | None, str]:
    """Seconds, and what they are from: the time, else the more telling of the two bandwidths.

    Logs print bandwidths with two decimals, so the larger number is the more precise one.
    None where nothing but N/A, or nothing but 0.00, is given. Raises ValueError where a bus
    bandwidth is all there is and the number of ranks is not known.
    """
    if time:
        return time, "time"
    if algorithm_bandwidth and (not bus_bandwidth or algorithm_bandwidth >= bus_bandwidth):
        return nbytes / algorithm_bandwidth, "algbw"
    if bus_bandwidth and n_ranks is not None:
        return nbytes * bus_factor(operation, n_ranks) / bus_bandwidth, "busbw"
    if algorithm_bandwidth:
        return nbytes / algorithm_bandwidth, "algbw"
    if bus_bandwidth:
        raise ValueError("the number of ranks, as only busbw is given; pass cluster=, got none")
    return None, ""
