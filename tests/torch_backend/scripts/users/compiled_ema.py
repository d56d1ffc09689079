"""DDP compiled, with a gradient scaler, an EMA, schedules, and rank 0 that stops early."""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP


@record
def main():
    dist.init_process_group(init_method="env://", backend="gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 4)
    )
    ema = torch.optim.swa_utils.AveragedModel(
        model, avg_fn=torch.optim.swa_utils.get_ema_avg_fn(0.9)
    )
    model = DDP(model, broadcast_buffers=True, gradient_as_bucket_view=True)
    model = torch.compile(model, backend="eager")
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    sched = torch.optim.lr_scheduler.SequentialLR(
        opt,
        [
            torch.optim.lr_scheduler.LinearLR(opt, 0.1, total_iters=2),
            torch.optim.lr_scheduler.CosineAnnealingLR(opt, 8),
        ],
        [2],
    )
    scaler = torch.amp.GradScaler("cpu", enabled=True)
    torch.manual_seed(rank)
    for step in range(4):
        x, y = torch.randn(8, 16), torch.randint(4, (8,))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()
        opt.zero_grad()
        sched.step()
        ema.update_parameters(model)
        stats = [None] * dist.get_world_size()
        dist.all_gather_object(stats, {"rank": rank, "loss": round(loss.item(), 1)})
        stop = [step == 2]
        dist.broadcast_object_list(stop, src=0)
        if rank == 0:
            print("step", step, f"lr {sched.get_last_lr()[0]:.4f}", [s["rank"] for s in stats])
        if stop[0]:
            break
    dist.barrier()
    path = [os.path.join(tempfile.mkdtemp(), "last.pt") if rank == 0 else None]
    dist.broadcast_object_list(path, src=0)
    if rank == 0:
        torch.save({"model": model.state_dict()}, path[0])
    dist.barrier()
    sd = torch.load(path[0], map_location="cpu", weights_only=True)
    model.load_state_dict(sd["model"])
    t = torch.tensor([sum(p.sum().item() for p in model.parameters())])
    dist.all_reduce(t, op=dist.ReduceOp.MAX)
    if rank == 0:
        print(f"sum {t.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
