"""What every function of torch.distributed leaves behind: as on real Gloo, or by hand."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import by_rank, on_gloo

pytest.importorskip("torch")

SCRIPT = Path(__file__).parent / "scripts" / "functions.py"
START = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, n = dist.get_rank(), dist.get_world_size()
"""


@pytest.mark.filterwarnings("ignore")
def test_values_are_those_of_gloo(tmp_path: Path, simulate: Callable) -> None:
    run, printed = simulate(SCRIPT, 4)
    assert run.failure is None, run.failure
    real = by_rank(on_gloo(tmp_path, 4, SCRIPT, record=False)["functions"]["printed"])
    simulated = by_rank(printed)
    assert simulated.keys() == real.keys() == set(range(4))
    for rank, found in real.items():
        assert len(found) > 55
        for name, value in found.items():
            assert simulated[rank][name] == value, (rank, name)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        # (1 + 2 + 3 + 4) / 4
        ("x = torch.ones(1) * (rank + 1); dist.all_reduce(x, op=dist.ReduceOp.AVG)", 2.5),
        # 10 // 4 for integers
        ("x = torch.tensor([rank + 1]); dist.all_reduce(x, op=dist.ReduceOp.AVG)", 2),
        # 0.5 x (1 + 2 + 3 + 4)
        (
            "x = torch.ones(1) * (rank + 1);"
            "dist.all_reduce(x, op=dist._make_nccl_premul_sum(0.5))",
            5.0,
        ),
        # rank r gets, summed over ranks, element r of arange(4) x (rank + 1): 10 r
        (
            "x = torch.empty(1);"
            "dist.reduce_scatter_tensor(x, torch.arange(4.) * (rank + 1)); x = x / max(rank, 1)"
            " + (10 if rank == 0 else 0)",
            10.0,
        ),
        # a stacked output: row i is rank i's
        (
            "x = torch.empty(n, 2); dist.all_gather_into_tensor(x, torch.full((2,), rank * 1.));"
            "assert x.tolist() == [[i, i] for i in range(n)]; x = x.sum()",
            12.0,
        ),
        # sizes may differ as long as all know them: 0 + 1 + 1 + 2 + 2 + 2 + 3 x 4
        (
            "out = [torch.empty(i + 1) for i in range(n)];"
            "dist.all_gather(out, torch.full((rank + 1,), float(rank))); x = torch.cat(out).sum()",
            0 + 2 * 1 + 3 * 2 + 4 * 3.0,
        ),
        # a Future outside a backward pass, alone, chained and with others: 1 x 4; 2 + 4; 4 + 4
        (
            "f = dist.all_reduce(torch.ones(1), async_op=True).get_future();"
            "g = f.then(lambda f: f.value()[0] + 2);"
            "a, b = torch.futures.wait_all([f, g]);"
            "c = torch.futures.collect_all([f, f]).wait();"
            "assert (a[0].item(), b.item()) == (4, 6);"
            "x = sum(each.value()[0] for each in c)",
            8.0,
        ),
        ("x = torch.ones(1, dtype=torch.bool) * (rank == 2); dist.all_reduce(x)", True),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_values_by_hand(body: str, expected: float, simulate: Callable) -> None:
    run, printed = simulate(f"{START}{body}\nprint(x.item())", 4)
    assert run.failure is None, run.failure
    assert printed.split() == [str(expected)] * 4


def test_a_receive_from_any_rank_takes_the_earliest_message(simulate: Callable) -> None:
    """Rank 3 computes least before it sends, rank 1 most."""
    run, printed = simulate(
        START + "if rank:\n"
        "    for _ in range(4 - rank): torch.ones(4).add_(1)\n"
        "    dist.send(torch.ones(1), dst=0)\n"
        "else:\n"
        "    print([dist.recv(torch.ones(1)) for _ in range(3)])",
        4,
    )
    assert run.failure is None, run.failure
    assert printed == "[3, 2, 1]\n"


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("dist.all_reduce(torch.eye(3).to_sparse())", "sparse tensors are not simulated"),
        ("dist.all_reduce(torch.ones(2, 3).t())", "Tensors must be contiguous"),
        ("dist.all_gather_into_tensor(torch.ones(3), torch.ones(2))", "world_size times"),
        ("dist.reduce_scatter_tensor(torch.ones(3), torch.ones(2))", "times world size"),
        ("dist.all_to_all_single(torch.ones(3), torch.ones(3))", "does not divide equally"),
        (
            "dist.scatter(torch.ones(1), [torch.ones(1)] if rank == 0 else None)",
            "scatter: a list of 1 tensors for a group of 2 ranks",
        ),
        ("dist.all_gather([torch.ones(1)], torch.ones(1))", "all_gather: a list of 1 tensors"),
        (
            "dist.gather(torch.ones(1), [torch.ones(1)] * 3 if rank == 0 else None)",
            "gather: a list of 3 tensors",
        ),
        ("dist.reduce_scatter(torch.ones(1), [torch.ones(1)])", "reduce_scatter: a list of 1"),
        ("dist.all_to_all([torch.ones(1)], [torch.ones(1)])", "all_to_all: a list of 1 tensors"),
        ("dist.send(torch.ones(1), dst=9)", "no rank 9 in a group of 2"),
        (
            "from torch.distributed import rpc; rpc.init_rpc('w', rank=rank, world_size=n)",
            "rpc is not simulated",
        ),
        ("dist.split_group(split_ranks=[[0], [1]])", "split"),
    ],
)
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_what_is_refused_says_why(body: str, error: str, simulate: Callable) -> None:
    run, _ = simulate(START + body, 2)
    assert run.failure is not None
    assert run.failure.kind == "error"
    assert error in str(run.failure), run.failure


