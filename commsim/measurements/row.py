"""The contract of a reader: from the text of a file to rows, or to what is wrong with it.

A reader is a module of `readers/` with `recognises(text) -> bool`, which is cheap, and
`read(text, name) -> Iterator[Row | Problem]`. It knows one format and nothing of clusters.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from commsim.collectives.collective import bus_factor
from commsim.units import Bytes, BytesPerSecond, Seconds

_NOTHING = frozenset({"", "N/A", "NA", "NONE", "NULL", "-"})


class Row(NamedTuple):
    """One figure of a file; `n_ranks` and `nodes` are None where the file does not say.

    `per_rank`: the size is what one rank has for one other, so commsim's is that times the ranks.
    `ranks`: the group, where the file names it. `library`: what ran, as `gloo@2.13`; `local`: ranks
    of a run whose processes had one machine's CPUs to talk over (0: the file does not say so).
    """

    line: int
    duration: Seconds
    operation: str
    nbytes: Bytes
    n_ranks: int | None
    nodes: int | None = None
    dtype: str = "float32"
    reduce_op: str = "sum"
    root: int | None = None
    per_rank: bool = False
    in_place: bool = False
    wrong: int | None = None
    source: tuple[tuple[str, str], ...] = ()
    samples: tuple[Seconds, ...] = ()
    ranks: tuple[int, ...] | None = None
    library: str = ""
    local: int = 0

    @property
    def asked(self) -> tuple[object, ...]:
        """All that makes the collective."""
        return (*self[2:10], self.ranks)


class Problem(NamedTuple):
    """What is wrong with one line: what was expected, what was found."""

    line: int
    message: str


def number(text: object) -> float | None:
    """A figure that is not negative; None for `N/A` or nothing. Raises ValueError."""
    try:
        found = float(text)  # type: ignore[arg-type]  # what is no number is told below
    except (TypeError, ValueError, OverflowError):
        if text is None or (isinstance(text, str) and text.strip().upper() in _NOTHING):
            return None
        raise ValueError(f"a number, got {str(text)[:40]!r}") from None
    if not 0 <= found < math.inf or isinstance(text, bool):
        raise ValueError(f"a number >= 0, got {str(text)[:40]!r}")
    return found


def duration_of(
    algorithm_bandwidth: BytesPerSecond,
    bus_bandwidth: BytesPerSecond,
    operation: str,
    nbytes: Bytes,
    n_ranks: int | None,
) -> tuple[Seconds, str]:
    """Seconds, and which bandwidth they are from; 0 where both are 0 (not given, or 0.00).

    Logs print bandwidths with two decimals, so the larger number is the more precise one. Raises
    ValueError where a bus bandwidth is all there is and the number of ranks is not known.
    """
    if bus_bandwidth > algorithm_bandwidth and n_ranks is not None and n_ranks > 1:
        return nbytes * bus_factor(operation, n_ranks) / bus_bandwidth, "busbw"
    if algorithm_bandwidth:
        return nbytes / algorithm_bandwidth, "algbw"
    if bus_bandwidth:
        raise ValueError(
            'the number of ranks in the file (a column ranks, a line "# 2 nodes, 16 ranks"), as '
            "there is only busbw, got none"
        )
    return 0.0, ""
