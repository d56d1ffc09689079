"""A message and the receive that waits for it have different tags."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
x = torch.ones(4)
if dist.get_rank() == 0:
    dist.send(x, dst=1, tag=7)
elif dist.get_rank() == 1:
    dist.recv(x, src=0, tag=8)
