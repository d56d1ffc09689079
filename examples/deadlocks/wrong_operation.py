"""One rank calls another collective than the others."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
x = torch.ones(4)
if dist.get_rank() == 2:
    dist.broadcast(x, src=0)
else:
    dist.all_reduce(x)
