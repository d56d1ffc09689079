"""How soon a script that cannot go on is explained: `python benchmarks/deadlocks.py`.

Every script of examples/deadlocks runs on four ranks, each in a fork of a process that has imported
torch (with `torch._dynamo`, which torch imports once a group is made), so that nothing of another
script is warm. whole: from the call of `run` to the text of the report. report: from when the last
rank came to a stop. Both in real time, the best of three; CPU: of the whole. Limit: 1 s for the
whole.
"""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import time
from pathlib import Path
from unittest import mock

import torch._dynamo  # noqa: F401, see above

from commsim.topology.load import load_cluster
from commsim.torch_backend import Options, run
from commsim.torch_backend.world import World

LIMIT, TRIES = 1.0, 3  # s
FOLDER = Path(__file__).parents[1] / "examples" / "deadlocks"


def explained(path: Path) -> tuple[float, float, float, str]:
    """s of the whole, CPU s of it, s of the report, what kind of failure."""
    stops = []
    situation = World._situation

    def noted(world: World) -> object:
        stops.append(time.perf_counter())
        return situation(world)

    cluster = load_cluster("dgx-h100")
    with mock.patch.object(World, "_situation", noted), contextlib.redirect_stdout(io.StringIO()):
        start, busy = time.perf_counter(), time.process_time()
        found = run(path, cluster=cluster, options=Options(nproc_per_node=4))
        assert found.failure is not None
        str(found.failure)
        end, busy = time.perf_counter(), time.process_time() - busy
    return end - start, busy, end - stops[-1], found.failure.kind


def main() -> None:
    """Prints a line per script."""
    print(f"{'script':<26}{'kind':<12}{'whole':>9}{'CPU':>10}{'report':>12}")
    for path in sorted(FOLDER.glob("*.py")):
        with multiprocessing.get_context("fork").Pool(1, maxtasksperchild=1) as pool:
            whole, cpu, report, kind = min(pool.apply(explained, (path,)) for _ in range(TRIES))
        fast = "ok" if whole <= LIMIT else "above the limit"
        print(
            f"{path.stem:<26}{kind:<12}{1e3 * whole:>6.0f} ms{1e3 * cpu:>7.0f} ms"
            f"{1e3 * report:>9.1f} ms  {fast}"
        )


if __name__ == "__main__":
    main()
