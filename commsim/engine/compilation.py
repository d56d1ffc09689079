"""How the engine's inner loops are compiled: by numba, once, kept on disk for the next time."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numba import njit

F = TypeVar("F", bound=Callable[..., object])


def compiled(function: F) -> F:
    """The function as machine code; it may not make arrays, only fill those it is given.

    For that `_nrt=False` leaves numba's reference counting out, which took 97 % of the time. No
    fast-math: equal inputs give equal output to the bit.
    """
    options: dict[str, Any] = {"cache": True, "nogil": True, "_nrt": False}
    fast: F = njit(**options)(function)
    return fast


def read_only(value: Any) -> Any:
    """Schedules' columns cannot be written; for the compiler that is a type, so none can."""
    if isinstance(value, np.ndarray):
        value = value.view()
        value.flags.writeable = False
    return value


def is_compiled() -> bool:
    """Whether machine code of an earlier run lies on disk."""
    folder = Path(os.environ.get("NUMBA_CACHE_DIR", Path(__file__).with_name("__pycache__")))
    return any(folder.rglob("compiled.*.nbi"))
