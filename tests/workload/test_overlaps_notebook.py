"""The notebook on bucketing: its code runs, and nothing is stored in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "ddp_bucketing.ipynb"


def test_the_notebook_runs() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    names: dict[str, object] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            assert not cell["outputs"]
            assert cell["execution_count"] is None
            exec("".join(cell["source"]), names)
    result = names["result"]
    assert result.duration("bucketed") < result.duration("fused")  # type: ignore[attr-defined]
    figures = pytest.importorskip("matplotlib.pyplot").get_fignums()
    assert len(figures) >= 2
    pytest.importorskip("matplotlib.pyplot").close("all")
