"""Trace formats by name: "goal" is the class of the module traces/goal.py. No list to edit."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from functools import lru_cache

import commsim.traces as here
from commsim.errors import UnknownNameError
from commsim.traces.recording import RecordingReader
from commsim.traces.step_writer import StepWriter
from commsim.traces.trace import TraceReader, TraceWriter

FORMATS = TraceReader | TraceWriter | RecordingReader | StepWriter


def readers() -> tuple[str, ...]:
    """The names of the formats that can be read."""
    return tuple(name for name in _modules() if issubclass(_class(name), TraceReader))


def writers() -> tuple[str, ...]:
    """The names of the formats that can be written."""
    return tuple(name for name in _modules() if issubclass(_class(name), TraceWriter))


def reader(name: str) -> TraceReader:
    """The reader of that name with its defaults; UnknownNameError names the known ones."""
    found = _class(name)
    if not issubclass(found, TraceReader):
        raise UnknownNameError("trace format to read", name, readers())
    return found()


def writer(name: str) -> TraceWriter:
    """The writer of that name with its defaults; UnknownNameError names the known ones."""
    found = _class(name)
    if not issubclass(found, TraceWriter):
        raise UnknownNameError("trace format to write", name, writers())
    return found()


def recorders() -> tuple[str, ...]:
    """The names of the formats that hold recordings of ranks."""
    return tuple(name for name in _modules() if issubclass(_class(name), RecordingReader))


def step_writers() -> tuple[str, ...]:
    """The names of the formats in which a played step can be written."""
    return tuple(name for name in _modules() if issubclass(_class(name), StepWriter))


def recorder(name: str) -> RecordingReader:
    """The reader of recordings of that name; UnknownNameError names the known ones."""
    found = _class(name)
    if not issubclass(found, RecordingReader):
        raise UnknownNameError("format of recordings", name, recorders())
    return found()


def step_writer(name: str) -> StepWriter:
    """The writer of steps of that name; UnknownNameError names the known ones."""
    found = _class(name)
    if not issubclass(found, StepWriter):
        raise UnknownNameError("format to write a step in", name, step_writers())
    return found()


def _modules() -> tuple[str, ...]:
    return tuple(sorted(module.name for module in pkgutil.iter_modules(here.__path__)))


@lru_cache
def _class(name: str) -> type[object]:
    """The format that lives in the module of that name; plain `object` where none does."""
    if name not in _modules():
        return object
    path = f"{here.__name__}.{name}"
    return next(
        (
            value
            for value in vars(importlib.import_module(path)).values()
            if inspect.isclass(value)
            and issubclass(value, FORMATS)
            and value.__module__ == path
            and not inspect.isabstract(value)
        ),
        object,
    )
