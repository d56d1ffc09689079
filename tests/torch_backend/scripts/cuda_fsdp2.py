"""FSDP2 as it is written for NVIDIA GPUs, its parameters made where they are sharded."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
mesh = init_device_mesh("cuda", (dist.get_world_size(),))
with torch.device("meta"):
    model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(4)])
for layer in model:
    fully_shard(layer, mesh=mesh, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
fully_shard(model, mesh=mesh)
model.to_empty(device="cuda")
for parameter in model.parameters():
    nn.init.ones_(parameter)
optimizer = torch.optim.Adam(model.parameters(), foreach=True)
start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
copies = torch.cuda.Stream()
for _ in range(2):
    start.record()
    with torch.cuda.stream(copies):
        x = torch.randn(8, 64).cuda(non_blocking=True)
    torch.cuda.current_stream().wait_stream(copies)
    x.record_stream(torch.cuda.current_stream())
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(x).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    end.record()
torch.cuda.synchronize()
if dist.get_rank() == 0:
    print(start.elapsed_time(end))
dist.destroy_process_group()
