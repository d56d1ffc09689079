"""From rank 0 to whoever started the ranks: what was measured, as JSON lines through a FIFO.

The ranks only measure; the process that started them writes the file and the screen, so that what
it has got stays whatever happens to them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Sender:
    """Rank 0's end."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8")

    def begin(self, header: dict[str, Any]) -> None:
        """The run has begun."""
        self._say({"begin": header})

    def done(self, index: int, records: list[dict[str, Any]]) -> None:
        """A step has been measured."""
        self._say({"step": index, "records": records})

    def end(self) -> None:
        """All has been measured."""
        self._say({"end": True})
        self._file.close()

    def _say(self, message: dict[str, Any]) -> None:
        self._file.write(json.dumps(message) + "\n")
        self._file.flush()


class Receiver:
    """The other end: never waits."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        # a writer of its own, or a FIFO that nobody writes to yet would be at its end at once
        self._file = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self._rest = b""

    def fileno(self) -> int:
        """For select."""
        return self._file

    def messages(self) -> Iterator[dict[str, Any]]:
        """Every whole message that has come."""
        while True:
            try:
                piece = os.read(self._file, 1 << 16)
            except BlockingIOError:
                return
            *lines, self._rest = (self._rest + piece).split(b"\n")
            for line in lines:
                yield json.loads(line)

    def close(self) -> None:
        """No more is read."""
        os.close(self._file)
