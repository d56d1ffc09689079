"""Rank 0 starts a collective, never waits for it, and nobody else calls it."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
x = torch.ones(4)
if dist.get_rank() == 0:
    dist.all_reduce(x, async_op=True)
