"""Results kept in an SQLite file as they come: a search that was cut short goes on from there.

One row a task, under the SHA-256 of what was asked; floats are kept bit by bit. Each is written in
a transaction of its own, so that a process killed at any moment leaves a file that can be used.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from commsim.errors import PlanError

TABLE = "CREATE TABLE IF NOT EXISTS results (key TEXT PRIMARY KEY, value TEXT NOT NULL)"


@dataclass(frozen=True, slots=True)
class Store:
    """The results in one file; made when first written to. Raises PlanError on another's file."""

    path: Path

    def known(self, kind: str, digest: str, tasks: Sequence[object]) -> dict[int, Any]:
        """By the place of a task, the results that are there, as plain lists."""
        with _opened(self.path) as there:
            rows = dict(there.execute("SELECT key, value FROM results").fetchall())
        keys = (_key(kind, digest, task) for task in tasks)
        return {i: json.loads(rows[key]) for i, key in enumerate(keys) if key in rows}

    def keep(self, kind: str, digest: str, task: object, result: object) -> None:
        """Writes one task's result."""
        with _opened(self.path) as there:
            row = (_key(kind, digest, task), json.dumps(result))
            there.execute("INSERT OR REPLACE INTO results VALUES (?, ?)", row)


class _opened:
    """The database within a transaction, closed afterwards."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> sqlite3.Connection:
        try:
            self.there = sqlite3.connect(self.path, timeout=60)
            self.there.execute(TABLE)
        except sqlite3.Error as error:
            raise PlanError(
                f"{self.path}: expected an SQLite file of results, or none yet: {error}"
            ) from None
        return self.there

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.there.commit()
        self.there.close()


def _key(kind: str, digest: str, task: object) -> str:
    return hashlib.sha256(f"{kind}\n{digest}\n{task!r}".encode()).hexdigest()
