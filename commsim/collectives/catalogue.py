"""Algorithms by name: "ring" is the class of the module algorithms/ring.py. No list to edit."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from functools import lru_cache

import commsim.collectives.algorithms as here
from commsim.collectives.algorithm import Algorithm
from commsim.errors import UnknownNameError


def names(operation: str | None = None) -> tuple[str, ...]:
    """Every algorithm's name, or only those that serve an operation."""
    found = sorted(module.name for module in pkgutil.iter_modules(here.__path__))
    return tuple(n for n in found if operation is None or operation in _class(n).operations)


def algorithm(name: str) -> Algorithm:
    """The algorithm of that name with its defaults; UnknownNameError names the known ones."""
    if name not in names():
        raise UnknownNameError("algorithm", name, names(), "commsim names algorithms")
    return _class(name)()


@lru_cache
def _class(name: str) -> type[Algorithm]:
    path = f"{here.__name__}.{name}"
    module = importlib.import_module(path)
    return next(
        value
        for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, Algorithm) and value.__module__ == path
    )
