"""The result of an asynchronous all_reduce is used before it is waited for."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
gradient = torch.ones(1024)
handle = dist.all_reduce(gradient, async_op=True)
gradient /= dist.get_world_size()
handle.wait()
