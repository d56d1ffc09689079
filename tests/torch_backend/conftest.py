from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
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


def on_gloo(folder: Path, n: int, *scripts: Path, record: bool = True) -> dict[str, Any]:
    """What real Gloo processes print, and the operations of each rank; see real_gloo.py."""
    out = folder / "gloo.json"
    command = [sys.executable, "-W", "ignore", str(Path(__file__).with_name("real_gloo.py"))]
    command += [] if record else ["--plain"]
    done = subprocess.run(
        [*command, str(n), str(out), *map(str, scripts)],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(out.read_text())
    return {Path(name).stem: each for name, each in found.items()}


def by_rank(printed: str) -> dict[int, Any]:
    """What each rank printed as one line: its number, and JSON."""
    rows = (line.partition(" ") for line in printed.splitlines())
    return {int(rank): json.loads(text) for rank, _, text in rows}
