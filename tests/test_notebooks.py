"""Every notebook runs from its first cell to its last, and nothing is stored in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))


def check_ddp_bucketing(names: dict[str, Any]) -> None:
    """Buckets beat one message after the backward pass; there are two pictures of it."""
    result = names["result"]
    assert result.duration("bucketed") < result.duration("fused")
    assert len(pytest.importorskip("matplotlib.pyplot").get_fignums()) >= 2


def check_calibrating(names: dict[str, Any]) -> None:
    """A calibration on five sizes is nearer on every other size than before."""
    assert all(abs(after) < abs(before) for before, after in names["errors"])


CHECKS = {"ddp_bucketing": check_ddp_bucketing, "calibrating": check_calibrating}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    pytest.importorskip("altair")
    matplotlib.use("Agg")
    names: dict[str, Any] = {}
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            assert not cell["outputs"]
            assert cell["execution_count"] is None
            exec("".join(cell["source"]), names)
    CHECKS.get(path.stem, lambda _: None)(names)
    pytest.importorskip("matplotlib.pyplot").close("all")
    assert capsys.readouterr().out
