"""DDP as it is written for NVIDIA GPUs."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

local = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
device = torch.device("cuda", local)
dist.init_process_group("nccl", device_id=device)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)).cuda()
model = DistributedDataParallel(model, device_ids=[local])
model.register_comm_hook(None, default_hooks.bf16_compress_hook)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
for _ in range(3):
    start.record()
    x = torch.randn(32, 64, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    end.record()
    torch.cuda.synchronize()
stream = torch.cuda.Stream()
with torch.cuda.stream(stream):
    y = torch.ones(8, device=device).to("cuda", non_blocking=True)
torch.cuda.current_stream().wait_stream(stream)
dist.barrier(device_ids=[local])
if dist.get_rank() == 0:
    print(start.elapsed_time(end), torch.cuda.get_device_name(), dist.get_backend())
dist.destroy_process_group()
