"""A collective inside `if rank == 0`."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
loss = torch.ones(1)
dist.all_reduce(loss)
if dist.get_rank() == 0:
    total = loss.clone()
    dist.all_reduce(total)
    print(f"total {total.item()}")
dist.barrier()
