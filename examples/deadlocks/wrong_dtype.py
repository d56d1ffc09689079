"""One rank reduces in half precision, the others do not."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
gradient = torch.ones(256)
if dist.get_rank() == 1:
    gradient = gradient.half()
dist.all_reduce(gradient)
