"""Rank 0 sends to rank 2; rank 1 waits for it."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
x = torch.ones(4)
if rank == 0:
    dist.isend(x, dst=2)
elif rank == 1:
    dist.recv(x, src=0)
