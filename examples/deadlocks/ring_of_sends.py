"""Every rank sends to the next one, and only then receives from the previous one."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, n = dist.get_rank(), dist.get_world_size()
mine, theirs = torch.full((1 << 20,), float(rank)), torch.empty(1 << 20)
dist.send(mine, dst=(rank + 1) % n)
dist.recv(theirs, src=(rank - 1) % n)
