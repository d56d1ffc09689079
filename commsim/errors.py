"""Every error that commsim raises on purpose. All derive from CommsimError.

A message says where, what was found, what was expected and what to do, in one line
(SpecError: one line per problem).
"""

from __future__ import annotations

import difflib
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


class UnknownNameError(CommsimError, LookupError):
    """A name that no catalogue holds; the message lists the known names and the nearest."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        close = difflib.get_close_matches(name.lower(), [n.lower() for n in names], n=1, cutoff=0.5)
        nearest = next((n for n in names if close and n.lower() == close[0]), None)
        hint = f"; did you mean {nearest!r}?" if nearest else ""
        super().__init__(f"unknown {kind} {name!r}{hint} (known: {', '.join(names)})")
        self.nearest = nearest


class CollectiveError(CommsimError, ValueError):
    """An operation that cannot be asked for: wrong rank, size, root, dtype or group."""


class UnreachableError(CommsimError, RuntimeError):
    """Two ranks with no path between them."""


class LibraryError(CommsimError, ValueError):
    """A library setting that the library itself would refuse (NCCL_ALGO with nothing left, say)."""


class ProfileError(CommsimError, ValueError):
    """A profile file that cannot be used."""
