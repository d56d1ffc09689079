"""Every communication hook that torch has for DDP: what the parameters are after training with it.

The same on real Gloo and on a simulated cluster; one line of JSON per rank. A hook that torch
itself refuses leaves its error.
"""

import json

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import (
    DDPCommHookType,
    ddp_zero_hook,
    debugging_hooks,
    default_hooks,
    post_localSGD_hook,
    powerSGD_hook,
    quantization_hooks,
    register_ddp_comm_hook,
)
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import (
    PostLocalSGDOptimizer,
    ZeroRedundancyOptimizer,
    _apply_optimizer_in_backward,
)
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
rank, n = dist.get_rank(), dist.get_world_size()
found = {}


def seeded():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 24), nn.Tanh(), nn.Linear(24, 8))
    return DistributedDataParallel(model, bucket_cap_mb=0.001)


def train(model, optimizer=None, steps=3):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(1 + rank)
    for _ in range(steps):
        model(torch.randn(4, 16)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return [p.detach().double().sum().item() for p in model.parameters()]


def case(name, prepare):
    """prepare: does something to a model, and may give an optimizer."""
    model = seeded()
    try:
        found[name] = train(model, prepare(model))
    except Exception as error:
        found[name] = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def hooked(name, hook, state=None):
    case(name, lambda model: model.register_comm_hook(state, hook))


def unnamed(hook):
    """torch goes by the name, and allows bf16 on GPUs only."""
    return lambda state, bucket: hook(state, bucket)


def power(rank, start=2, **options):
    return powerSGD_hook.PowerSGDState(None, rank, start_powerSGD_iter=start, **options)


allreduce = default_hooks.allreduce_hook
bf16_wrapped = default_hooks.bf16_compress_wrapper(allreduce)
powersgd, batched = powerSGD_hook.powerSGD_hook, powerSGD_hook.batched_powerSGD_hook
hooked("allreduce", allreduce)
hooked("fp16", default_hooks.fp16_compress_hook)
hooked("fp16 wrapper", default_hooks.fp16_compress_wrapper(allreduce))
hooked("bf16", default_hooks.bf16_compress_hook)
hooked("bf16 unnamed", unnamed(default_hooks.bf16_compress_hook))
hooked("bf16 wrapper", bf16_wrapped)
hooked("bf16 wrapper unnamed", unnamed(bf16_wrapped))
hooked("noop", debugging_hooks.noop_hook)
hooked("quantized per tensor", quantization_hooks.quantization_pertensor_hook)
hooked("quantized per channel", quantization_hooks.quantization_perchannel_hook)
hooked("powerSGD", powersgd, power(2))
hooked("powerSGD forgetting", powersgd, power(1, use_error_feedback=False, warm_start=False))
hooked("powerSGD in fp16", default_hooks.fp16_compress_wrapper(powersgd), power(1))
hooked("batched powerSGD", batched, power(1))
for kind in (DDPCommHookType.FP16_COMPRESS, DDPCommHookType.POWER_SGD):
    if isinstance(kind, DDPCommHookType):  # torch 2.6's are none from Python 3.13 on
        case(f"type {kind.name}",
             lambda model, kind=kind: register_ddp_comm_hook(kind, model, state=None))  # fmt: skip
for builtin in (dist.BuiltinCommHookType.ALLREDUCE, dist.BuiltinCommHookType.FP16_COMPRESS):
    case(f"builtin {builtin.name}",
         lambda model, kind=builtin: model._register_builtin_comm_hook(kind))  # fmt: skip

# averaging now and then
nodes, _ = dist.new_subgroups(n // 2)


def local_sgd(model):
    state = post_localSGD_hook.PostLocalSGDState(None, nodes, start_localSGD_iter=2)
    model.register_comm_hook(state, post_localSGD_hook.post_localSGD_hook)
    averager = PeriodicModelAverager(period=2, warmup_steps=2)
    return PostLocalSGDOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), averager)


case("post localSGD", local_sgd)


class Late(torch.optim.SGD):
    """Lets the first two steps pass, as ZeRO does while it looks at DDP's buckets."""

    passed = 0

    def step(self):
        self.passed += 1
        if self.passed > 2:
            super().step()


case("late", lambda model: Late(model.parameters(), lr=0.1))


# the optimizer within the backward pass
def zero(hook):
    def prepare(model):
        optimizer = ZeroRedundancyOptimizer(
            model.parameters(), torch.optim.SGD, overlap_with_ddp=True, lr=0.1
        )
        model.register_comm_hook(None, hook(allreduce, model, optimizer))
        return optimizer

    return prepare


def in_backward(model):
    _apply_optimizer_in_backward(torch.optim.SGD, model.parameters(), {"lr": 0.1})


case("zero", zero(ddp_zero_hook.hook_with_zero_step))
case("zero interleaved", zero(ddp_zero_hook.hook_with_zero_step_interleaved))
case("fused optimizer", lambda model: model._register_fused_optim(torch.optim.SGD, 0.1))
case("optimizer in backward", in_backward)
print(f"{rank} {json.dumps(found)}", flush=True)
dist.destroy_process_group()
