"""Pipeline parallelism, 1F1B: each rank has some of the layers, micro-batches flow through them."""

import torch
import torch.distributed as dist
from tiny_transformer import Block, Transformer, batch, loss_of
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

dist.init_process_group("gloo")
rank, n = dist.get_rank(), dist.get_world_size()
MICRO_BATCHES = n
torch.manual_seed(0)
whole = Transformer(layers=n)
parts: list[nn.Module] = [whole.blocks[rank]]
if rank == 0:
    parts.insert(0, whole.embed)
if rank == n - 1:
    parts += [whole.norm, whole.head]
assert isinstance(whole.blocks[rank], Block)
module = nn.Sequential(*parts)
stage = PipelineStage(module, rank, n, torch.device("cpu"))
schedule = Schedule1F1B(stage, MICRO_BATCHES, loss_fn=loss_of)
optimizer = torch.optim.SGD(module.parameters(), lr=1e-1)
for step in range(3):
    tokens, targets = batch(step, size=2 * MICRO_BATCHES)
    losses: list[torch.Tensor] = []
    if rank == 0:
        schedule.step(tokens)
    elif rank == n - 1:
        schedule.step(target=targets, losses=losses)
    else:
        schedule.step()
    optimizer.step()
    optimizer.zero_grad()
    if losses:
        print(f"step {step} loss {torch.stack(losses).mean().item():.7f}")
dist.destroy_process_group()
