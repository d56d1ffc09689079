from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from commsim.cli.main import run


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What a command line left behind."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def json(self) -> Any:
        """The output, which must be JSON that every reader accepts (no NaN, no Infinity)."""

        def refuse(constant: str) -> None:
            raise AssertionError(f"{constant} is not JSON")

        return json.loads(self.out, parse_constant=refuse)


@pytest.fixture
def commsim(capsys: pytest.CaptureFixture[str]) -> Callable[[str], Ran]:
    """Runs a command line, written as in a shell but without quotes, in this process."""

    def call(line: str) -> Ran:
        code = run(line.split())
        captured = capsys.readouterr()
        return Ran(code=code, out=captured.out, err=captured.err)

    return call
