"""The training examples on eight simulated ranks and on eight Gloo processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .conftest import EXAMPLES, on_gloo

pytest.importorskip("torch")

from commsim.torch_backend import private

N = 8
# torch 2.6 itself cannot on CPUs: FSDP2 stops in the backward pass, pipelines at views
NEW_ONLY = ("fsdp2", "pipeline")
TRAINING = tuple(
    name
    for name in ("ddp", "fsdp2", "tensor_parallel", "pipeline")
    if private.NEW or name not in NEW_ONLY
)
MESSAGES = ("ring_all_reduce", "send_recv")


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    scripts = [EXAMPLES / f"{name}.py" for name in (*TRAINING, *MESSAGES)]
    return on_gloo(tmp_path_factory.mktemp("gloo"), N, *scripts)


def losses(printed: str) -> list[float]:
    return [float(line.split()[-1]) for line in printed.splitlines() if " loss " in line]


def check_operations(run: Any, real: list[Any]) -> None:
    """Operation, bytes, type, group, root or peer, in the order of each rank's calls."""
    for rank, expected in enumerate(real):
        calls = [post.call for post in run.world.ranks[rank].posts]
        assert [
            [
                c.operation,
                c.nbytes,
                c.dtype,
                list(c.group.ranks),
                c.root if c.peer is None else c.peer,
            ]
            for c in calls
        ] == expected


@pytest.mark.parametrize("name", MESSAGES)
def test_messages_are_those_of_gloo(name: str, real: dict[str, Any], simulate: Callable) -> None:
    run, printed = simulate(EXAMPLES / f"{name}.py", N)
    assert run.failure is None, run.failure
    assert sorted(printed.splitlines()) == sorted(real[name]["printed"].splitlines())
    check_operations(run, real[name]["ranks"])


@pytest.mark.parametrize("name", TRAINING)
@pytest.mark.filterwarnings("ignore")
def test_losses_and_operations_are_those_of_gloo(
    name: str, real: dict[str, Any], simulate: Callable
) -> None:
    run, printed = simulate(EXAMPLES / f"{name}.py", N)
    assert run.failure is None, run.failure
    assert len(losses(printed)) == 3
    assert losses(printed) == pytest.approx(losses(real[name]["printed"]), abs=1e-6)
    check_operations(run, real[name]["ranks"])
    assert len(run.steps) == 2
    assert run.step_duration is not None


@pytest.mark.filterwarnings("ignore")
def test_a_step_is_longer_on_two_machines_and_over_a_slower_network(simulate: Callable) -> None:
    """The same eight ranks: NVLink within a machine, InfiniBand between two."""
    one, _ = simulate(EXAMPLES / "ddp.py", 8, compute="none")
    two, _ = simulate(EXAMPLES / "ddp.py", 4, nodes=2, compute="none")
    assert one.step_duration < two.step_duration
    assert [o.call.nbytes for o in one.operations] == [o.call.nbytes for o in two.operations]
