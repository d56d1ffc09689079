"""Blocking and non-blocking messages between two ranks."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
x = torch.zeros(1)
if rank == 0:
    x += 1
    dist.send(x, dst=1)  # returns when rank 1 receives
    request = dist.isend(x + 1, dst=1)  # returns at once
    request.wait()
elif rank == 1:
    dist.recv(x, src=0)
    print(f"received {x.item()}")
    request = dist.irecv(x, src=0)
    request.wait()  # before this, x may hold anything
    print(f"received {x.item()}")
