"""One rank raises; the others would wait for it for ever."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
loss = torch.ones(1)
if dist.get_rank() == 2:
    raise ValueError("loss is not a number")
dist.all_reduce(loss)
