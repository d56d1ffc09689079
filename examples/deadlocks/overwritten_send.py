"""A buffer is filled again while its message may still be under way."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
x = torch.ones(1024)
if rank == 0:
    handle = dist.isend(x, dst=1)
    x.fill_(2)
    handle.wait()
elif rank == 1:
    dist.recv(x, src=0)
