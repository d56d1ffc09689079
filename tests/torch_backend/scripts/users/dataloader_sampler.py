"""A DataLoader with DistributedSampler over two epochs, streams and events, and an evaluation."""

import os
import random

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Squares(Dataset):
    def __len__(self):
        return 50

    def __getitem__(self, i):
        x = torch.tensor([i / 50.0, 1.0])
        return x, x[:1] ** 2


def seed_everything(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(seed)


def worker(rank, world_size):
    os.environ.setdefault("MASTER_ADDR", "localhost")
    os.environ.setdefault("MASTER_PORT", "12355")
    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo", rank=rank, world_size=world_size)
    device = torch.device(f"cuda:{rank}") if cuda else torch.device("cpu")
    seed_everything(7)
    model = DDP(nn.Linear(2, 1).to(device), device_ids=[rank] if cuda else None)
    data = Squares()
    sampler = DistributedSampler(data, num_replicas=world_size, rank=rank, shuffle=True)
    loader = DataLoader(data, batch_size=4, sampler=sampler, pin_memory=cuda, drop_last=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if cuda:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        side = torch.cuda.Stream()
        start.record()
    for epoch in range(2):
        sampler.set_epoch(epoch)
        total = torch.zeros(2, device=device)
        for x, y in loader:
            x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total += torch.tensor([loss.item(), 1.0], device=device)
        if cuda:
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                dist.all_reduce(total)
            torch.cuda.current_stream().wait_stream(side)
        else:
            dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch} loss {(total[0] / total[1]).item():.6f}")
    if cuda:
        end.record()
        torch.cuda.synchronize()
        assert start.elapsed_time(end) > 0
    model.eval()
    with torch.inference_mode():
        worst = (model(torch.ones(1, 2, device=device)) - 1).abs()
        dist.all_reduce(worst, op=dist.ReduceOp.MAX)
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:
        worker(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    else:
        mp.spawn(worker, args=(4,), nprocs=4)
