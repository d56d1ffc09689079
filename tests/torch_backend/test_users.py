"""Twelve scripts as users write them, not one line of which knows of the simulator."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import on_gloo

pytest.importorskip("torch")
from commsim.torch_backend import private

pytestmark = pytest.mark.filterwarnings("ignore")

FOLDER = Path(__file__).parent / "scripts" / "users"
# torch 2.6 itself has no FSDP2 on CPUs
SCRIPTS = [p for p in sorted(FOLDER.glob("*.py")) if private.NEW or "fsdp2" not in p.name]
NEEDS_VALUES = {"moe_all_to_all": "bincount"}
# FSDP2's for CUDA is cuda_fsdp2.py, of test_fake.py
SHIMMED = [p for p in SCRIPTS if "fsdp2" not in p.name]
NUMBER = re.compile(r"-?\d+\.\d+")


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return on_gloo(tmp_path_factory.mktemp("gloo"), 4, *SCRIPTS, record=False)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_prints_what_it_does_on_gloo(path: Path, real: dict[str, Any], simulate: Callable) -> None:
    run, printed = simulate(path, 4)
    assert run.failure is None, run.failure.traceback
    expected = real[path.stem]["printed"]
    assert NUMBER.sub("", printed) == NUMBER.sub("", expected)
    numbers = [float(n) for n in NUMBER.findall(printed)]
    # mixed precision: sums in another order
    near = {"abs": 2e-3} if path.stem == "fsdp2_transformer" else {"abs": 2e-6}
    assert numbers == pytest.approx([float(n) for n in NUMBER.findall(expected)], **near)
    assert len(run.operations) > 3


@pytest.mark.parametrize("path", SHIMMED, ids=lambda path: path.stem)
def test_runs_with_cuda_pretended(path: Path, simulate: Callable) -> None:
    run, printed = simulate(path, 4, cuda_shim=True)
    assert run.failure is None, run.failure.traceback
    assert NUMBER.search(printed)


@pytest.mark.parametrize(
    "name", ["compiled_ema", "elastic_restart", "grpo_broadcast", "moe_all_to_all"]
)
def test_without_data_it_runs_or_says_what_it_lacks(name: str, simulate: Callable) -> None:
    run, printed = simulate(FOLDER / f"{name}.py", 4, fake=True)
    if name in NEEDS_VALUES:
        assert NEEDS_VALUES[name] in str(run.failure.standings[0])
    else:
        assert run.failure is None, run.failure.traceback
        assert "loss 1.000000" in printed or "sum 1.000" in printed
