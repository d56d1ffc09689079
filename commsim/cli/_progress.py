"""What a long simulation shows on stderr while it runs, and how it is stopped."""

from __future__ import annotations

import sys
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any

from commsim.cli._output import chatty
from commsim.engine.compilation import is_compiled
from commsim.errors import TimeLimitError
from commsim.units import Seconds, format_time

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

PATIENCE = 2.0  # s before a bar appears


class Progress:
    """A bar with the event rate and the end estimated, on anything longer than two seconds.

    limit: s of real time after which the simulation ends with TimeLimitError.
    """

    def __init__(self, limit: Seconds | None) -> None:
        self.limit = limit
        self._begun = monotonic()
        self._bar: Bar | None = None
        self._task: Any = None

    def __enter__(self) -> Progress:
        if chatty() and not is_compiled():
            print("compiling the simulator; this happens once and takes a while", file=sys.stderr)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def watch(self, done: int, of: int, now: Seconds) -> None:
        """Called as the simulation goes on; raises TimeLimitError when its time is over."""
        passed = monotonic() - self._begun
        if self.limit is not None and passed > self.limit:
            raise TimeLimitError(
                f"--time-limit: {format_time(self.limit)} are over with {done:,} of {of:,} "
                f"transfers played, {format_time(now)} of simulated time; raise it, use fewer "
                "ranks, or leave out --no-fold"
            )
        if passed > PATIENCE and self._bar is None and chatty():
            self._show(of)
        if self._bar is not None:
            self._bar.update(
                self._task, total=of, completed=done, rate=f"{done / passed:,.0f} transfers/s"
            )

    def _show(self, of: int) -> None:
        from rich.console import Console  # 60 ms that a short simulation does not need
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        self._bar = Bar(
            TextColumn("simulating"),
            BarColumn(),
            TextColumn("{task.percentage:.0f} %"),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self._task = self._bar.add_task("simulating", total=of, rate="")
        self._bar.start()