def test_equal_runs_are_equal(simulate: Callable) -> None:
    first, second = (simulate(SCRIPT.with_name("mixed.py"), 4)[0].to_dict() for _ in range(2))
    assert first == second
    assert first["duration_s"] > 0


@pytest.mark.parametrize("how", ["RANK", "spawn", "module", "random"])
def test_a_rank_has_a_process_of_its_own(how: str, tmp_path: Path, simulate: Callable) -> None:
    """Environment, spawned processes, module state and random numbers; not installed packages."""
    (tmp_path / "state.py").write_text("value = None\n")
    installed = tmp_path / ".venv" / "lib" / "site-packages"
    installed.mkdir(parents=True)
    (installed / "package.py").write_text("ranks = []\n")
    bodies = {
        "RANK": "import os\nx = os.environ['RANK']\ndist.barrier()\n"
        "assert x == os.environ['RANK'] == str(dist.get_rank()) and os.environ['LOCAL_RANK'] == x",
        "spawn": "",
        "module": "import state\nstate.value = rank\ndist.barrier()\nimport state as again\n"
        "assert again.value == rank\n"
        f"import sys\nsys.path.append({str(installed)!r})\nimport package\n"
        "package.ranks.append(rank)\ndist.barrier()\nimport package\n"
        "assert sorted(package.ranks) == [0, 1, 2]",
        "random": "import random\ntorch.manual_seed(rank)\nrandom.seed(rank)\ndist.barrier()\n"
        "a, b = torch.rand(1).item(), random.random()\n"
        "torch.manual_seed(rank)\nrandom.seed(rank)\n"
        "assert (a, b) == (torch.rand(1).item(), random.random())",
    }
    script = START + bodies[how]
    if how == "spawn":
        script = (
            "import torch.distributed as dist, torch.multiprocessing as mp\n"
            "def work(rank, n):\n"
            "    dist.init_process_group('gloo', rank=rank, world_size=n,"
            " init_method='tcp://127.0.0.1:29501')\n"
            "    assert dist.get_rank() == rank\n"
            "if __name__ == '__main__':\n"
            "    mp.spawn(work, args=(3,), nprocs=3)\n"
        )
    run, _ = simulate(script, 3)
    assert run.failure is None, run.failure


def test_the_documents_know_every_function() -> None:
    """docs/torch.md says of each function of torch.distributed whether it is simulated."""
    import types

    import torch.distributed as dist

    text = (Path(__file__).parents[2] / "docs" / "torch.md").read_text()
    table = text[text.index("| torch.distributed | |") : text.index("Twelve scripts")]
    known = set(re.findall(r"`([\w.]+)`", table))
    kinds = (types.FunctionType, types.BuiltinFunctionType)
    functions = {
        name
        for name, value in vars(dist).items()
        if not name.startswith("_") and type(value) in kinds and value.__module__[:6] == "torch."
    }
    assert len(functions) > 50
    assert functions - known == set()


SPLIT = """
import torch, torch.distributed as dist
rank = int(__import__("os").environ["RANK"])
dist.init_process_group("nccl", device_id=torch.device("cuda", rank) if {bound} else None)
part = dist.split_group(split_ranks=[[0, 1], [2, 3]])
x = torch.full((1,), float(rank))
dist.all_reduce(x, group=part)
print(rank, x.item(), dist.get_world_size(part))
last = dist.split_group(split_ranks=[[3]])
assert (last not in (None, dist.GroupMember.NON_GROUP_MEMBER)) == (rank == 3)
"""


def test_a_group_is_split_as_nccl_does(simulate: Callable) -> None:
    """0 + 1 and 2 + 3; rank 3 alone."""
    run, printed = simulate(SPLIT.format(bound=True), 4, cuda_shim=True)
    assert run.failure is None, run.failure.traceback
    assert sorted(printed.splitlines()) == ["0 1.0 2", "1 1.0 2", "2 5.0 2", "3 5.0 2"]
    run, _ = simulate(SPLIT.format(bound=False), 4, cuda_shim=True)
    assert "No device associated with the default pg" in str(run.failure)
