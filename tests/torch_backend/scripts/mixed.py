"""Collectives, messages and computation of several sizes, some at once."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, n = dist.get_rank(), dist.get_world_size()
x = torch.randn(64, 64)
for i in range(4):
    works = [dist.all_reduce(torch.ones(1 << (4 * i)), async_op=True) for _ in range(2)]
    y = x @ x
    for _ in range(rank):
        y = y @ x
    dist.barrier()
    request = dist.isend(y, dst=(rank + 1) % n)
    dist.recv(torch.empty(64, 64), src=(rank - 1) % n)
    request.wait()
    for work in works:
        work.wait()
