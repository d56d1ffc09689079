"""The file of a run: one JSON object a line, each written whole and to the disk before the next.

What was measured until a crash, a full disk or Ctrl-C is there. A line that could not be written
whole is taken back; should the machine die within one, the reader leaves the torn line out.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import TracebackType
from typing import Any

from commsim.errors import BrokenRunError, MeasureError

FORMAT = 1


def line_of(record: dict[str, Any]) -> str:
    """The record as a line; `commsim_measure` is the format it is in."""
    return json.dumps({"commsim_measure": FORMAT} | record, separators=(",", ":")) + "\n"


class Journal:
    """Opens the file for new lines. An existing one is refused unless it is to be overwritten or
    appended to; a new one in which nothing was written is not left behind. Raises MeasureError."""

    def __init__(self, path: Path, *, overwrite: bool = False, append: bool = False) -> None:
        if overwrite and append:
            raise MeasureError("--overwrite, --append: expected one of them, got both")
        there = path.exists() and not path.is_char_device()
        if there and not (overwrite or append):
            raise MeasureError(
                f"{path}: exists already; --append adds to it, --overwrite replaces it"
            )
        self.path = path
        self._new = not path.exists()
        self.cut = 0  # bytes of a torn last line that were taken away
        self.kept = 0  # lines written
        flags = os.O_WRONLY | os.O_CREAT | (0 if append else os.O_TRUNC)
        try:
            self._file = os.open(path, flags, 0o644)
        except OSError as error:
            raise MeasureError(f"{path}: cannot be written: {error.strerror}") from None
        self._end = 0
        if append and there:
            self._end = _whole(path)
            self.cut = path.stat().st_size - self._end
            os.ftruncate(self._file, self._end)
            os.lseek(self._file, self._end, os.SEEK_SET)

    def write(self, record: dict[str, Any]) -> None:
        """Adds a line; BrokenRunError where it cannot be written, and then nothing of it is."""
        line = line_of(record).encode()
        before = self._end
        try:
            written = 0
            while written < len(line):
                written += os.write(self._file, line[written:])
            self._end += len(line)
            self.kept += 1
            _to_disk(self._file)
        except OSError as error:
            self.kept -= self._end > before
            self._end = before
            self._take_back()
            raise BrokenRunError(
                f"{self.path}: {error.strerror}; the {self.kept} lines before are kept: make room "
                "and go on with --append"
            ) from None
        except BaseException:  # Ctrl-C within a line; a whole one stays
            self._take_back()
            raise

    def _take_back(self) -> None:
        """Nothing stays behind the last whole line."""
        try:
            os.ftruncate(self._file, self._end)
            os.lseek(self._file, self._end, os.SEEK_SET)
        except OSError:
            pass  # a device or a pipe, which has no length

    def close(self) -> None:
        """No more lines."""
        os.close(self._file)
        if self._new and not self._end:
            self.path.unlink(missing_ok=True)

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _whole(path: Path) -> int:
    """Bytes up to the end of the last whole line."""
    return path.read_bytes().rfind(b"\n") + 1


def _to_disk(file: int) -> None:
    try:
        os.fsync(file)
    except OSError as error:
        import errno

        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a pipe or a terminal has no disk
            raise
