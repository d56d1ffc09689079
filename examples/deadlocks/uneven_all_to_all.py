"""What rank 0 sends to rank 1 is not what rank 1 expects."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, n = dist.get_rank(), dist.get_world_size()
sends, expects = [2] * n, [2] * n
if rank == 0:
    sends[1] = 3
mine, theirs = torch.zeros(sum(sends)), torch.zeros(sum(expects))
dist.all_to_all_single(theirs, mine, expects, sends)
