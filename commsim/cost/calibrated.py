"""What a calibration adds to a profile's constants, and how a prediction uses it.

    duration = formula(constants) x correction(size)

The constants are the machine's own. The correction is what the formulas still miss there, for one
operation, algorithm and protocol: a factor that is smooth in the ln of what one rank sends another
at once, fades away from what was measured, and never makes more bytes faster where they are not by
the formula. It is kept at message sizes, a posterior mean (commsim.calibration.smooth).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import Any

from commsim.collectives.collective import SHARED
from commsim.units import KIB, MIB, Bytes, Seconds, format_size

WIDEN = 1.5
"""Factor on the interval (in ln) for each way in which a case lies outside the measurements."""
BESIDE = 2
"""How far beyond the sizes measured a size still counts as one of them."""


def regime(nbytes: float) -> str:
    """latency up to 64 KiB, bandwidth from 16 MiB, middle between."""
    return "latency" if nbytes <= 64 * KIB else "bandwidth" if nbytes >= 16 * MIB else "middle"


def class_of(nodes: int, nbytes: float) -> str:
    """ "one node/latency" ... : what a spread belongs to."""
    return f"{'multi-node' if nodes > 1 else 'one node'}/{regime(nbytes)}"


def calibrated_class(nodes: int, nbytes: float) -> str:
    """The same, of what a profile was calibrated on; "calibrated" alone is all of it."""
    return f"calibrated/{class_of(nodes, nbytes)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What a calibration tells apart: `hardware` as generation/link/transport; the group's ranks
    and nodes (NVLink domains, or machines); what the library chose; its version and the variables
    that change how bytes move."""

    hardware: str
    operation: str
    ranks: int
    nodes: int
    algorithm: str
    protocol: str
    setting: tuple[str, ...] = ()

    def __str__(self) -> str:
        nodes = "1 node" if self.nodes == 1 else f"{self.nodes} nodes"
        return f"{self.operation} of {self.ranks} ranks on {nodes} ({self.hardware})"


def any_group(case: Case) -> Case:
    """The same choice, whatever group makes it and in whatever setting."""
    return replace(case, ranks=0, nodes=0, setting=())


def any_choice(case: Case) -> Case:
    """The same group, whatever it chose."""
    return replace(case, algorithm="", protocol="")


def sorted_cases(known: Iterable[Case]) -> dict[Case, list[Case]]:
    """Cases by their choice."""
    found: dict[Case, list[Case]] = {}
    for case in known:
        found.setdefault(any_group(case), []).append(case)
    return found


def closest(case: Case, known: Mapping[Case, Sequence[Case]]) -> Case | None:
    """Of `sorted_cases`, what a case is or is most like: the same choice before any choice, then
    the setting with the fewest words that differ, then the nearest group, by the factor in ranks
    times that in nodes; one machine and several are not alike. None where its operation was not
    measured on its hardware.

    What the formulas miss on four nodes is taken to be missed on forty: it goes with hops and
    links, which they count. On the published runs that predicts eight nodes from fewer better than
    what all groups have in common (docs/calibration.md).
    """
    for choice in (any_group(case), any_choice(any_group(case))):
        groups = [c for c in known.get(choice, ()) if c.ranks and (c.nodes > 1) == (case.nodes > 1)]
        if groups:
            return min(groups, key=lambda c: _apart(c, case))
        if choice in known:
            return choice
    return None


def _apart(a: Case, b: Case) -> tuple[int, float]:
    return (
        len({*a.setting} ^ {*b.setting}),
        abs(math.log(a.ranks / b.ranks)) + abs(math.log(a.nodes / b.nodes)),
    )


def message(case: Case, nbytes: Any) -> Any:
    """Bytes that one rank sends another at once, of nccl-tests' size: a rank's part of it where
    the operation, or a ring, cuts it into one for each."""
    return nbytes / max(1, parts(case))


