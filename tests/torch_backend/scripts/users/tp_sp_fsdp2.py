"""Tensor and sequence parallelism with loss_parallel, and FSDP2, on a mesh of two dimensions."""

import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)


class Attention(nn.Module):
    def __init__(s, d, h):
        super().__init__()
        s.hd = d // h
        s.wq = nn.Linear(d, d, bias=False)
        s.wk = nn.Linear(d, d, bias=False)
        s.wv = nn.Linear(d, d, bias=False)
        s.wo = nn.Linear(d, d, bias=False)

    def forward(s, x):
        b, t, _ = x.shape
        q, k, v = (w(x).view(b, t, -1, s.hd).transpose(1, 2) for w in (s.wq, s.wk, s.wv))
        return s.wo(
            F.scaled_dot_product_attention(q, k, v, is_causal=True)
            .transpose(1, 2)
            .reshape(b, t, -1)
        )


class FF(nn.Module):
    def __init__(s, d):
        super().__init__()
        s.w1 = nn.Linear(d, 2 * d, bias=False)
        s.w2 = nn.Linear(2 * d, d, bias=False)
        s.w3 = nn.Linear(d, 2 * d, bias=False)

    def forward(s, x):
        return s.w2(F.silu(s.w1(x)) * s.w3(x))


class TB(nn.Module):
    def __init__(s, d, h):
        super().__init__()
        s.attention_norm = nn.LayerNorm(d)
        s.attention = Attention(d, h)
        s.ffn_norm = nn.LayerNorm(d)
        s.feed_forward = FF(d)

    def forward(s, x):
        x = x + s.attention(s.attention_norm(x))
        return x + s.feed_forward(s.ffn_norm(x))


class T(nn.Module):
    def __init__(s, v=64, d=32, h=4, n=1):
        super().__init__()
        s.tok_embeddings = nn.Embedding(v, d)
        s.layers = nn.ModuleList(TB(d, h) for _ in range(n))
        s.norm = nn.LayerNorm(d)
        s.output = nn.Linear(d, v, bias=False)

    def forward(s, t):
        x = s.tok_embeddings(t)
        for layer in s.layers:
            x = layer(x)
        return s.output(s.norm(x))


cuda = torch.cuda.is_available()
dev = "cuda" if cuda else "cpu"
if cuda:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl" if cuda else "gloo")
world = dist.get_world_size()
mesh = init_device_mesh(dev, (world // 2, 2), mesh_dim_names=("dp", "tp"))
tp, dp = mesh["tp"], mesh["dp"]
torch.manual_seed(0)
m = T().to(dev)
m = parallelize_module(
    m,
    tp,
    {
        "tok_embeddings": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "output": ColwiseParallel(
            input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False
        ),
    },
)
for b in m.layers:
    parallelize_module(
        b,
        tp,
        {
            "attention_norm": SequenceParallel(),
            "attention": PrepareModuleInput(
                input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)
            ),
            "attention.wq": ColwiseParallel(),
            "attention.wk": ColwiseParallel(),
            "attention.wv": ColwiseParallel(),
            "attention.wo": RowwiseParallel(output_layouts=Shard(1)),
            "ffn_norm": SequenceParallel(),
            "feed_forward": PrepareModuleInput(
                input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)
            ),
            "feed_forward.w1": ColwiseParallel(),
            "feed_forward.w3": ColwiseParallel(),
            "feed_forward.w2": RowwiseParallel(output_layouts=Shard(1)),
        },
    )
    fully_shard(b, mesh=dp)
fully_shard(m, mesh=dp)
opt = torch.optim.AdamW(m.parameters(), lr=3e-3, foreach=True)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, 1e-2, total_steps=10)
for step in range(2):
    torch.manual_seed(100 + step * 10 + dp.get_local_rank())
    x = torch.randint(64, (2, 8), device=dev)
    y = torch.randint(64, (2, 8), device=dev)
    with loss_parallel():
        loss = F.cross_entropy(m(x).flatten(0, 1), y.flatten(0, 1))
        loss.backward()
    g = torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
    opt.step()
    opt.zero_grad()
    sched.step()
    total = loss.full_tensor() if isinstance(loss, DTensor) else loss
    dist.all_reduce(total)
    gt = g.full_tensor()
    if dist.get_rank() == 0:
        print(f"step {step} loss {total.item() / world:.5f} norm {gt.item():.4f}")
dist.destroy_process_group()
