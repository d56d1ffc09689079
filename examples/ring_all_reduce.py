"""An all_reduce written with messages, after the ring algorithm: each rank talks to two others.

Two rounds of n - 1 steps: chunks are summed on their way round, then the sums go round once more.
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, n = dist.get_rank(), dist.get_world_size()
following, previous = (rank + 1) % n, (rank - 1) % n
data = torch.arange(4.0 * n) * (rank + 1)
chunks = list(data.chunk(n))
received = torch.empty_like(chunks[0])
for step in range(n - 1):
    request = dist.isend(chunks[(rank - step) % n], dst=following)
    dist.recv(received, src=previous)
    request.wait()
    chunks[(rank - step - 1) % n] += received
for step in range(n - 1):
    request = dist.isend(chunks[(rank + 1 - step) % n], dst=following)
    dist.recv(chunks[(rank - step) % n], src=previous)
    request.wait()
expected = torch.arange(4.0 * n) * (n * (n + 1) / 2)
assert torch.equal(data, expected)
print(f"rank {rank}: {data[:4].tolist()}")
