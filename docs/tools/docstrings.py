"""Docstrings as Markdown: lines of a session (`>>>`) become a block of code."""

from __future__ import annotations

import re
from typing import Any

import griffe

SESSION = re.compile(r"^>>> (?:.+\n?)+", re.MULTILINE)


class Docstrings(griffe.Extension):
    """Changes every docstring as it is read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """One object's docstring."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """The text, each session in a fence."""
    return SESSION.sub(lambda m: f"```pycon\n{m[0].rstrip()}\n```\n", text)
