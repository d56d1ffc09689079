"""A rank swallows its error and is at the barrier while the others are in an all_reduce."""

import contextlib

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
with contextlib.suppress(RuntimeError):
    if dist.get_rank() == 1:
        raise RuntimeError("a bad batch")
    dist.all_reduce(torch.ones(1))
dist.barrier()
