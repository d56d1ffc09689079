"""Every wrong script of examples/deadlocks, and what its report must say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from .conftest import EXAMPLES

pytest.importorskip("torch")

FOLDER = EXAMPLES / "deadlocks"


@dataclass(frozen=True)
class Expected:
    """kind of the failure; at: the line that some ranks are at; words of the report."""

    kind: str
    at: tuple[tuple[tuple[int, ...], str], ...]
    words: tuple[str, ...] = ()
    cycle: tuple[int, ...] = ()


EXPECTED = {
    "send_send": Expected(
        "deadlock", (((0,), "dist.send("), ((1,), "dist.send(")),
        ("each of them sends before it receives", "--send-buffer 4096"), (0, 1),
    ),
    "recv_recv": Expected(
        "deadlock", (((0,), "dist.recv("), ((1,), "dist.recv(")), ("nobody sends first",), (0, 1)
    ),
    "ring_of_sends": Expected(
        "deadlock", tuple(((rank,), "dist.send(") for rank in range(4)),
        ("0 -> 1 -> 2 -> 3 -> 0", "isend"), (0, 1, 2, 3),
    ),
    "wrong_operation": Expected(
        "mismatch", (((0, 1, 3), "dist.all_reduce("), ((2,), "dist.broadcast(")),
        ("differ in operation",),
    ),
    "wrong_size": Expected(
        "mismatch", (((0, 1, 2), "dist.all_reduce("), ((3,), "dist.all_reduce(")),
        ("32 x float32", "20 x float32", "differ in size"),
    ),
    "wrong_dtype": Expected(
        "mismatch", (((0, 2, 3), "dist.all_reduce("), ((1,), "dist.all_reduce(")),
        ("256 x float16", "differ in dtype"),
    ),
    "wrong_root": Expected(
        "mismatch", (((0, 2), "dist.broadcast("), ((1, 3), "dist.broadcast(")),
        ("root=0", "root=1", "differ in root"),
    ),
    "wrong_reduction": Expected(
        "mismatch", (((0, 1, 2), "dist.all_reduce("), ((3,), "dist.all_reduce(")),
        ("differ in reduction",),
    ),
    "skipped_collective": Expected(
        "deadlock", (((0, 2, 3), "dist.all_reduce("),),
        ("waiting for rank 1", "rank 1 ended without calling all_reduce number 3"),
    ),
    "only_rank_zero": Expected(
        "mismatch", (((0,), "dist.all_reduce(total"), ((1, 2, 3), "dist.barrier(")),
        ("differ in operation", "operation 2"),
    ),
    "barrier_not_reached": Expected(
        "deadlock", (((0, 1, 2), "dist.barrier("),), ("rank 3 ended without calling barrier",)
    ),
    "two_groups": Expected(
        "deadlock", (((0,), "group=data"), ((1,), "group=model")),
        ("different orders", "group 1", "group 2"), (0, 1),
    ),
    "wrong_peer": Expected(
        "deadlock", (((1,), "dist.recv("),), ("do not meet: it goes to rank 2",)
    ),
    "wrong_tag": Expected(
        "deadlock", (((0,), "dist.send("), ((1,), "dist.recv(")), ("their tags differ, 7 and 8",)
    ),
    "wrong_message_size": Expected(
        "mismatch", (((0,), "dist.send("), ((1,), "dist.recv(")), ("8 x float32", "4 x float32")
    ),
    "collective_and_message": Expected(
        "deadlock", (((0, 2, 3), "dist.broadcast("), ((1,), "dist.recv(")),
        ("wait in a collective",), (0, 1),
    ),
    "missing_wait": Expected(
        "error", (((0, 1, 2, 3), "gradient /="),), ("MissingWaitError", "call wait()")
    ),
    "overwritten_send": Expected("error", (((0,), "x.fill_("),), ("still reads", "wait()")),
    "rank_raises": Expected(
        "error", (((2,), "raise ValueError"), ((0, 1, 3), "dist.all_reduce(")),
        ("ValueError: loss is not a number", "waiting for rank 2"),
    ),
    "uneven_all_to_all": Expected(
        "mismatch", (((0,), "dist.all_to_all_single("), ((1, 2, 3), "dist.all_to_all_single(")),
        ("rank 0 sends 12 bytes to rank 1, which expects 8",),
    ),
    "early_exit": Expected(
        "deadlock", (((0, 1, 2), "dist.all_reduce("),),
        ("waiting for rank 3", "rank 3 ended without calling all_reduce number 2"),
    ),
    "uneven_batches": Expected(
        "deadlock", (((0,), "dist.all_reduce("),),
        ("ranks 1-3 ended without calling all_reduce number 4",),
    ),
    "barrier_after_except": Expected(
        "mismatch", (((0, 2, 3), "dist.all_reduce("), ((1,), "dist.barrier(")),
        ("differ in operation", "operation 1"),
    ),
    "store_never_set": Expected(
        "deadlock", (((0,), 'store.wait(["ready"])'), ((1, 2, 3), "dist.barrier(")),
        ("ready", "waiting for rank 0"), (0, 1),
    ),
    "one_sided_batch": Expected(
        "deadlock", (((1,), "dist.batch_isend_irecv("),),
        ("dst=2", "rank 2 ended without receiving what rank 1 waits for"),
    ),
    "pipeline_out_of_order": Expected(
        "deadlock", (((0,), "dist.recv(x, src=1)"), ((1,), "dist.recv(x, src=0)")),
        ("1024 x float32", "nobody sends first"), (0, 1),
    ),
    "never_waited": Expected(
        "unfinished", (), ("rank 0 called it, ranks 1-3 never did", "never_waited.py:9")
    ),
}  # fmt: skip


def test_every_example_is_expected_to_fail_in_its_way() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_report(name: str, simulate: Callable) -> None:
    path = FOLDER / f"{name}.py"
    run, _ = simulate(path)
    failure, expected = run.failure, EXPECTED[name]
    assert failure is not None
    assert failure.kind == expected.kind
    assert failure.cycle == expected.cycle or not expected.cycle
    lines = path.read_text().splitlines()
    places = {standing.ranks: standing.where for standing in failure.standings}
    for ranks, text in expected.at:
        assert ranks in places, failure
        where = places[ranks]
        assert where is not None
        assert where.file.endswith(path.name)
        assert text in lines[where.line - 1], failure
    for word in expected.words:
        assert word in str(failure)
    assert failure.to_dict()["kind"] == expected.kind


@pytest.mark.parametrize("name", ["send_send", "ring_of_sends"])
def test_a_buffer_hides_sends_in_a_ring(name: str, simulate: Callable) -> None:
    path = FOLDER / f"{name}.py"
    run, _ = simulate(path)
    most = max(rank.posts[0].call.nbytes for rank in run.world.ranks.values() if rank.posts)
    assert simulate(path, send_buffer=most)[0].failure is None
    assert simulate(path, send_buffer=most - 1)[0].failure is not None


def test_a_late_receive_still_gets_what_was_buffered(simulate: Callable) -> None:
    run, printed = simulate(
        """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.full((4,), 7.0)
