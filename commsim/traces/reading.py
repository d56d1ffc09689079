"""Files of any format that holds recordings, recognised by how they begin."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Sequence
from pathlib import Path

from commsim.errors import SpecError
from commsim.traces.lookup import recorder, recorders
from commsim.traces.recording import HEAD, Recording, RecordingReader, Watch


def read_recordings(
    paths: Sequence[str | os.PathLike[str]],
    format: str | None = None,
    watch: Watch | None = None,
) -> tuple[Recording, ...]:
    """What is in these files and folders, a Recording per rank and file.

    format: None finds it out for each file. Raises SpecError for what cannot be read, OSError where
    there is no such file.
    """
    found: list[Recording] = []
    for path in _files(paths):
        reader = recorder(format) if format is not None else recognised(path)
        found += reader.recordings(path, watch)
    return tuple(found)


def recognised(path: Path) -> RecordingReader:
    """The reader of the format that a file is of; SpecError lists the known ones."""
    head = _head(path)
    for name in recorders():
        reader = recorder(name)
        if reader.recognises(path, head):
            return reader
    known = "; ".join(f"{recorder(name).title} ({name})" for name in recorders())
    begins = "is empty" if not head else f"begins with {head[:16]!r}"
    raise SpecError([f"{path}: {begins}, which no known trace does; expected one of: {known}"])


def _files(paths: Sequence[str | os.PathLike[str]]) -> list[Path]:
    """The files, those of a folder in the order of their names."""
    found = []
    for path in map(Path, paths):
        inside = sorted(p for p in path.iterdir() if p.is_file()) if path.is_dir() else [path]
        if not inside:
            raise SpecError([f"{path}: the folder is empty; expected trace files"])
        found += inside
    return found


def _head(path: Path) -> bytes:
    """How a file begins, unpacked."""
    with path.open("rb") as file:
        head = file.read(HEAD)
    if head[:2] != b"\x1f\x8b":
        return head
    try:
        with gzip.open(path) as packed:
            return packed.read(HEAD)
    except (OSError, EOFError, zlib.error) as error:
        raise SpecError([f"{path}: gzip: {error}; expected a whole .gz file"]) from None