def parts(case: Case) -> int:
    """Into how many messages the size is cut."""
    cut = case.operation in SHARED or (case.operation, case.algorithm) == ("all_reduce", "ring")
    return case.ranks if cut else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """ln(measured / formula) at `sizes` (bytes of a message, growing).

    ranks, nodes: 0 for what every group of this operation on this hardware has in common, in every
    setting; algorithm, protocol: "" for what every choice has.
    """

    hardware: str
    operation: str
    algorithm: str
    protocol: str
    ranks: int
    nodes: int
    sizes: tuple[int, ...]
    logs: tuple[float, ...]
    setting: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0 < len(self.sizes) == len(self.logs):
            raise ValueError("expected as many sizes as logs, and one at least")
        if list(self.sizes) != sorted(set(self.sizes)) or self.sizes[0] < 1:
            raise ValueError("expected growing sizes from 1 byte")


@dataclass(frozen=True, slots=True, kw_only=True)
class Covered:
    """What was measured of one operation on one hardware: pairs are the least and the most;
    settings: each one's words, with spaces between."""

    hardware: str
    operation: str
    ranks: tuple[int, int]
    nodes: tuple[int, int]
    sizes: tuple[int, int]
    points: int
    settings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """How far predictions are off on points that the fit did not see, as shares (1 = 100 %).

    left_out: what was held back together, "size", "operation" or "nodes". group: of which points.
    worst_tenth: the error that a tenth of the points exceed. bias: geometric mean of predicted
    over measured.
    """

    left_out: str
    group: str
    points: int
    median: float
    mean: float
    worst_tenth: float
    bias: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlier:
    """A measurement that nothing near it supports. where: file:line; durations in s."""

    where: str
    what: str
    measured: Seconds
    predicted: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Learnt:
    """One constant before and after: factor on the base's value, standard errors of its ln."""

    name: str
    meaning: str
    factor: float
    before: float
    after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """How well a calibration holds, and what it cannot tell.

    measurements went in, of which repeats and in-place halves make one of `points` each. fitted:
    median error on the points of the fit, no measure of trust. undetermined: what the measurements
    do not tell, one sentence each.
    """

    measurements: int
    points: int
    fitted: float
    held_out: tuple[HeldOut, ...] = ()
    learnt: tuple[Learnt, ...] = ()
    undetermined: tuple[str, ...] = ()
    outliers: tuple[Outlier, ...] = ()

    def error(self, left_out: str = "size", group: str = "all") -> float:
        """The median held-out error as a share; nan where nothing could be held back."""
        for row in self.held_out:
            if (row.left_out, row.group) == (left_out, group):
                return row.median
        return math.nan

    def __str__(self) -> str:
        """One line: `median error 1.8% on the 32 points of the fit; held out by size 4.6%`."""
        held = [
            f"by {row.left_out} {row.median:.1%}" for row in self.held_out if row.group == "all"
        ]
        trust = f"held out {', '.join(held)}" if held else "nothing could be held out"
        return f"median error {self.fitted:.1%} on the {self.points} points of the fit; {trust}"


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """A profile's own measurements: what they cover, what they correct, what they prove.

    made: the date. commsim: the version that made it. base: the profile it started from. files:
    where the measurements came from.
    """

    made: str
    commsim: str
    base: str
    files: tuple[str, ...]
    covered: tuple[Covered, ...]
    report: Report
    corrections: tuple[Correction, ...] = ()
    _tables: dict[Hashable, Table] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def _by_case(self) -> dict[Case, Correction]:
        return {
            Case(
                hardware=c.hardware, operation=c.operation, ranks=c.ranks, nodes=c.nodes,
                algorithm=c.algorithm, protocol=c.protocol, setting=c.setting,
            ): c
            for c in self.corrections
        }  # fmt: skip

    @cached_property
    def _sorted(self) -> dict[Case, list[Case]]:
        return sorted_cases(self._by_case)

    def correction(self, case: Case) -> Correction | None:
        """Of this very case, or of the closest that was measured; None where nothing is known."""
        near = closest(case, self._sorted)
        return None if near is None else self._by_case[near]

    def factor(
        self,
        case: Case,
        nbytes: Bytes,
        curve: Callable[[int], Seconds],
        key: Hashable,
    ) -> float:
        """What the formula's duration at `nbytes` is to be multiplied by.

        curve: the formula's duration at a size. key: names the curve, of which a table is kept.
        """
        found = self.correction(case)
        if found is None or nbytes < 1:
            return 1.0
        table = self._tables.get(key)
        if table is None:
            table = self._tables[key] = table_of(found, curve, max(1, parts(case)))
        return math.exp(table.log(nbytes, curve))


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A correction over one curve: ln sizes (of the operation), ln of the formula there, ln
    factors."""

    sizes: tuple[float, ...]
    formula: tuple[float, ...]
    logs: tuple[float, ...]

    def log(self, nbytes: Bytes, curve: Callable[[int], Seconds]) -> float:
        """ln of the factor at `nbytes`.

        Between two sizes a growing factor is linear in ln(size); a shrinking one is linear in
        ln(formula), so that it shrinks no faster than the formula grows.
        """
        x = math.log(nbytes)
        i = bisect_right(self.sizes, x)
        if i == 0 or i == len(self.sizes):
            return self.logs[max(0, i - 1)]
        low, high = self.logs[i - 1], self.logs[i]
        along, at = (self.sizes, x) if high >= low else (self.formula, math.log(curve(nbytes)))
        width = along[i] - along[i - 1]
        share = min(1.0, max(0.0, (at - along[i - 1]) / width)) if width > 0 else 0.0
        return low + share * (high - low)


def table_of(correction: Correction, curve: Callable[[int], Seconds], parts: int = 1) -> Table:
    """The correction over `curve`, lowered where the product would fall with the size and the
    formula does not (a transport may be slow with its shortest messages). parts: messages that a
    size is cut into."""
    sizes = [size * parts for size in correction.sizes]
    formula = [math.log(curve(size)) for size in sizes]
    level = growing(formula)
    kept = growing([g + c for g, c in zip(level, correction.logs, strict=True)])
    kept = [k + f - g for k, f, g in zip(kept, formula, level, strict=True)]
    return Table(
        sizes=tuple(math.log(size) for size in sizes),
        formula=tuple(formula),
        logs=tuple(k - f for k, f in zip(kept, formula, strict=True)),
    )


def growing(values: Sequence[float]) -> list[float]:
    """No value above one that follows: what fewer bytes take is at most what more take, as they
    could be sent as more, and a disturbance only adds time."""
    return list(accumulate(reversed(values), min))[::-1]


def uncovered(covered: Iterable[Covered], case: Case, nbytes: Bytes) -> tuple[str, ...] | None:
    """In what a case lies outside what was measured, a sentence each; None where its operation was
    not measured on its hardware at all."""
    near = [c for c in covered if (c.hardware, c.operation) == (case.hardware, case.operation)]
    if not near:
        return None
    (c,) = near
    found = []
    if not c.nodes[0] <= case.nodes <= c.nodes[1]:
        found.append(f"{case.nodes} nodes: the profile was calibrated on {_range(c.nodes)}")
    elif not c.ranks[0] <= case.ranks <= c.ranks[1]:
        found.append(f"{case.ranks} ranks: the profile was calibrated on {_range(c.ranks)}")
    if nbytes and not c.sizes[0] / BESIDE <= nbytes <= c.sizes[1] * BESIDE:
        sizes = " to ".join(format_size(size) for size in dict.fromkeys(c.sizes))
        found.append(f"{format_size(nbytes)}: the profile was calibrated on {sizes}")
    known = [{*text.split()} for text in c.settings]
    if known and (new := sorted({*case.setting}.difference(*known))):
        found.append(f"{' '.join(new)}: the profile was calibrated on {'; '.join(c.settings)}")
    elif known and (gone := sorted(set.intersection(*known) - {*case.setting})):
        found.append(f"without {' '.join(gone)}: the profile was calibrated with it")
    return tuple(found)


def _range(ends: tuple[int, int]) -> str:
    low, high = ends
    return str(low) if low == high else f"{low} to {high}"
