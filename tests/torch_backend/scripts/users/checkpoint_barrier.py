"""ImageNet style: synchronised batch norm, a save on rank 0 between barriers, a load on all."""

import os
import sys
import tempfile

import torch
import torch.distributed as dist
from torch import nn


def setup():
    use_cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if use_cuda else "gloo", init_method="env://")
    if use_cuda:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def reduce_dict(values):
    names = sorted(values)
    stacked = torch.stack([values[name] for name in names])
    dist.all_reduce(stacked)
    return dict(zip(names, (stacked / dist.get_world_size()).tolist(), strict=True))


def main():
    device = setup()
    rank = dist.get_rank()
    folder = [tempfile.mkdtemp() if rank == 0 else ""]
    dist.broadcast_object_list(folder, src=0)
    path = os.path.join(folder[0], "model.pth")
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
    ).to(device)
    if device.type == "cuda":
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    ids = [torch.cuda.current_device()] if device.type == "cuda" else None
    ddp = nn.parallel.DistributedDataParallel(model, device_ids=ids)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    torch.manual_seed(rank)
    for step in range(2):
        images = torch.randn(4, 3, 8, 8, device=device)
        target = torch.randint(5, (4,), device=device)
        output = ddp(images)
        loss = nn.functional.cross_entropy(output, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        hits = (output.argmax(1) == target).float().mean()
        shown = reduce_dict({"loss": loss.detach(), "top1": hits})
        if rank == 0:
            print(f"step {step} top1 {shown['top1']:.3f} loss {shown['loss']:.6f}")
            sys.stdout.flush()
    dist.barrier()
    if rank == 0:
        torch.save(model.state_dict(), path)
    dist.barrier()
    where = {"cuda:0": f"cuda:{rank}"} if device.type == "cuda" else "cpu"
    model.load_state_dict(torch.load(path, map_location=where, weights_only=True))
    dist.barrier(device_ids=ids)
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
