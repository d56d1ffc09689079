"""Waits that did not show when they were recorded, but would on a slower network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from commsim.traces.kineto import Kineto
from commsim.traces.recording import Recording

from .kineto_files import COMPUTE, NCCL, Event, kernel, metadata, runtime, write


def sharded(noted: bool) -> list[Event]:
    """FSDP: two parameters gathered early, each before the layer that needs it; gradients leave
    behind the second. Nothing ever waits long enough to be seen. Launches 1 us apart."""

    def gather(start: float, number: int) -> Event:
        asked = metadata("_allgather_base", 32, number) | {"Out msg nelems": 64}
        return kernel("ncclDevKernel_AllGather", start, 5, NCCL, number, **asked)

    reduced = metadata("_reduce_scatter_base", 64, 3)
    events = [
        runtime("cudaStreamWaitEvent", 0.5, 0.1),  # NCCL's stream behind the current one
        runtime("cudaLaunchKernelExC", 1, 0.2, 1), runtime("cudaEventRecord", 1.4, 0.1, 101),
        runtime("cudaLaunchKernelExC", 2, 0.2, 2), runtime("cudaEventRecord", 2.4, 0.1, 102),
        runtime("cudaStreamWaitEvent", 3, 0.1, 103), runtime("cudaLaunchKernel", 4, 0.2, 4),
        runtime("cudaLaunchKernelExC", 5, 0.2, 5), runtime("cudaEventRecord", 5.4, 0.1, 105),
        runtime("cudaStreamWaitEvent", 6, 0.1, 106), runtime("cudaLaunchKernel", 7, 0.2, 7),
        gather(10, 1), gather(15, 2), kernel("layer_1", 100, 50, COMPUTE, 4),
        kernel("ncclDevKernel_ReduceScatter", 150, 5, NCCL, 5, **reduced),
        kernel("layer_2", 200, 50, COMPUTE, 7),
    ]  # fmt: skip
    if noted:
        for correlation, record in ((103, 101), (106, 102)):
            events.append({
                "ph": "X", "cat": "cuda_sync", "name": "Stream Wait Event", "pid": 0, "ts": 3,
                "tid": COMPUTE, "dur": 0, "args": {
                    "stream": COMPUTE, "correlation": correlation, "wait_on_stream": NCCL,
                    "wait_on_cuda_event_record_corr_id": record,
                },
            })  # fmt: skip
    return events


def waits(recording: Recording) -> dict[str, list[int]]:
    """By layer the numbers of the operations that it is known to wait for."""
    found: dict[str, list[int]] = {}
    for event in recording.events:
        if event.name.startswith("layer"):
            calls = [recording.events[j].call for j in event.after]
            found[event.name] = [c.sequence for c in calls if c is not None]
    return found


@pytest.mark.parametrize("noted", [True, False])
def test_layers_wait_for_their_parameters(tmp_path: Path, noted: bool) -> None:
    (found,) = Kineto().recordings(write(tmp_path / "r.json", sharded(noted)))
    assert waits(found) == {"layer_1": [1], "layer_2": [2]}
    said = [note for note in found.notes if "taken for the operations in their order" in note]
    assert bool(said) is not noted


def test_what_was_still_under_way_is_not_meant(tmp_path: Path) -> None:
    events: list[Any] = [e for e in sharded(False) if e["name"] != "layer_2"]
    for event in events:
        if event["args"].get("Seq") == 1:
            event |= {"ts": 90, "dur": 30}  # not over when layer_1 begins
        if event["args"].get("Seq") == 2:
            event |= {"ts": 120, "dur": 5}
    (found,) = Kineto().recordings(write(tmp_path / "r.json", events))
    assert waits(found) == {"layer_1": []}