if dist.get_rank() == 0:
    dist.send(x, dst=1)
    x.zero_()
    dist.send(torch.ones(1), dst=1, tag=1)
else:
    dist.recv(torch.empty(1), src=0, tag=1)
    dist.recv(x.zero_(), src=0)
    print(x.tolist())
""",
        2,
        send_buffer=16,
    )
    assert run.failure is None
    assert printed == "[7.0, 7.0, 7.0, 7.0]\n"


def test_polling_for_what_never_comes_is_a_deadlock(simulate: Callable) -> None:
    run, _ = simulate(
        """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
if dist.get_rank() == 0:
    work = dist.irecv(torch.empty(1), src=1)
    while not work.is_completed():
        pass
""",
        2,
    )
    assert run.failure is not None
    assert run.failure.kind == "deadlock"
    assert "rank 1 ended without sending" in str(run.failure)


def test_a_script_that_exits_with_a_code_has_failed(simulate: Callable) -> None:
    run, _ = simulate("import sys\nsys.exit(4)\n", 2)
    assert run.failure is not None
    assert "exit code 4" in str(run.failure)
    assert simulate("import sys\nsys.exit(0)\n", 2)[0].failure is None


def test_an_error_that_is_no_exception_has_failed_too(simulate: Callable) -> None:
    """torch's CheckpointException is one."""
    run, _ = simulate("class Odd(BaseException): ...\nraise Odd('never seen')\n", 2)
    assert run.failure is not None
    assert run.failure.kind == "error"
    assert "Odd: never seen" in str(run.failure)
