"""A real local Ray, where it is installed (`pip install "ray[client]"`: 280 MB, so not in CI)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import commsim
from commsim.errors import PlanError
from commsim.planning.engine import Engine
from commsim.planning.search import search
from commsim.planning.space import Space
from commsim.planning.survey import Question
from commsim.workload.trust import shipped
from tests.planning.test_engine import fragile

ray = pytest.importorskip("ray")
pytest.importorskip("joblib")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # theirs, not ours
PORT, CLIENTS = "6397", "9907"  # below the ports that Ray's workers take
REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Of a head with two CPUs, whose workers find the tests' own functions."""
    path = os.pathsep.join([str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"PYTHONPATH": path, "RAY_USAGE_STATS_ENABLED": "0"}
    head = subprocess.Popen(
        [
            sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block",
            "--port", PORT, "--ray-client-server-port", CLIENTS, "--num-cpus", "2",
            "--include-dashboard=false", "--object-store-memory", "100000000",
        ],
        env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield f"ray://127.0.0.1:{CLIENTS}"
    finally:
        ray.shutdown()
        head.terminate()  # with --block it takes what it started along
        head.wait()


def test_where_nobody_answers_it_says_so() -> None:
    with pytest.raises(PlanError, match=r"engine ray://127.0.0.1:1: nobody answers there"):
        Engine(where="ray://127.0.0.1:1").run(fragile, Question(b"", ""), ["a", "b"], None)


def test_ray_gives_the_same_to_the_bit(
    address: str, model: commsim.Model, cluster: commsim.Cluster
) -> None:
    space = Space(
        model=model, cluster=cluster, global_batch=16, seq_len=1024,
        only={"tp": (1, 2), "cp": (1,), "recompute": ("none",)},
    )  # fmt: skip
    there = search(space, shipped(), Engine(where=address))
    assert there == search(space, shipped(), Engine(where="serial"))


def test_the_task_of_a_worker_that_is_killed_runs_again(address: str, tmp_path: Path) -> None:
    marker = tmp_path / "died"
    engine = Engine(where=address)
    assert engine.run(fragile, Question(b"", ""), [str(marker)] * 6, None) == [1] * 6
    assert marker.exists()
