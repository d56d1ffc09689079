from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Ran

pytest.importorskip("torch")
Command = Callable[[str], Ran]
EXAMPLES = Path(__file__).parents[2] / "examples"
DEADLOCK = EXAMPLES / "deadlocks" / "send_send.py"


def test_what_a_reader_gets(commsim: Command) -> None:
    ran = commsim(f"run -c dgx-h100 --nproc-per-node 2 {EXAMPLES}/send_recv.py")
    assert (ran.code, ran.err) == (0, "")
    assert ran.lines[:2] == ["received 1.0", "received 2.0"]
    assert ran.lines[3].startswith("2 ranks on dgx-h100, 1 node, nccl ")
    assert any(line.split()[:5] == ["send_recv", "4", "B", "float32", "2"] for line in ran.lines)
    assert "overlap" in ran.lines


def test_json_has_stdout_for_itself(commsim: Command) -> None:
    ran = commsim(f"run --json --nodes 2 --nproc_per_node 4 {EXAMPLES}/ring_all_reduce.py")
    assert ran.code == 0
    found = ran.json
    assert (found["n_ranks"], found["nodes"], found["failure"]) == (8, 2, None)
    (row,) = found["operations"][:1]
    assert (row["operation"], row["size_bytes"]) == ("send_recv", 16)
    # two rounds of 7 steps, a message of each of 8 ranks
    assert sum(each["count"] for each in found["operations"]) == 2 * 7 * 8
    assert "rank 0: [0.0, 36.0, 72.0, 108.0]" in ran.err


def test_what_follows_the_script_is_the_scripts(commsim: Command, tmp_path: Path) -> None:
    script = tmp_path / "show.py"
    script.write_text("import sys\nprint(sys.argv[1:], __file__ == sys.argv[0], __name__)\n")
    ran = commsim(f"run --nproc-per-node 1 {script} --json --nodes 7 -x")
    assert ran.code == 0
    assert ran.lines[0] == "['--json', '--nodes', '7', '-x'] True __main__"


def test_a_deadlock_has_an_exit_code_and_one_report(commsim: Command) -> None:
    ran = commsim(f"run --nproc-per-node 2 {DEADLOCK}")
    assert ran.code == 3
    assert "deadlock: no rank can go on" in ran.err
    assert "rank 0: in send(1024 x float32, dst=1) at" in ran.err
    assert "send_send.py:10, waiting for rank 1" in ran.err
    assert commsim(f"run --nproc-per-node 2 --send-buffer 4KiB {DEADLOCK}").code == 0
    ran = commsim(f"run --json --nproc-per-node 2 {DEADLOCK}")
    assert ran.code == 3
    assert ran.json["failure"]["cycle"] == [0, 1]


def test_the_timeline(commsim: Command, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    ran = commsim(f"run --nproc-per-node 2 --timeline {path} {EXAMPLES}/send_recv.py")
    assert ran.code == 0
    assert f"timeline written to {path}" in ran.out
    assert json.loads(path.read_text())["traceEvents"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("run no_such.py", "no_such.py: No such file or directory"),
        ("run --nproc-per-node 9 {}", "has 8 GPUs in a machine"),
        ("run --compute magic {}", "unknown compute model 'magic'"),
        ("run --send-buffer big {}", "expected a size"),
        ("run --simulate 8 {}", "expected ranks from 0 to 7"),
        ("run --timeline /no/such/t.json {}", "the folder does not exist"),
        ("run", "Missing argument 'SCRIPT'"),
    ],
)
def test_bad_input_is_one_line(line: str, message: str, commsim: Command) -> None:
    ran = commsim(line.format(EXAMPLES / "send_recv.py"))
    assert ran.code == 2
    assert message in ran.err
    assert len(ran.err.splitlines()) == 1


def test_the_backend_alone_says_where_it_belongs() -> None:
    import torch.distributed as dist

    import commsim.torch_backend  # noqa: F401

    with pytest.raises(Exception, match="commsim run"):
        dist.init_process_group("commsim", rank=0, world_size=1, store=dist.HashStore())


def test_a_script_may_ask_for_the_backend_by_its_name(commsim: Command, tmp_path: Path) -> None:
    script = tmp_path / "s.py"
    script.write_text(
        "import torch, torch.distributed as dist, commsim.torch_backend\n"
        'dist.init_process_group("commsim")\n'
        "x = torch.ones(1)\n"
        "dist.all_reduce(x)\n"
        "print(x.item(), dist.get_backend())\n"
    )
    ran = commsim(f"run --nproc-per-node 2 {script}")
    assert ran.lines[:2] == ["2.0 commsim", "2.0 commsim"]
