"""What training frameworks are built of, on real Gloo and simulated: each prints a loss."""

import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import (
    PipelineStage,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
)
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "..", "examples"))
from tiny_transformer import Transformer, batch, loss_of

dist.init_process_group("gloo")
rank, n = dist.get_rank(), dist.get_world_size()


def show(name, value):
    if rank == 0:
        print(f"{name} {float(value):.7f}", flush=True)


def train(name, model, optimizer=None, steps=2, part=rank):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        tokens, targets = batch(step, part)
        loss = loss_of(model(tokens), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    show(name, mean / n)


def seeded(**options):
    torch.manual_seed(0)
    return DistributedDataParallel(Transformer(1), **options)


model = seeded()
state = PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2)
model.register_comm_hook(state, powerSGD_hook)
train("powersgd", model, steps=4)

model = seeded()
model.register_comm_hook(None, default_hooks.fp16_compress_hook)
train("fp16", model)

torch.manual_seed(0)
model = Transformer(1)
model.extra = nn.Linear(4, 4)
train("unused", DistributedDataParallel(model, find_unused_parameters=True))
train("static graph", seeded(static_graph=True, gradient_as_bucket_view=True), steps=3)

model = seeded()
tokens, targets = batch(0, rank)
with model.no_sync():
    loss_of(model(tokens), targets).backward()
train("no_sync", model)

model = seeded()
train("zero", model, ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=1e-3), 3)

torch.manual_seed(0)
model = FullyShardedDataParallel(Transformer(1), device_id=torch.device("cpu"))
train("fsdp1", model, torch.optim.Adam(model.parameters(), lr=1e-3))

torch.manual_seed(0)
mesh = init_device_mesh("cpu", (2, n // 2), mesh_dim_names=("replicate", "shard"))
model = Transformer(1)
fully_shard(model.blocks[0], mesh=mesh)
fully_shard(model, mesh=mesh)
train("hsdp", model)

torch.manual_seed(0)
mesh = init_device_mesh("cpu", (n // 2, 2), mesh_dim_names=("dp", "tp"))
model = Transformer(1)
plan = {"feed_forward.w1": ColwiseParallel(), "feed_forward.w2": RowwiseParallel()}
parallelize_module(model.blocks[0], mesh["tp"], plan)
fully_shard(model.blocks[0], mesh=mesh["dp"])
fully_shard(model, mesh=mesh["dp"])
train("tp and fsdp", model, part=rank // 2)

for name, kind in (
    ("interleaved", ScheduleInterleaved1F1B),
    ("zero bubble", ScheduleInterleavedZeroBubble),
):
    torch.manual_seed(0)
    whole = Transformer(2 * n)

    def stage(i, whole=whole):
        parts = [whole.blocks[i]]
        parts = [whole.embed, *parts] if i == 0 else parts
        parts = [*parts, whole.norm, whole.head] if i == 2 * n - 1 else parts
        return PipelineStage(nn.Sequential(*parts), i, 2 * n, torch.device("cpu"))

    schedule = kind([stage(rank), stage(rank + n)], n, loss_fn=loss_of)
    tokens, targets = batch(0, size=2 * n)
    losses = []
    if rank == 0:
        schedule.step(tokens)
    elif rank == n - 1:
        schedule.step(target=targets, losses=losses)
    else:
        schedule.step()
    if losses:
        print(f"{name} {torch.stack(losses).mean().item():.7f}", flush=True)


class Recomputing(Transformer):
    def forward(self, tokens):
        x = checkpoint(self.blocks[0], self.embed(tokens), use_reentrant=False)
        return self.head(self.norm(x))


torch.manual_seed(0)
train("checkpoint", DistributedDataParallel(Recomputing(1)))

torch.manual_seed(0)
model = Transformer(1)
fully_shard(model)
folder = [tempfile.mkdtemp() if rank == 0 else None]
dist.broadcast_object_list(folder, 0)
saved = {"model": model.state_dict()}
torch.distributed.checkpoint.save(saved, checkpoint_id=folder[0])
torch.distributed.checkpoint.load(saved, checkpoint_id=folder[0])
show("saved", saved["model"]["head.bias"].full_tensor().sum())

mesh = init_device_mesh("cpu", (n,))
a = distribute_tensor(torch.arange(64.0).view(8, 8), mesh, [Shard(0)])
b = a.redistribute(mesh, [Shard(1)])
show("dtensor", (a @ b.redistribute(mesh, [Replicate()])).full_tensor().sum())
partial = DTensor.from_local(torch.ones(4) * rank, mesh, [Partial()])
show("partial", partial.redistribute(mesh, [Replicate()]).to_local().sum())

data = TensorDataset(torch.arange(37.0))
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=True, seed=3))
total = sum(each[0].sum() * (i + 1) for i, each in enumerate(loader))
dist.all_reduce(total)
show("sampler", total)

model = seeded()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with Join([model]):
    for step in range(2 + rank % 2):
        tokens, targets = batch(step, rank)
        loss_of(model(tokens), targets).backward()
        optimizer.step()
        optimizer.zero_grad()
show("join", sum(p.detach().double().abs().sum() for p in model.parameters()))
dist.destroy_process_group()
