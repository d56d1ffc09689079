"""What a process has for itself, kept for each rank while another one holds the baton.

Environment, `__main__`, the user's own modules, the random number generators, and whether DTensor
is within `loss_parallel`.
"""

from __future__ import annotations

import importlib.machinery
import os
import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import numpy as np
import torch

from commsim.torch_backend import private
from commsim.torch_backend.where import is_users
from commsim.torch_backend.world import Rank


class Isolated:
    """Swaps these in and out; see `Isolation`.

    folder: where the user's script lies; modules imported from there are each rank's own, unless
    they are of packages installed there (a venv).
    """

    def __init__(self, folder: Path, main: Mapping[int, ModuleType], code: CodeType) -> None:
        self._folder = os.path.join(folder.resolve(), "")
        self._main = main
        self._imports = _Imports()
        self._theirs: set[str] = set()
        self._generators = _Generators()
        self._generators.look(code)

    def __enter__(self) -> Isolated:
        sys.meta_path.insert(0, self._imports)
        self._before = self._generators.state(everything=True)
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
        environment: dict[str, str] = state["environment"]
        for name, value in environment.items():
            if os.environ.get(name) != value:
                os.environ[name] = value
        sys.modules["__main__"] = self._main[rank.number]
        sys.modules.update(state.get("modules", {}))
        self._generators.restore(state.get("generators", self._before))
        private.swap_loss_ops(state.get("loss", {}))

    def leave(self, rank: Rank) -> None:
        """The rank hands the baton on."""
        state = rank.state
        environment: dict[str, str] = state["environment"]
        for name in environment:
            environment[name] = os.environ.get(name, "")
        state["generators"] = self._generators.state()
        state["loss"] = private.swap_loss_ops({})
        self._sort_imports()
        state["modules"] = {
            name: sys.modules.pop(name) for name in self._theirs if name in sys.modules
        }

    def _sort_imports(self) -> None:
        """Which of the modules imported since are the user's."""
        for name in self._imports.seen:
            module = sys.modules.get(name)
            file = getattr(module, "__file__", None)
            if file and os.path.abspath(file).startswith(self._folder) and is_users(file):
                self._theirs.add(name)
                values = vars(module).values()  # asked for its name, a lazy one would load
                imported = {value.__name__ for value in values if type(value) is ModuleType}
                self._generators.used |= imported & {"random", "numpy"}
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
    """The process-wide random number generators: torch's, and Python's and numpy's if used.

    Theirs take a tenth of a millisecond to swap, so that is done once a module of the user's has
    imported them.
    """

    def __init__(self) -> None:
        self.used: set[str] = set()

    def look(self, code: CodeType) -> None:
        """Note which of them a script imports."""
        names = {name.partition(".")[0] for name in code.co_names}
        self.used |= names & {"random", "numpy"}
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                self.look(constant)

    def state(self, everything: bool = False) -> tuple[Any, ...]:
        used = {"random", "numpy"} if everything else self.used
        return (
            torch.random.get_rng_state(),
            random.getstate() if "random" in used else None,
            np.random.get_state() if "numpy" in used else None,
        )

    def restore(self, state: tuple[Any, ...]) -> None:
        tensors, python, numbers = state
        torch.random.set_rng_state(tensors)
        if python is not None:
            random.setstate(python)
        if numbers is not None:
            np.random.set_state(numbers)
