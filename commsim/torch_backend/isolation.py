"""What a process has for itself, kept for each rank while another one holds the baton.

Environment, `__main__`, the user's own modules, and the random number generators.
"""

from __future__ import annotations

import importlib.machinery
import os
import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from commsim.torch_backend.world import Rank


class Isolated:
    """Swaps these in and out; see `Isolation`.

    folder: where the user's script lies; modules imported from there are each rank's own.
    """

    def __init__(self, folder: Path, main: Mapping[int, ModuleType]) -> None:
        self._folder = os.path.join(folder.resolve(), "")
        self._main = main
        self._imports = _Imports()
        self._theirs: set[str] = set()
        self._generators = _Generators()

    def __enter__(self) -> Isolated:
        sys.meta_path.insert(0, self._imports)
        self._before = self._generators.state()
        self._environment = dict(os.environ)
        self._main_before = sys.modules["__main__"]
        return self

    def __exit__(self, *_: object) -> None:
        sys.meta_path.remove(self._imports)
        self._generators.restore(self._before)
        for name in os.environ.keys() - self._environment.keys():
            del os.environ[name]
        os.environ.update(self._environment)
        sys.modules["__main__"] = self._main_before

    def enter(self, rank: Rank) -> None:
        """The rank goes on."""
        state = rank.state
        os.environ.update(state["environment"])
        sys.modules["__main__"] = self._main[rank.number]
        sys.modules.update(state.get("modules", {}))
        self._generators.restore(state.get("generators", self._before))

    def leave(self, rank: Rank) -> None:
        """The rank hands the baton on."""
        state = rank.state
        state["environment"] = {name: os.environ.get(name, "") for name in state["environment"]}
        state["generators"] = self._generators.state()
        self._sort_imports()
        state["modules"] = {
            name: sys.modules.pop(name) for name in self._theirs if name in sys.modules
        }

    def _sort_imports(self) -> None:
        """Which of the modules imported since are the user's."""
        for name in self._imports.seen:
            file = getattr(sys.modules.get(name), "__file__", None)
            if file and os.path.abspath(file).startswith(self._folder):
                self._theirs.add(name)
        self._imports.seen.clear()


class _Imports:
    """Notes which modules are being imported, and finds none itself."""

    def __init__(self) -> None:
        self.seen: dict[str, None] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        self.seen[name] = None
        return None


class _Generators:
    """The process-wide random number generators: Python's, numpy's, torch's."""

    def state(self) -> tuple[Any, ...]:
        numpy = sys.modules.get("numpy")
        return (
            random.getstate(),
            numpy.random.get_state() if numpy is not None else None,
            torch.random.get_rng_state(),
        )

    def restore(self, state: tuple[Any, ...]) -> None:
        python, numbers, tensors = state
        random.setstate(python)
        if numbers is not None:
            sys.modules["numpy"].random.set_state(numbers)
        torch.random.set_rng_state(tensors)
