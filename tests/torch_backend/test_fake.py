"""Shapes without data, and ranks that stand for others: the same steps as of the whole run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import EXAMPLES

pytest.importorskip("torch")
from commsim.torch_backend import private

pytestmark = pytest.mark.filterwarnings("ignore")


def operations(run: object) -> list[tuple[str, int, str]]:
    posts = run.world.ranks[0].posts  # type: ignore[attr-defined]
    return [(p.call.operation, p.call.nbytes, p.call.dtype) for p in posts]


@pytest.mark.parametrize("name", ["fsdp2", "tensor_parallel"])
def test_one_rank_without_data_takes_the_steps_of_all_with_data(
    name: str, simulate: Callable
) -> None:
    whole, _ = simulate(EXAMPLES / f"{name}.py", 2)
    folded, _ = simulate(EXAMPLES / f"{name}.py", 2, fake=True, ranks=(0,))
    assert whole.failure is folded.failure is None
    assert operations(folded) == operations(whole)
    assert folded.steps == pytest.approx(whole.steps, rel=1e-9)


def test_ddp_without_data_sends_the_same_bytes_in_a_step(simulate: Callable) -> None:
    """Its buckets may part a layer's weight and bias elsewhere."""
    whole, _ = simulate(EXAMPLES / "ddp.py", 2)
    fake, _ = simulate(EXAMPLES / "ddp.py", 2, fake=True)
    assert fake.failure is None
    ours, theirs = operations(fake)[-4:], operations(whole)[-4:]
    assert [op for op, _, _ in ours] == [op for op, _, _ in theirs] == ["all_reduce"] * 4
    assert sum(n for _, n, _ in ours) == sum(n for _, n, _ in theirs)
    assert fake.step_duration == pytest.approx(whole.step_duration, rel=0.02)


@pytest.mark.skipif(not private.NEW, reason="torch 2.6 stops at views in a pipeline's stages")
def test_a_pipeline_without_data(simulate: Callable) -> None:
    whole, _ = simulate(EXAMPLES / "pipeline.py", 2)
    fake, _ = simulate(EXAMPLES / "pipeline.py", 2, fake=True)
    assert fake.failure is None
    assert operations(fake) == operations(whole)
    assert fake.steps == pytest.approx(whole.steps, rel=1e-9)


def test_a_thousand_ranks_cost_what_one_does(simulate: Callable) -> None:
    run, _ = simulate(EXAMPLES / "fsdp2.py", 8, nodes=128, fake=True, ranks=(0,))
    assert run.failure is None
    assert run.world.size == 1024
    gathered = {n for op, n, _ in operations(run) if op == "all_gather"}
    # a block has 12 x 64 x 64 weights and 13 x 64 biases and norms: cut in 1,024 along the first
    # dimension, every one of its parameters is padded to 1,024 rows
    rows = 1024 * (4 * 64 + 64 + 4 * 64) + 1024 * (4 + 1 + 1 + 4)
    assert rows * 4 in gathered


def test_values_of_ranks_that_are_not_simulated_are_those_of_one_that_is(
    simulate: Callable,
) -> None:
    run, printed = simulate(
        """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.full((2,), 3.0)
dist.all_reduce(x)
y = torch.full((2,), 3.0)
dist.all_reduce(y, op=dist.ReduceOp.PRODUCT)
z = [torch.zeros(1) for _ in range(4)]
dist.all_gather(z, torch.ones(1) * 5)
o = torch.zeros(1)
dist.reduce_scatter(o, [torch.full((1,), float(i)) for i in range(4)])
m = torch.full((1,), 9.0)
dist.all_reduce(m, op=dist.ReduceOp.MAX)
print(x.tolist(), y.tolist(), torch.cat(z).tolist(), o.item(), m.item())
""",
        4,
        ranks=(1,),
    )
    assert run.failure is None, run.failure
    # 4 x 3; 3^4; rank 1's part of 4 x (0, 1, 2, 3)
    assert printed == "[12.0, 12.0] [81.0, 81.0] [5.0, 5.0, 5.0, 5.0] 4.0 9.0\n"


