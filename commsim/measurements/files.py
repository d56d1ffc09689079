"""A file's text, whatever it is packed and encoded in."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from pathlib import Path
from typing import Any, Final

from commsim.errors import SpecError

MOST: Final = 1 << 30
"""Bytes of a file that are unpacked at most: a log of as many is no table of measurements."""
_PACKED: Final[dict[bytes, Any]] = {
    b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open,
}  # fmt: skip
"""By a file's first bytes."""


def text_of(path: Path) -> str:
    """The text of a file: UTF-8, or UTF-16 with its mark or with every other byte zero; plain, or
    packed by gzip, bzip2 or xz. Raises SpecError where it cannot be read or is packed wrongly."""
    try:
        with path.open("rb") as file:
            raw = file.read(6)
            unpacked = next((to for mark, to in _PACKED.items() if raw.startswith(mark)), None)
            raw += b"" if unpacked else file.read()
        if unpacked is not None:
            with unpacked(path) as packed:
                raw = packed.read(MOST + 1)
    except (OSError, ValueError, EOFError, zlib.error, lzma.LZMAError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SpecError([f"{path}: expected a file that can be read, got: {reason}"]) from None
    if len(raw) > MOST:
        raise SpecError([f"{path}: expected a log, got more than {MOST >> 30} GiB when unpacked"])
    return raw.decode(_encoding(raw), errors="replace")


def _encoding(raw: bytes) -> str:
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16"
    start = raw[:200]
    if len(start) > 20 and start.isascii():  # Windows' own, where what marks it was cut off
        for name, zeros in (("utf-16-le", start[1::2]), ("utf-16-be", start[::2])):
            if not zeros.strip(b"\0") and start.count(0) == len(zeros):
                return name
    return "utf-8-sig"
