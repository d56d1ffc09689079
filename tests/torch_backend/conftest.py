from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from commsim.topology.load import load_cluster

if TYPE_CHECKING:
    from commsim.torch_backend import Run

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def simulate(tmp_path: Path) -> Callable[..., tuple[Run, str]]:
    """Runs a script, or its text, on the ranks of one DGX H100; the run, and what was printed."""
    pytest.importorskip("torch")
    from commsim.torch_backend import Options, run

    def call(
        script: str | Path, n: int = 4, *arguments: str, nodes: int = 1, **options: Any
    ) -> tuple[Run, str]:
        if isinstance(script, str):
            path = tmp_path / "script.py"
            path.write_text(script)
            script = path
        printed = io.StringIO()
        cluster = load_cluster("dgx-h100", nodes=nodes)
        with contextlib.redirect_stdout(printed):
            found = run(
                script, arguments, cluster=cluster, options=Options(nproc_per_node=n, **options)
            )
        return found, printed.getvalue()

    return call
