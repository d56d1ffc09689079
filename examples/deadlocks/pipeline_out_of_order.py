"""The first stage waits for a gradient, the second for another micro-batch."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
x = torch.ones(1024)
if dist.get_rank() == 0:
    dist.send(x, dst=1)
    dist.recv(x, src=1)
    dist.send(x, dst=1)
elif dist.get_rank() == 1:
    dist.recv(x, src=0)
    dist.recv(x, src=0)
    dist.send(x, dst=0)
