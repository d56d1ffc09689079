"""One rank of a data-parallel training step with torch's DDP over Gloo; prints times as JSON.

The model is a plain MLP with SGD. Alone (one rank) it also tells when each parameter's gradient
was ready, counted from the start of the backward pass: what a prediction is built from.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WARM = 3  # steps not counted: DDP makes its buckets anew after the first


def main() -> None:
    plan = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    yield_to_gloo()
    width, layers = plan["width"], plan["layers"]
    model = nn.Sequential(
        *(part for _ in range(layers) for part in (nn.Linear(width, width), nn.ReLU()))
    )
    wrapped = DistributedDataParallel(model, bucket_cap_mb=plan["cap_mib"])
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=1e-3)
    batch = torch.randn(plan["batch"], width)
    ready: dict[int, float] = {}
    for index, parameter in enumerate(model.parameters()):
        parameter.register_post_accumulate_grad_hook(note(ready, index))  # type: ignore[no-untyped-call]
    records: list[dict[str, Any]] = []
    for _ in range(WARM + plan["steps"]):
        start = time.monotonic()
        loss = wrapped(batch).square().mean()
        forward = time.monotonic()
        loss.backward()
        backward = time.monotonic()
        optimizer.step()
        optimizer.zero_grad()
        end = time.monotonic()
        records.append({
            "forward": forward - start, "backward": backward - forward, "after": end - backward,
            "whole": end - start, "ready": [ready[i] - forward for i in sorted(ready)],
        })  # fmt: skip
    told = records[WARM:]
    found = {key: statistics.median(r[key] for r in told) for key in records[0] if key != "ready"}
    times = [statistics.median(column) for column in zip(*(r["ready"] for r in told), strict=True)]
    nbytes = [4 * parameter.numel() for parameter in model.parameters()]
    dist.barrier()
    dist.destroy_process_group()
    json.dump({**found, "wholes": [r["whole"] for r in told], "ready": times, "bytes": nbytes},
              sys.stdout)  # fmt: skip


def note(ready: dict[int, float], index: int) -> Callable[[torch.Tensor], None]:
    """A hook that writes down when a parameter's gradient is complete."""

    def hook(_parameter: torch.Tensor) -> None:
        ready[index] = time.monotonic()

    return hook


def yield_to_gloo() -> None:
    """This thread computes; Gloo's, which exist by now, go first when they have something to do, as
    they would with a core of their own."""
    if os.sched_getscheduler(0) == os.SCHED_FIFO:
        lower = os.sched_getparam(0).sched_priority - 1
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(lower))


if __name__ == "__main__":
    main()
