"""Adapters on a frozen model: only theirs are reduced; all ranks' are gathered for a merge."""

import torch
import torch.distributed as dist
from torch import nn


class Lora(nn.Module):
    def __init__(self, base, r=2):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(r, base.in_features) * 0.1)
        self.b = nn.Parameter(torch.zeros(base.out_features, r))

    def forward(self, x):
        return self.base(x) + x @ self.a.t() @ self.b.t()


dist.init_process_group("gloo")
rank, n = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = nn.Sequential(Lora(nn.Linear(8, 16)), nn.ReLU(), Lora(nn.Linear(16, 4)))
trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
optimizer = torch.optim.AdamW(trained.values(), lr=1e-2)
torch.manual_seed(rank)
for step in range(3):
    loss = model(torch.randn(6, 8)).square().mean()
    loss.backward()
    works = [dist.all_reduce(p.grad, async_op=True) for p in trained.values()]
    for work in works:
        work.wait()
    for p in trained.values():
        p.grad.div_(n)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    losses = [torch.zeros(()) for _ in range(n)] if rank == 0 else None
    dist.gather(loss.detach(), losses, dst=0)
    if rank == 0:
        print(f"step {step} loss {torch.stack(losses).mean().item():.6f}")
states = [None] * n
dist.all_gather_object(states, {name: p.detach() for name, p in trained.items()})
merged = {name: torch.stack([s[name] for s in states]).mean(0) for name in trained}
if rank == 0:
    print(f"merged {sum(v.abs().sum() for v in merged.values()).item():.6f}")
dist.destroy_process_group()
