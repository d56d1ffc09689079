"""In a ring of batched sends and receives, rank 2 forgot to receive."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, n = dist.get_rank(), dist.get_world_size()
ops = [dist.P2POp(dist.isend, torch.ones(2), (rank + 1) % n)]
if rank != 2:
    ops.append(dist.P2POp(dist.irecv, torch.ones(2), (rank - 1) % n))
for work in dist.batch_isend_irecv(ops):
    work.wait()
