"""Pickles of plain values, read without running anything that is in them.

A pickle is a program; an unknown one may call any function. Only what builds numbers, text, lists,
tuples and dicts is let through here, and nothing that makes a small file take much memory.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from typing import Any, NoReturn

PLAIN = frozenset({
    "PROTO", "FRAME", "STOP", "MARK", "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "DICT", "LIST",
    "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "APPEND", "APPENDS", "SETITEM", "SETITEMS", "NONE",
    "NEWTRUE", "NEWFALSE", "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT",
    "BINFLOAT", "UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "SHORT_BINBYTES",
    "BINBYTES", "PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE", "GET", "BINGET", "LONG_BINGET", "POP",
    "POP_MARK",
})  # fmt: skip
PUTS = ("PUT", "BINPUT", "LONG_BINPUT")
BEGINS = b"\x80"


class NotPlainError(ValueError):
    """A pickle that holds more than plain values, or is broken. The message says where."""


def loads(data: bytes) -> Any:
    """The value in a pickle; NotPlainError where it holds a class, a function or is broken."""
    _check(data)
    try:
        return _Reader(io.BytesIO(data)).load()
    except NotPlainError:
        raise
    except Exception as error:  # a broken pickle makes the reader raise nearly anything
        raise NotPlainError(f"a broken pickle: {error}") from None


def _check(data: bytes) -> None:
    count = 0
    try:
        for code, value, place in pickletools.genops(data):
            count += 1
            if code.name not in PLAIN:
                raise NotPlainError(
                    f"byte {place}: {code.name}, which builds more than numbers, text and lists;"
                    " such a file is not read, as it could run any program"
                )
            if code.name in PUTS and value is not None and int(value) > count:
                raise NotPlainError(f"byte {place}: a broken pickle: remembers item {value}")
    except NotPlainError:
        raise
    except Exception as error:  # pickletools raises what it comes upon
        raise NotPlainError(f"a broken pickle: {error}") from None


class _Reader(pickle.Unpickler):
    """Refuses every name and every persistent object, whatever `_check` lets through."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise NotPlainError(f"names {module}.{name}")

    def persistent_load(self, identity: Any) -> NoReturn:
        raise NotPlainError("refers to an object elsewhere")
