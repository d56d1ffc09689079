"""Reinforcement learning: rank 0 trains, the others generate; weights are broadcast, rewards come
back, groups are normalised by their mean and deviation."""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, n = dist.get_rank(), dist.get_world_size()
actors = dist.new_group(list(range(1, n)))
torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3))
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
for step in range(3):
    with torch.no_grad():
        for p in policy.parameters():
            dist.broadcast(p, src=0)
    prompts = [[torch.full((2, 4), float(i + step)) for i in range(n)]] if rank == 0 else [None]
    dist.broadcast_object_list(prompts, src=0)
    states = prompts[0][rank]
    torch.manual_seed(100 * step + rank)
    with torch.no_grad():
        actions = torch.distributions.Categorical(logits=policy(states)).sample()
    reward = (actions == step % 3).float().sum()[None]
    if rank > 0:
        best = reward.clone()
        dist.all_reduce(best, op=dist.ReduceOp.MAX, group=actors)
    rewards = [torch.zeros(1) for _ in range(n)]
    dist.all_gather(rewards, reward)
    everything = [None] * n if rank == 0 else None
    dist.gather_object((states, actions), everything, dst=0)
    if rank == 0:
        rewards = torch.cat(rewards)
        advantage = (rewards - rewards.mean()) / (rewards.std() + 1e-4)
        loss = 0.0
        for a, (s, chosen) in zip(advantage, everything, strict=True):
            loss = (
                loss - a * torch.distributions.Categorical(logits=policy(s)).log_prob(chosen).sum()
            )
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step} loss {loss.item():.6f} reward {rewards.mean().item():.3f}")
dist.barrier()
dist.destroy_process_group()
