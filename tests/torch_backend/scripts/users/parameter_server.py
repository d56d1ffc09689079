"""A parameter server: workers send gradients, rank 0 takes them as they come and sends weights."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, n = dist.get_rank(), dist.get_world_size()
weights, rounds = torch.ones(10), 3
if rank == 0:
    seen = []
    for _ in range(rounds * (n - 1)):
        gradient = torch.zeros(10)
        worker = dist.recv(gradient, tag=1)
        weights -= 0.1 * gradient
        seen.append(worker)
        dist.send(weights * 0 + len(seen), dst=worker, tag=2)
    print("served", sorted(seen), f"{weights.sum().item():.5f}")
else:
    for step in range(rounds):
        gradient = torch.full((10,), float(rank + step))
        handle = dist.isend(gradient, dst=0, tag=1)
        handle.wait()
        answer = torch.zeros(10)
        dist.recv(answer, src=0, tag=2)
        assert answer[0] >= 1
dist.destroy_process_group()
