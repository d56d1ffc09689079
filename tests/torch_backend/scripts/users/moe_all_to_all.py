"""Experts on every rank: tokens go to theirs and back by uneven all_to_all, with gradients."""

import torch
import torch.distributed as dist
from torch import nn


class AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, to, of):
        ctx.splits = to, of
        out = x.new_empty(sum(of), x.shape[1])
        dist.all_to_all_single(out, x.contiguous(), of, to)
        return out

    @staticmethod
    def backward(ctx, grad):
        to, of = ctx.splits
        out = grad.new_empty(sum(to), grad.shape[1])
        dist.all_to_all_single(out, grad.contiguous(), to, of)
        return out, None, None


dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
rank, n = dist.get_rank(), dist.get_world_size()
device = (
    torch.device("cuda", rank % torch.cuda.device_count()) if torch.cuda.is_available() else "cpu"
)
torch.manual_seed(0)
router = nn.Linear(8, n, bias=False).to(device)
torch.manual_seed(rank)
expert = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8)).to(device)
parameters = [*router.parameters(), *expert.parameters()]
optimizer = torch.optim.SGD(parameters, lr=0.1)
for step in range(3):
    x = torch.randn(12, 8, device=device)
    scores = router(x).softmax(-1)
    weight, chosen = scores.max(-1)
    order = chosen.argsort(stable=True)
    counts = torch.bincount(chosen, minlength=n)
    theirs = torch.empty_like(counts)
    dist.all_to_all_single(theirs, counts)
    to, of = counts.tolist(), theirs.tolist()
    inbox = AllToAll.apply(x[order], to, of)
    back = AllToAll.apply(expert(inbox), of, to)
    y = torch.zeros_like(x).index_copy(0, order, back) * weight[:, None]
    loss = (y - x).square().mean()
    loss.backward()
    for p in router.parameters():
        dist.all_reduce(p.grad)
        p.grad /= n
    optimizer.step()
    optimizer.zero_grad()
    total = loss.detach().clone()
    dist.reduce(total, dst=0)
    if rank == 0:
        print(f"step {step} loss {total.item() / n:.6f}")
dist.destroy_process_group()
