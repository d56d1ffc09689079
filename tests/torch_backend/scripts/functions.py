"""Calls every function of torch.distributed once and prints what each rank has afterwards.

The same on real Gloo and on a simulated cluster; one line of JSON per rank.
"""

import contextlib
import json
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.distributed_c10d import _coalescing_manager

dist.init_process_group("gloo", timeout=timedelta(seconds=60))
rank, n = dist.get_rank(), dist.get_world_size()
following, previous = (rank + 1) % n, (rank - 1) % n
found = {}


def mine(*shape, dtype=torch.float32):
    """Different on every rank, and small enough to be exact in every type."""
    count = 1
    for size in shape:
        count *= size
    return ((torch.arange(count) * 3 + 5 * rank) % 7 + 1).to(dtype).view(*shape)


def keep(name, *tensors):
    found[name] = [t.tolist() for t in tensors]


@contextlib.contextmanager
def where_gloo_can():
    """Some functions came to Gloo after torch 2.6."""
    try:
        yield
    except RuntimeError as error:
        if "does not support" not in str(error):
            raise


# all_reduce, reduce, in every type and with every operator that Gloo has
for op in ("SUM", "PRODUCT", "MIN", "MAX"):
    for dtype in (torch.float32, torch.float64, torch.float16, torch.int32, torch.int64):
        x = mine(2, 3, dtype=dtype)
        dist.all_reduce(x, op=getattr(dist.ReduceOp, op))
        keep(f"all_reduce {op} {dtype}", x)
for op in ("BAND", "BOR", "BXOR"):
    x = mine(5, dtype=torch.int32)
    dist.all_reduce(x, op=getattr(dist.ReduceOp, op))
    keep(f"all_reduce {op}", x)
x = mine(4, dtype=torch.bfloat16)
dist.all_reduce(x)
keep("all_reduce bfloat16", x)
x = torch.complex(mine(3), mine(3) + 1)
dist.all_reduce(x)
keep("all_reduce complex", torch.view_as_real(x))
x = mine(3)
dist.reduce(x, dst=1)
if rank == 1:
    keep("reduce", x)
x = mine(8)
work = dist.all_reduce(x, async_op=True)
work.wait()
keep("all_reduce async", x)
x = mine(2)
future = dist.all_reduce(x, async_op=True).get_future().then(lambda f: f.value()[0] * 2)
keep("future then", future.wait())

# gathers and scatters
out = [torch.zeros(2, 2) for _ in range(n)]
dist.all_gather(out, mine(2, 2))
keep("all_gather", *out)
out = torch.zeros(n * 3)
dist.all_gather_into_tensor(out, mine(3))
keep("all_gather_into_tensor flat", out)
out = torch.zeros(2)
with where_gloo_can():
    dist.reduce_scatter(out, [mine(2) + i for i in range(n)])
    keep("reduce_scatter", out)
out = torch.zeros(2, 3)
dist.reduce_scatter_tensor(out, mine(2 * n, 3))
keep("reduce_scatter_tensor", out)
out = [torch.zeros(3) for _ in range(n)] if rank == 2 else None
dist.gather(mine(3), out, dst=2)
if rank == 2:
    keep("gather", *out)
out = torch.zeros(3)
dist.scatter(out, [mine(3) + 10 * i for i in range(n)] if rank == 1 else None, src=1)
keep("scatter", out)
x = mine(2, 2)
dist.broadcast(x, src=3)
keep("broadcast", x)

# all_to_all, even and uneven
out = torch.zeros(2 * n)
dist.all_to_all_single(out, mine(2 * n))
keep("all_to_all_single", out)
sends = [(rank + i) % 3 for i in range(n)]
expects = [(i + rank) % 3 for i in range(n)]
out = torch.zeros(sum(expects), 2)
dist.all_to_all_single(out, mine(sum(sends), 2), expects, sends)
keep("all_to_all_single uneven", out)
out = [torch.zeros(2) for _ in range(n)]
with where_gloo_can():
    dist.all_to_all(out, list(mine(n, 2).unbind()))
    keep("all_to_all", *out)

# messages
x = torch.zeros(3)
if rank % 2 == 0:
    dist.send(mine(3), dst=rank + 1)
    source = dist.recv(x, src=rank + 1)
else:
    source = dist.recv(x, src=rank - 1)
    dist.send(mine(3), dst=rank - 1)
keep("send recv", x, torch.tensor(source))
x = torch.zeros(3)
works = [dist.isend(mine(3), dst=following), dist.irecv(x, src=previous)]
for work in works:
    work.wait()
