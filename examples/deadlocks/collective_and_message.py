"""Rank 0 broadcasts first, rank 1 first waits for a message from it."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
x = torch.ones(4)
if rank == 1:
    dist.recv(x, src=0)
dist.broadcast(x, src=0)
if rank == 0:
    dist.send(x, dst=1)
