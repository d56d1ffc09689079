"""A rank leaves early; the others wait for it in a barrier."""

import sys

import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() == 3:
    sys.exit()
dist.barrier()
