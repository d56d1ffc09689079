"""Two ranks that share two groups use them in different orders."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
data = dist.new_group([0, 1])
model = dist.new_group([0, 1])
x = torch.ones(4)
if rank == 0:
    dist.all_reduce(x, group=data)
    dist.all_reduce(x, group=model)
elif rank == 1:
    dist.all_reduce(x, group=model)
    dist.all_reduce(x, group=data)
