"""The trace of a run: for Perfetto, and for readers of torch.profiler's traces."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch")

from commsim.torch_backend import write_timeline


def test_events(tmp_path: Path, simulate: Callable) -> None:
    run, _ = simulate(
        """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.ones(64, 64)
work = dist.all_reduce(torch.ones(1 << 20), async_op=True)
y = x @ x
work.wait()
if dist.get_rank() == 0: dist.send(y, dst=1)
else: dist.recv(y, src=0)
out = torch.empty(2 * 8)
dist.all_gather(list(out.chunk(2)), torch.ones(8))
""",
        2,
        keep_spans=True,
    )
    assert run.failure is None, run.failure
    path = tmp_path / "trace.json"
    write_timeline(run, path)
    trace = json.loads(path.read_text())
    slices = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    named = {(e["pid"], e["name"]): e for e in slices}
    for rank in (0, 1):
        reduced = named[rank, "ncclDevKernel_AllReduce(all_reduce)"]
        assert reduced["args"]["In msg nelems"] == 1 << 20
        assert reduced["args"]["Group size"] == 2
        assert reduced["args"]["script"].endswith("script.py:5")
        assert named[rank, "ncclDevKernel_AllGather(all_gather)"]["args"]["Out msg nelems"] == 16
        product = named[rank, "aten::mm"]
        assert reduced["ts"] < product["ts"] < reduced["ts"] + reduced["dur"]
    message = named[1, "ncclDevKernel_SendRecv(recv)"]["args"]
    assert (message["Src Rank"], message["Dst Rank"], message["bytes"]) == (0, 1, 16384)
    assert {e["pid"] for e in slices} == {0, 1}
    validator = pytest.importorskip("torch.profiler._trace_validator")  # not yet in torch 2.6
    ok, problems = validator.validate_trace(str(path))
    assert ok, problems
