"""Libraries by name: "nccl@2.27.3" is the class Nccl of the module nccl, with that version.

Variables may follow, as a shell takes them before a command: "nccl@2.27.3 NCCL_ALGO=Ring". So a
cluster's default library can carry its environment to whatever asks the cluster for one.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Mapping
from functools import lru_cache

import commsim.libraries as here
from commsim.errors import UnknownNameError
from commsim.libraries.library import Library


def library(name: str, env: Mapping[str, str] | None = None, launch: str | None = None) -> Library:
    """The library of `name` or `name@version`, with its environment and launch mode;
    UnknownNameError names the known ones. Found by module name: a new library is one new file.

    env goes before variables in the name.
    """
    text, *variables = name.split() or [""]
    if not all("=" in one for one in variables):
        text = name
    stated = dict(one.split("=", 1) for one in variables if "=" in one)
    word, at, version = text.partition("@")
    found = _class(word.strip().lower())
    if found is None:
        known = [m.name for m in pkgutil.iter_modules(here.__path__)]
        raise UnknownNameError("library", word, [n for n in known if _class(n) is not None])
    given: dict[str, object] = {"env": stated | dict(env or {}), "launch": launch or "processes"}
    if at:
        given["version"] = version
    return found(**given)


@lru_cache(maxsize=64)
def _class(word: str) -> type[Library] | None:
    """The Library that lives in the module of that name (or in the module of that name inside its
    package)."""
    modules = {m.name: m.ispkg for m in pkgutil.iter_modules(here.__path__)}
    if word not in modules:
        return None
    path = f"{here.__name__}.{word}" + (f".{word}" if modules[word] else "")
    module = importlib.import_module(path)
    return next(
        (
            value
            for value in vars(module).values()
            if inspect.isclass(value)
            and issubclass(value, Library)
            and value.__module__ == path
            and not inspect.isabstract(value)
        ),
        None,
    )
