"""The receiver's buffer is not as large as the message."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() == 0:
    dist.send(torch.ones(8), dst=1)
elif dist.get_rank() == 1:
    dist.recv(torch.empty(4), src=0)
