"""The line of the user's script from which a call came."""

from __future__ import annotations

import os
import sys
import sysconfig
from functools import lru_cache
from pathlib import Path
from types import FrameType, TracebackType

import torch

from commsim.torch_backend.records import NOWHERE, Where

OURS = tuple(
    os.path.join(os.path.abspath(folder), "")
    for folder in (
        str(Path(__file__).resolve().parents[1]),
        os.path.dirname(torch.__file__),
        sysconfig.get_paths()["stdlib"],
        sysconfig.get_paths()["purelib"],
    )
)


INSTALLED = {"site-packages", "dist-packages"}


@lru_cache(maxsize=4096)
def is_users(file: str) -> bool:
    """Does a file belong to the user: not to Python, an installed package, or commsim?"""
    if file.startswith("<") or os.path.abspath(file).startswith(OURS):
        return False
    return INSTALLED.isdisjoint(Path(file).parts)


@lru_cache(maxsize=4096)
def _shown(file: str) -> str:
    """A path as short as it can be: from the working directory, if it lies within."""
    relative = os.path.relpath(file)
    return file if relative.startswith("..") else relative


def _as_where(frame: FrameType, line: int) -> Where:
    code = frame.f_code
    return Where(file=_shown(code.co_filename), line=line, function=code.co_qualname)


def where() -> Where:
    """The innermost line of the user's own files that led here."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if is_users(frame.f_code.co_filename):
            return _as_where(frame, frame.f_lineno)
        frame = frame.f_back
    return NOWHERE


def raised_at(trace: TracebackType | None) -> Where | None:
    """The innermost line of the user's own files in a traceback."""
    found = None
    while trace is not None:
        if is_users(trace.tb_frame.f_code.co_filename):
            found = _as_where(trace.tb_frame, trace.tb_lineno)
        trace = trace.tb_next
    return found
