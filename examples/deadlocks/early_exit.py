"""A rank leaves in the middle of training; the others go on without it."""

import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for step in range(3):
    if dist.get_rank() == 3 and step == 1:
        sys.exit(0)
    dist.all_reduce(torch.ones(2))