def test_messages_with_ranks_that_are_not_simulated_take_time(simulate: Callable) -> None:
    run, _ = simulate(
        """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
dist.send(torch.ones(1 << 20), dst=1)
dist.recv(torch.ones(1 << 20), src=3)
""",
        4,
        ranks=(0,),
    )
    assert run.failure is None
    assert len(run.operations) == 2
    assert run.duration > sum(o.duration for o in run.operations) * 0.99
    assert any("carry no data" in note for note in run.notes)


def test_tensors_without_data_are_sent_in_objects(simulate: Callable) -> None:
    run, printed = simulate(
        """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
found = [None, None]
dist.all_gather_object(found, {"logits": torch.ones(2, 3 + rank).t(), "step": rank})
shapes = [(tuple(f["logits"].shape), f["logits"].stride(), f["step"]) for f in found]
total = found[1]["logits"] + torch.ones(4, 2)
print(shapes, tuple(total.shape)) if rank == 0 else None
""",
        2,
        fake=True,
    )
    assert run.failure is None, run.failure.traceback
    assert printed == "[((3, 2), (1, 3), 0), ((4, 2), (1, 4), 1)] (4, 2)\n"


def test_wrong_ranks_are_refused(simulate: Callable) -> None:
    from commsim.errors import SpecError

    with pytest.raises(SpecError, match="from 0 to 3"):
        simulate("", 4, ranks=(4,))
    with pytest.raises(SpecError, match="8 GPUs"):
        simulate("", 9)


@pytest.mark.parametrize("fake", [False, True])
def test_scripts_for_cuda_run_on_the_cpu(fake: bool, simulate: Callable) -> None:
    scripts = Path(__file__).parent / "scripts"
    run, printed = simulate(scripts / "cuda_ddp.py", 2, cuda_shim=True, fake=fake)
    assert run.failure is None, run.failure.traceback
    elapsed, name, backend = printed.split()
    # the last step: from the first launch after the one before to the last kernel of this one
    assert float(elapsed) == pytest.approx(run.steps[-1] * 1e3, rel=0.05)
    assert (name, backend) == ("H100-SXM5-80GB", "nccl")
    assert ("all_reduce", 2 * (64 * 256 * 2 + 256 + 64), "bfloat16") in operations(run)


@pytest.mark.parametrize("fake", [False, True])
def test_fsdp2_for_cuda_runs_on_the_cpu(fake: bool, simulate: Callable) -> None:
    import torch

    scripts = Path(__file__).parent / "scripts"
    run, printed = simulate(scripts / "cuda_fsdp2.py", 2, cuda_shim=True, fake=fake)
    assert run.failure is None, run.failure.traceback
    assert float(printed) == pytest.approx(run.steps[-1] * 1e3, rel=0.05)
    assert ("all_gather", 2 * (64 * 64 + 64), "bfloat16") in operations(run)
    assert not torch.cuda.is_available()


@pytest.mark.skipif(not private.NEW, reason="torch 2.6 has no FSDP2 on CPUs")
def test_fsdp2_makes_its_own_mesh_without_data_and_saves_nothing(simulate: Callable) -> None:
    run, printed = simulate(
        """
import torch, torch.distributed as dist
from torch.distributed import checkpoint
from torch.distributed.fsdp import fully_shard
dist.init_process_group("gloo")
model = fully_shard(torch.nn.Linear(8, 8))
print(model.weight.to_local().shape)
checkpoint.save({"model": model.state_dict()}, checkpoint_id="unwritten")
""",
        2,
        fake=True,
    )
    assert printed == "torch.Size([4, 8])\n" * 2
    assert run.failure is not None
    assert "torch.distributed.checkpoint.save needs values" in str(run.failure)
    assert "without --fake" in str(run.failure)


def test_a_mesh_of_values_that_are_not_there(simulate: Callable) -> None:
    run, _ = simulate(
        """
import torch, torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
dist.init_process_group("gloo")
DeviceMesh("cpu", torch.arange(2))
""",
        2,
        fake=True,
    )
    assert run.failure is not None
    assert "it looks at values of a tensor, of which --fake has none" in str(run.failure)
