"""What reading a large file shows on stderr."""

from __future__ import annotations

from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any

from commsim.cli._output import chatty

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

PATIENCE = 1.0  # s before a bar appears


class ReadingBar:
    """A bar of the bytes read, once reading takes more than a second and someone watches."""

    def __init__(self) -> None:
        self._begun = monotonic()
        self._bar: Bar | None = None
        self._task: Any = None

    def __enter__(self) -> ReadingBar:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def watch(self, done: int, of: int) -> None:
        """Called as a file is read, with bytes read and in all."""
        if self._bar is None:
            if monotonic() - self._begun < PATIENCE or not chatty():
                return
            from rich.console import Console  # 60 ms that a small file does not need
            from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            self._bar = Bar(
                TextColumn("reading"), BarColumn(), DownloadColumn(), TimeRemainingColumn(),
                console=Console(stderr=True), transient=True,
            )  # fmt: skip
            self._task = self._bar.add_task("reading", total=of)
            self._bar.start()
        self._bar.update(self._task, completed=done, total=of)
