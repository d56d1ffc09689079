"""A simulated run, recorded and replayed elsewhere, against the same script run there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

SCRIPT = """
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
layers = [torch.nn.Linear(512, 512) for _ in range(4)]
model = DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.randn(8, 512)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
"""
SLOWER = ("--set", "node.nics.count=1", "--set", "node.nics.placement=single")
# The GPU sets the pace, not the host: a host's pauses are replayed as measured, and would hide.
HOST = ("--launch-overhead", "1us")
WHERE = ("--cluster", "dgx-h100", "--nodes", "2", "--nproc-per-node", "2")


def commsim(*arguments: str) -> dict[str, object]:
    ran = subprocess.run(
        [sys.executable, "-m", "commsim", *arguments],
        capture_output=True, text=True, timeout=240, check=True,
    )  # fmt: skip
    found: dict[str, object] = json.loads(ran.stdout)
    return found


@pytest.mark.slow
def test_a_replay_is_what_the_script_takes_there(tmp_path: Path) -> None:
    script, timeline = tmp_path / "train.py", tmp_path / "t.json"
    script.write_text(SCRIPT)
    recorded = commsim("run", "--json", *WHERE, *HOST, "--timeline", str(timeline), str(script))
    there = commsim("run", "--json", *WHERE, *HOST, *SLOWER, str(script))
    same = commsim("trace", "replay", str(timeline), "--json", *WHERE)
    replayed = commsim("trace", "replay", str(timeline), "--json", *WHERE, *SLOWER)
    assert same["replayed_duration_s"] == pytest.approx(recorded["duration_s"], rel=0.01)
    assert replayed["replayed_duration_s"] == pytest.approx(there["duration_s"], rel=0.05)
    assert float(str(there["duration_s"])) > 1.1 * float(str(recorded["duration_s"]))
