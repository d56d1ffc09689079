"""Gradient accumulation under no_sync, a learning rate warm-up, and a mean that is logged."""

import argparse
import contextlib
import logging

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

parser = argparse.ArgumentParser()
parser.add_argument("--accumulate", type=int, default=4)
parser.add_argument("--local-rank", "--local_rank", type=int, default=0)
args = parser.parse_args()
dist.init_process_group()
rank = dist.get_rank()
logging.basicConfig(level=logging.INFO if rank == 0 else logging.ERROR)
torch.manual_seed(0)
model = DDP(nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
warmup = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=2)
torch.manual_seed(rank + 1)
for step in range(3):
    running = torch.zeros(1)
    for micro in range(args.accumulate):
        last = micro == args.accumulate - 1
        with contextlib.nullcontext() if last else model.no_sync():
            loss = model(torch.randn(5, 8)).square().mean() / args.accumulate
            loss.backward()
        running += loss.detach()
    optimizer.step()
    optimizer.zero_grad()
    warmup.step()
    dist.all_reduce(running, op=dist.ReduceOp.SUM)
    if rank == 0:
        logging.info("step %d", step)
        print(f"step {step} loss {running.item() / dist.get_world_size():.6f}", flush=True)
dist.destroy_process_group()
