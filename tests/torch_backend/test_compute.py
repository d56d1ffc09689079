"""Durations of computation and its overlap with communication, by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commsim.collectives.collective import Collective
from commsim.prediction import predict
from commsim.topology.load import load_cluster
from commsim.workload.compute import Device
from commsim.workload.layout import Layout
from commsim.workload.load import load_model
from commsim.workload.operations import Core, Matmul, Work
from commsim.workload.passes import seconds
from commsim.workload.step import setting
from commsim.workload.trust import shipped, tags_of

pytest.importorskip("torch")

from commsim.torch_backend import Options
from commsim.torch_backend import run as launch
from commsim.torch_backend.roofline import Roofline, roofline

LAUNCH, GAP = 1e-6, 2e-6
# 1 GFLOP/s, 1 GB/s, nothing lost but the gap
PLAIN = dict.fromkeys(("matmul", "matmul8", "flash", "stream", "grouped", "unaligned"), 1.0)
PLAIN |= dict.fromkeys(("narrow_head", "ramp", "wave"), 0.0) | {"gap": GAP}
DEVICE = Device(name="slow", generation="hopper", ceiling=1e9, ceiling8=2e9, memory=1e9, sms=1)
SLOW = Roofline(device=DEVICE, values=PLAIN, rates={}, launch=LAUNCH)
# 64 x 64 x 64 x 2 = 524,288 flops; 3 x 16 KiB = 49,152 bytes take less
MATMUL_64 = 524_288e-9 + GAP
START = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
x = torch.empty(64, 64)
big = torch.empty(1 << 20)
"""


def all_reduce(nbytes: int, n: int = 2) -> float:
    ranks = tuple(range(n))
    collective = Collective("all_reduce", nbytes, "float32", ranks)
    return predict(collective, load_cluster("dgx-h100")).duration


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("x @ x", LAUNCH + MATMUL_64),
        # 2 matmuls, one launched while the other runs
        ("(x @ x) @ x", LAUNCH + 2 * MATMUL_64),
        # read 16 KiB twice, write once: 49,152 bytes
        ("x + x", LAUNCH + 49_152e-9 + GAP),
        # 12 bytes, then 8: launched while the first one runs
        ("torch.add(torch.empty(1), torch.empty(1)).add_(1)", LAUNCH + 20e-9 + 2 * GAP),
        # 3 x 64 x 64 pixels by 8 filters of 4 x 3 x 3: 62 x 62 of each image come out
        (
            "torch.conv2d(torch.empty(3, 4, 64, 64), torch.empty(8, 4, 3, 3))",
            LAUNCH + 2 * 3 * 62 * 62 * 8 * 36e-9 + GAP,
        ),
        ("x.view(-1).t().detach().unsqueeze(0)", 0.0),
        # the host waits for the matmul (to a number: 4 bytes), launches one more
        ("y = (x @ x)[0, 0].item(); x @ x", 2 * (LAUNCH + MATMUL_64)),
    ],
)
def test_kernels(body: str, expected: float, simulate: Callable) -> None:
    run, _ = simulate(START + body, 1, model=SLOW)
    assert run.failure is None, run.failure
    assert run.duration == pytest.approx(expected, rel=1e-9)
    assert simulate(START + body, 1, compute="none")[0].duration == 0.0


def test_flops_of_attention_and_of_backward(simulate: Callable) -> None:
    """q k^T and its product with v: 2 x 2 x 8 heads x 128 x 128 x 16 flops; backward 2.5 times."""
    body = """
q = torch.empty(1, 8, 128, 16, requires_grad=True)
torch.nn.functional.scaled_dot_product_attention(q, q, q)
"""
    run, _ = simulate(START + body, 1, model=SLOW)
    assert run.duration == pytest.approx(LAUNCH + 2 * 2 * 8 * 128 * 128 * 16 * 1e-9 + GAP)


def test_an_overlapped_all_reduce_costs_what_is_left_of_it(simulate: Callable) -> None:
    nbytes = 4 << 20
    alone = all_reduce(nbytes)
    assert 0 < alone < MATMUL_64
    hidden, _ = simulate(
        START + "w = dist.all_reduce(big, async_op=True); x @ x; w.wait()", 2, model=SLOW
    )
    assert hidden.duration == pytest.approx(LAUNCH + MATMUL_64, rel=1e-9)
    assert hidden.table()[0].exposed == 0.0
    assert hidden.ranks()[0].overlapped == 1.0
    exposed, _ = simulate(START + "dist.all_reduce(big); x @ x", 2, model=SLOW)
    # the host runs ahead: the launch is hidden behind the operation
    assert exposed.duration == pytest.approx(alone + MATMUL_64, rel=1e-9)
    row = exposed.table()[0]
    assert (row.operation, row.nbytes, row.count) == ("all_reduce", nbytes, 1)
    assert row.exposed == pytest.approx(alone, rel=1e-9)
    assert exposed.ranks()[0].overlapped == pytest.approx(0.0, abs=1e-9)


def test_a_late_rank_makes_the_others_wait(simulate: Callable) -> None:
    run, _ = simulate(START + "if rank == 1: x @ x\ndist.all_reduce(big)", 2, model=SLOW)
    alone = all_reduce(4 << 20)
    assert run.duration == pytest.approx(LAUNCH + MATMUL_64 + alone, rel=1e-9)
    early, late = run.ranks()
    assert early.awaiting_others == pytest.approx(LAUNCH + MATMUL_64, rel=1e-9)
    assert early.exposed == pytest.approx(LAUNCH + MATMUL_64 + alone, rel=1e-9)
    assert (late.awaiting_others, late.exposed) == (0.0, pytest.approx(alone, rel=1e-9))


