"""Every error that commsim raises on purpose. All derive from CommsimError.

A message says where, what was found, what was expected and what to do, in one line
(SpecError: one line per problem).
"""

from __future__ import annotations

import difflib
import heapq
from collections.abc import Iterable


class CommsimError(Exception):
    """Base of all errors a caller may want to catch together."""


class SpecError(CommsimError, ValueError):
    """A cluster file, topology file or other input that cannot be read; carries every problem."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems: tuple[str, ...] = tuple(problems)
        super().__init__("\n".join(self.problems))


class UnnamedGpuError(SpecError):
    """A topology file that does not name its GPU, nor tell its compute capability."""


class UnitError(CommsimError, ValueError):
    """Text that is not a quantity, or a bare number where a unit is needed."""


_ALIKE = 0.5  # likeness from which a known name is worth asking about
_FEW = 12  # names that a message may list
_NEAREST = 3  # of more than those


def _likeness(name: str, known: str) -> float:
    """0 to 1: how alike two names are; a little less where only a part of `known` is."""
    if name and name.lower() in known.lower():
        return 0.95 + 0.05 * len(name) / len(known)
    matcher = difflib.SequenceMatcher(None, "", name.lower())
    found = []
    for length, weight in ((len(known), 1.0), (len(name), 0.95), (len(name) + 1, 0.95)):
        matcher.set_seq1(known[:length].lower())
        found.append(weight * matcher.ratio())
    return max(found)


class UnknownNameError(CommsimError, LookupError):
    """A name that no catalogue holds; the message lists the known names, of many the nearest.

    where: a command that lists all, or another way to them.
    """

    def __init__(self, kind: str, name: str, known: Iterable[str], where: str = "") -> None:
        names = sorted(set(known))
        likeness = {known: _likeness(name, known) for known in names}
        alike = heapq.nlargest(_NEAREST, names, key=likeness.__getitem__)
        self.nearest = next((known for known in alike if likeness[known] >= _ALIKE), None)
        hint = f"; did you mean {self.nearest!r}?" if self.nearest else ""
        if len(names) <= _FEW:
            listed = f"known: {', '.join(names)}"
        else:
            listed = f"nearest of {len(names):,}: {', '.join(alike)}"
            listed += f"; all: {where}" if where else ""
        super().__init__(f"unknown {kind} {name!r}{hint} ({listed})")


class CollectiveError(CommsimError, ValueError):
    """An operation that cannot be asked for: wrong rank, size, root, dtype or group."""


class LayoutError(CommsimError, ValueError):
    """A parallel layout that no framework would start; carries every rule it breaks."""

    def __init__(self, problems: Iterable[str], advice: str = "") -> None:
        self.problems: tuple[str, ...] = tuple(problems)
        super().__init__("\n".join((*self.problems, advice) if advice else self.problems))


class PlanError(CommsimError, ValueError):
    """A plan that cannot be made: a bad question, or a cluster too small for the model.

    least_gpus: how many GPUs would do, where that is what is missing.
    """

    def __init__(self, message: str, least_gpus: int | None = None) -> None:
        super().__init__(message)
        self.least_gpus = least_gpus


class UnreachableError(CommsimError, RuntimeError):
    """Two ranks with no path between them."""


class LibraryError(CommsimError, ValueError):
    """A library setting that the library itself would refuse (NCCL_ALGO with nothing left, say)."""


class ProfileError(CommsimError, ValueError):
    """A profile file that cannot be used."""


class CalibrationError(CommsimError, ValueError):
    """Measurements that no profile can be fitted to: none, of no cluster, of several libraries."""


class PictureError(CommsimError, ValueError):
    """A picture or report cannot be drawn: its file, or a package that it needs."""


class ExploreError(CommsimError, ValueError):
    """The local web page cannot be served, or was asked what it cannot answer."""


class DiagnosisError(CommsimError, ValueError):
    """Measurements that cannot be diagnosed: none, or none that the cluster can run."""


class ScheduleError(CommsimError, ValueError):
    """A schedule that does not compute its collective, or cannot be built; names op and rank."""


class ModelError(CommsimError, ValueError):
    """A model description that cannot be read; carries every problem."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems: tuple[str, ...] = tuple(problems)
        super().__init__("\n".join(self.problems))


class ConditionError(CommsimError, ValueError):
    """A disturbance that cannot be simulated: a negative delay, a rank that does not exist."""


class TimeLimitError(CommsimError, TimeoutError):
    """A simulation that was stopped before its end: its time limit is over."""


class MeasureError(CommsimError, RuntimeError):
    """A run on real hardware that cannot begin: a package, a device or a free file is missing."""


class BrokenRunError(CommsimError, RuntimeError):
    """A run on real hardware that was cut short: a rank died or hung, or the disk is full."""
