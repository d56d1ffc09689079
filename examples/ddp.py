"""Data parallelism: every rank has the whole model, gradients are averaged in buckets."""

import torch
import torch.distributed as dist
from tiny_transformer import Transformer, batch, loss_of
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DistributedDataParallel(Transformer(), bucket_cap_mb=0.25)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(3):
    tokens, targets = batch(step, rank)
    loss = loss_of(model(tokens), targets)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    mean = loss.detach() / dist.get_world_size()
    dist.all_reduce(mean)
    if rank == 0:
        print(f"step {step} loss {mean.item():.7f}")
dist.destroy_process_group()