def test_collectives_of_a_group_queue_and_those_of_two_groups_do_not(simulate: Callable) -> None:
    body = """
groups = [dist.new_group([0, 1]) for _ in range(2)]
works = [dist.all_reduce(t, group=groups[i * {}], async_op=True)
         for i, t in enumerate((big, torch.empty(1 << 20)))]
for work in works: work.wait()
"""
    alone = all_reduce(4 << 20)
    one, _ = simulate(START + body.format(0), 2, model=SLOW)
    two, _ = simulate(START + body.format(1), 2, model=SLOW)
    assert one.duration == pytest.approx(2 * alone, rel=1e-9)
    assert two.duration == pytest.approx(alone, rel=1e-9)


def test_messages_of_a_rank_go_one_after_the_other(simulate: Callable) -> None:
    body = """
if rank == 0:
    for work in [dist.isend(big, dst=1), dist.isend(big, dst=2)]: work.wait()
elif rank < 3: dist.recv(big, src=0)
"""
    cluster = load_cluster("dgx-h100")
    one = predict(Collective("send_recv", 4 << 20, "float32", (0, 1), root=0), cluster).duration
    two = predict(Collective("send_recv", 4 << 20, "float32", (0, 2), root=0), cluster).duration
    run, _ = simulate(START + body, 3, model=SLOW)
    assert run.duration == pytest.approx(one + two, rel=1e-9)


def test_a_step_ends_with_its_optimizer(simulate: Callable) -> None:
    body = """
weight = torch.nn.Parameter(torch.ones(64, 64))
optimizer = torch.optim.SGD([weight], lr=0.1)
for _ in range(5):
    (x @ weight).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
    run, _ = simulate(START + body, 1, model=SLOW)
    # two matmuls (x is no parameter: one backward), and the small kernels around them
    assert len(run.steps) == 4
    assert run.step_duration > 2 * MATMUL_64
    assert run.step_duration == pytest.approx(run.steps[-1], rel=1e-9)


def test_measured_time_is_this_machines(simulate: Callable) -> None:
    run, _ = simulate(START + "y = torch.ones(256, 256)\nfor _ in range(9): y = y @ y", 1,
                      compute="measured")  # fmt: skip
    assert 0 < run.duration < 60


def test_the_roofline_of_a_cluster_is_its_gpus() -> None:
    h100 = roofline(load_cluster("dgx-h100"), 1)
    # NVIDIA's data sheet, and the best matrix product published for the part
    assert h100.device.ceiling == pytest.approx(794.5e12)
    assert h100.device.memory == pytest.approx(3350e9)
    assert h100.rates["float32"] == pytest.approx(66.9 / 989.4)
    # 16 GB read: the whole of it, but for what the constants leave
    assert h100.moving(16 << 30) > (16 << 30) / 3350e9


@pytest.mark.parametrize("cluster", ["dgx-h100", "dgx-a100"])
def test_a_matrix_product_costs_what_it_does_in_a_training_step(
    cluster: str, simulate: Callable, tmp_path: Path
) -> None:
    """The product of 4,096 tokens with the first weight of a feed-forward layer."""
    layout = Layout(dp=8, global_batch=8, seq_len=4096, framework="ddp")
    where = load_cluster(cluster)
    values = shipped().values(tags_of(where, layout))
    given = setting(load_model("llama3-8b"), where, layout, values)
    product = Matmul(m=4096, n=14336, k=4096)
    path = tmp_path / "script.py"
    path.write_text(
        "import torch\n"
        "torch.empty(4096, 4096, dtype=torch.bfloat16) @ torch.empty(4096, 14336, "
        "dtype=torch.bfloat16)"
    )
    run = launch(path, cluster=where, options=Options(fake=True, launch=0.0))
    assert run.failure is None, run.failure
    spent = seconds(Work(matmuls=(product,), launches=1), given, backward=False)
    # the host launches beside: in a step that shows only where the kernel is short
    assert run.duration == pytest.approx(spent.total, rel=1e-12)


def test_attention_costs_what_it_does_in_a_training_step(simulate: Callable) -> None:
    where = load_cluster("dgx-h100")
    layout = Layout(dp=8, global_batch=8, seq_len=2048, framework="ddp")
    values = shipped().values(tags_of(where, layout))
    given = setting(load_model("llama3-8b"), where, layout, values)
    core = Core(batch=1, heads=32, queries=2048, keys=2048, width=128, value=128, seen=0.5)
    body = """
import torch
q, k, v = (torch.empty(1, 32, 2048, 128, dtype=torch.bfloat16) for _ in range(3))
torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
"""
    run, _ = simulate(body, 8, fake=True, launch=0.0)
    assert run.failure is None, run.failure
    spent = seconds(Work(cores=(core,), launches=1), given, backward=False)
    assert run.duration == pytest.approx(spent.total, rel=1e-12)


def test_what_a_launch_costs_can_be_set(simulate: Callable) -> None:
    body = START + "for _ in range(10): torch.add(torch.empty(1), torch.empty(1))"
    fast, _ = simulate(body, 1, model=SLOW)
    slow, _ = simulate(body, 1, model=SLOW, launch=10e-6)
    # bound by kernels of 2 us, or by launches
    assert fast.duration == pytest.approx(LAUNCH + 10 * (GAP + 12e-9))
    assert slow.duration == pytest.approx(10 * 10e-6 + GAP + 12e-9)


def test_an_unknown_model_names_the_known_ones(simulate: Any) -> None:
    from commsim.errors import UnknownNameError

    with pytest.raises(UnknownNameError, match="roofline"):
        simulate("", 1, compute="rooflin")