keep("isend irecv", x)
x, y = torch.zeros(2), torch.zeros(2)
operations = [
    dist.P2POp(dist.isend, mine(2), following),
    dist.P2POp(dist.irecv, x, previous),
    dist.P2POp(dist.isend, mine(2) + 1, previous),
    dist.P2POp(dist.irecv, y, following),
]
for work in dist.batch_isend_irecv(operations):
    work.wait()
keep("batch_isend_irecv", x, y)
x, y = torch.zeros(1), torch.zeros(1)
if rank == 0:
    first = dist.isend(torch.ones(1), dst=1, tag=1)
    second = dist.isend(torch.ones(1) * 2, dst=1, tag=2)
    first.wait()
    second.wait()
elif rank == 1:
    later = dist.irecv(y, src=0, tag=2)
    earlier = dist.irecv(x, src=0, tag=1)
    earlier.wait()
    later.wait()
keep("tags", x, y)
if rank == 0:
    x, total = torch.zeros(1), 0.0
    senders = []
    for _ in range(n - 1):
        senders.append(dist.recv(x))
        total += x.item()
    keep("recv from any", torch.tensor(total), torch.tensor(sorted(senders)))
else:
    dist.send(torch.full((1,), float(rank)), dst=0)

# objects
out = [None] * n
dist.all_gather_object(out, {"rank": rank, "text": "x" * rank})
found["all_gather_object"] = out
out = [None] * n if rank == 0 else None
dist.gather_object(("from", rank), out, dst=0)
found["gather_object"] = [list(each) for each in out] if rank == 0 else None
out = [rank, "two"] if rank == 1 else [None, None]
dist.broadcast_object_list(out, src=1)
found["broadcast_object_list"] = out
out = [None]
dist.scatter_object_list(out, [[i, "for"] for i in range(n)] if rank == 0 else None, src=0)
found["scatter_object_list"] = out
out = [None]
if rank == 0:
    dist.send_object_list([{"a": 1}], dst=1)
elif rank == 1:
    dist.recv_object_list(out, src=0)
found["send_object_list"] = out

# barriers
dist.barrier()
dist.barrier(async_op=True).wait()
dist.monitored_barrier()

# groups
group = dist.new_group([3, 1, 2])
if rank in (1, 2, 3):
    x = mine(2)
    dist.all_reduce(x, group=group)
    y = mine(2)
    dist.broadcast(y, src=3, group=group)
    keep("new_group", x, y)
    found["group ranks"] = [
        dist.get_rank(group), dist.get_world_size(group), dist.get_process_group_ranks(group),
        dist.get_global_rank(group, 0), dist.get_group_rank(group, 2),
    ]  # fmt: skip
pair, _ = dist.new_subgroups(2)
x = mine(2)
dist.all_reduce(x, group=pair)
keep("new_subgroups", x)
mesh = init_device_mesh("cpu", (2, n // 2), mesh_dim_names=("outer", "inner"))
for name in ("outer", "inner"):
    x = mine(2)
    dist.all_reduce(x, group=mesh.get_group(name))
    keep(f"mesh {name}", x)
found["mesh"] = [mesh.get_coordinate()[0], mesh.get_coordinate()[1], mesh["inner"].get_rank()]
dist.destroy_process_group(pair)

# coalesced
x, y = mine(2), mine(3) + 1
with _coalescing_manager():
    dist.all_reduce(x)
    dist.all_reduce(y)
keep("coalesced all_reduce", x, y)
out = [torch.zeros(n * 2), torch.zeros(n * 3)]
with _coalescing_manager(async_ops=True) as manager:
    dist.all_gather_into_tensor(out[0], mine(2))
    dist.all_gather_into_tensor(out[1], mine(3))
manager.wait()
keep("coalesced all_gather", *out)

# functional
keep("functional all_reduce", functional.all_reduce(mine(3), "sum", group).wait() * 1.0
     if rank in (1, 2, 3) else torch.zeros(1))  # fmt: skip
world = dist.group.WORLD
keep("functional all_gather", functional.all_gather_tensor(mine(2), 0, world) + 0)
keep("functional reduce_scatter",
     functional.reduce_scatter_tensor(mine(2 * n), "sum", 0, world) + 0)  # fmt: skip
keep("functional broadcast", functional.broadcast(mine(2), 2, world) + 0)
keep("functional all_to_all", functional.all_to_all_single(mine(n), None, None, world) + 0)
tensors = functional.all_reduce_coalesced([mine(2), mine(3)], "sum", world)
keep("functional coalesced", *(t + 0 for t in tensors))

# the store
store = dist.distributed_c10d._get_default_store()
store.set(f"key{rank}", f"value{rank}")
found["store"] = [store.get(f"key{following}").decode(), store.add("count", rank) >= 0]
store.wait([f"key{previous}"])

found["backend"] = [dist.get_backend(), dist.is_initialized()]
print(f"{rank} {json.dumps(found)}")
dist.destroy_process_group()
