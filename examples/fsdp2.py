"""Fully sharded data parallelism: parameters are gathered layer by layer, gradients scattered."""

import torch
import torch.distributed as dist
from tiny_transformer import Transformer, batch, loss_of
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
rank, n = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh("cpu", (n,))
torch.manual_seed(0)
model = Transformer()
for block in model.blocks:
    fully_shard(block, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(3):
    tokens, targets = batch(step, rank)
    loss = loss_of(model(tokens), targets)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    mean = loss.detach() / n
    dist.all_reduce(mean)
    if rank == 0:
        print(f"step {step} loss {mean.item():.7f}")
dist.destroy_process_group()
