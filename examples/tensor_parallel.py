"""Tensor parallelism: every layer is cut in columns, then in rows; its output is summed."""

import torch
import torch.distributed as dist
from tiny_transformer import Transformer, batch, loss_of
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
torch.manual_seed(0)
model = Transformer()
for block in model.blocks:
    plan = {f"attention.{name}": ColwiseParallel() for name in ("wq", "wk", "wv")}
    plan |= {"attention.wo": RowwiseParallel()}
    plan |= {"feed_forward.w1": ColwiseParallel(), "feed_forward.w2": RowwiseParallel()}
    parallelize_module(block, mesh, plan)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-1)
for step in range(3):
    tokens, targets = batch(step)
    loss = loss_of(model(tokens), targets)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if dist.get_rank() == 0:
        print(f"step {step} loss {loss.item():.7f}")
dist.destroy_process_group()
