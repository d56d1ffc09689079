"""JSON files too large to hold: the elements of one array as they come, other values whole.

Traces hold hundreds of MB in one array. json.load would need ten times their size in memory, and
says nothing until it is done; here one element at a time is parsed (by the same C scanner), so that
memory stays small, progress shows, and an error names its line.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from commsim.errors import SpecError
from commsim.traces.recording import Watch

CHUNK = 1 << 20  # characters read at a time
LONGEST = 64 << 20  # characters of one value: above that the file is broken
NEAR = 8  # characters: a value that goes wrong so close to the end has been cut off there
SPACE = " \t\n\r"


def open_text(path: str | os.PathLike[str]) -> tuple[IO[str], IO[bytes]]:
    """A file as text, unpacked if it is gzip; and as the bytes that lie on the disk."""
    raw = Path(path).open("rb")  # noqa: SIM115  # the caller closes it
    packed = raw.read(2) == b"\x1f\x8b"
    raw.seek(0)
    inner: IO[bytes] = gzip.GzipFile(fileobj=raw) if packed else raw  # type: ignore[assignment]
    return io.TextIOWrapper(inner, encoding="utf-8-sig", errors="replace"), raw


def values(
    path: str | os.PathLike[str], array: str, expected: str, watch: Watch | None = None
) -> Iterator[tuple[str, Any]]:
    """(key, value) of a file's object; ("[]", element) for each element of its array of that name,
    or of the file itself if that is an array. A file may hold several documents: ("{}", number)
    comes before each.

    expected: what the file should hold, for the SpecError that names file, line and column.
    """
    text, raw = open_text(path)
    with raw, text:
        yield from _Scanner(text, raw, path, array, expected, watch).documents()


class _Scanner:
    """A window on the text, moved forward as values are taken from it."""

    def __init__(
        self,
        text: IO[str],
        raw: IO[bytes],
        path: str | os.PathLike[str],
        array: str,
        expected: str,
        watch: Watch | None,
    ) -> None:
        self.text, self.raw, self.path = text, raw, path
        self.array, self.expected, self.watch = array, expected, watch
        self.size = os.fstat(raw.fileno()).st_size
        self.window, self.at, self.over = "", 0, False
        self.lines, self.before = 0, 0  # lines, and characters of the last of them, left behind
        self.decoder = json.JSONDecoder(strict=False)

    def documents(self) -> Iterator[tuple[str, Any]]:
        """Everything in the file."""
        if self._peek() not in "{[" or not self._peek():
            raise self._error(f"expected {self.expected}, found {self._found()}")
        number = 0
        while self._peek():
            yield "{}", number
            number += 1
            if self.window[self.at] == "[":
                yield from self._elements()
            elif self.window[self.at] == "{":
                yield from self._members()
            else:
                raise self._error(f"expected the end of the file, found {self._found()}")

    def _members(self) -> Iterator[tuple[str, Any]]:
        for _ in self._items("{", "}"):
            key = self._value()
            if not isinstance(key, str):
                raise self._error(f"expected a key in quotes, found {str(key)[:40]}")
            self._take(":")
            if key == self.array and self._peek() == "[":
                yield from self._elements()
            else:
                yield key, self._value()

    def _elements(self) -> Iterator[tuple[str, Any]]:
        for _ in self._items("[", "]"):
            yield "[]", self._value()

    def _items(self, begin: str, end: str) -> Iterator[None]:
        """Once before each item of an array or an object."""
        self._take(begin)
        if self._peek() == end:
            self.at += 1
            return
        while True:
            yield None
            if self._peek() == ",":
                self.at += 1
                if self._peek() == end:  # some writers leave a comma behind the last event
                    self.at += 1
                    return
            else:
                self._take(end)
                return

    def _take(self, character: str) -> None:
        if self._peek() != character:
            raise self._error(f"expected {character!r}, found {self._found()}")
        self.at += 1

    def _peek(self) -> str:
        """The next character that is no space; "" at the end."""
        while True:
            window, at = self.window, self.at
            while at < len(window) and window[at] in SPACE:
                at += 1
            self.at = at
            if at < len(window):
                return window[at]
            if not self._read():
                return ""

    def _value(self) -> Any:
        self._peek()
        while True:
            try:
                value, end = self.decoder.raw_decode(self.window, self.at)
            except json.JSONDecodeError as error:
                if len(self.window) - self.at < LONGEST and self._read():
                    continue
                ends = len(self.window) - error.pos <= NEAR or "Unterminated" in error.msg
                if self.over and ends:
                    raise self._truncated(error.pos) from None
                raise self._error(f"{error.msg[0].lower()}{error.msg[1:]}", error.pos) from None
            except RecursionError:
                raise self._error(f"nested too deeply; expected {self.expected}") from None
            if end >= len(self.window) and self._read():
                continue  # a number may go on
            self.at = end
            return value

    def _read(self) -> bool:
        """Some more text in the window, what was taken left behind; False at the end."""
        if self.over:
            return False
        try:
            more = self.text.read(max(CHUNK, len(self.window) - self.at))
        except (OSError, EOFError, zlib.error) as error:
            raise SpecError([f"{self.path}: gzip: {error}; expected a whole .gz file"]) from None
        self.over = not more
        if self.over:
            return False
        gone = self.window[: self.at]
        self.lines += gone.count("\n")
        newline = gone.rfind("\n")
        self.before = len(gone) - newline - 1 if newline >= 0 else self.before + len(gone)
        self.window, self.at = self.window[self.at :] + more, 0
        if self.watch is not None:
            self.watch(min(self.raw.tell(), self.size), self.size)
        return True

    def _found(self) -> str:
        if self.at >= len(self.window):
            return "the end of the file"
        return repr(self.window[self.at : self.at + 20].split("\n")[0])

    def _truncated(self, at: int) -> SpecError:
        return self._error(
            "the file ends in the middle of a value: it is truncated; expected the rest of it", at
        )

    def _error(self, what: str, at: int | None = None) -> SpecError:
        place = self.at if at is None else at
        passed = self.window[:place]
        newline = passed.rfind("\n")
        column = place - newline if newline >= 0 else self.before + place + 1
        line = self.lines + passed.count("\n") + 1
        return SpecError([f"{self.path}: line {line}, column {column}: {what}"])
