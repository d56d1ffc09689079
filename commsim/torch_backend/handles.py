"""The handles of a rank's operations, kept for a torch whose C++ does not keep them itself."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from commsim.torch_backend import private

RECENT = 256  # handles that C++ may ask a second time, as of operations on several tensors


@dataclass(slots=True, eq=False)
class Handles:
    """Those that have not been waited for, and the last that have."""

    _open: set[object] = field(default_factory=set)
    _recent: deque[object] = field(default_factory=lambda: deque(maxlen=RECENT))

    def keep(self, work: object) -> None:
        """A new operation's."""
        if not private.KEEPS_HANDLES:
            self._open.add(work)

    def waited(self, work: object) -> None:
        """It has been waited for."""
        if work in self._open:
            self._open.discard(work)
            self._recent.append(work)
