from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from commsim.errors import SpecError
from commsim.traces.joining import join
from commsim.traces.kineto import Kineto
from commsim.traces.reading import read_recordings, recognised
from commsim.traces.recording import COMMUNICATION, COMPUTE, Call, Recording
from commsim.traces.replay import replay

from .kineto_files import NCCL, kernel, metadata, runtime, step, trace, write


def read(path: Path) -> Recording:
    (found,) = Kineto().recordings(path)
    return found


def test_a_step_of_a_gpu(tmp_path: Path) -> None:
    found = read(write(tmp_path / "r.json", step()))
    assert (found.rank, found.world, found.backend) == (0, 2, "nccl")
    assert found.groups["0"].ranks == (0, 1)
    work = {e.name.split("_")[0]: e for e in found.events if e.kind in (COMPUTE, COMMUNICATION)}
    assert work["optimizer"].duration == pytest.approx(20e-6)
    (reduce,) = found.communication
    assert reduce.call == Call(
        operation="all_reduce", nbytes=4 << 20, dtype="float32", group="0", sequence=1,
        reduce_op="sum",
    )  # fmt: skip
    assert reduce.stream == f"stream {NCCL}"
    assert reduce.issuer is not None
    launch = found.events[reduce.issuer]
    assert (launch.stream, launch.start) == ("thread 1", pytest.approx(10e-6))  # the first is at 10


@pytest.mark.parametrize(
    ("collective", "sent", "received", "operation", "nbytes"),
    [
        ("_allgather_base", 10, 40, "all_gather", 80),
        ("allgather", 10, 40, "all_gather", 80),
        ("_reduce_scatter_base", 40, 10, "reduce_scatter", 80),
        ("all_to_allv", 40, 40, "all_to_all", 80),
        ("broadcast", 40, 40, "broadcast", 80),
        ("send", 40, 40, "send", 80),
        ("barrier", 0, 0, "barrier", 0),
    ],
)
def test_sizes_are_those_of_collectives(
    tmp_path: Path, collective: str, sent: int, received: int, operation: str, nbytes: int
) -> None:
    args: dict[str, Any] = metadata(collective, sent, 1, (0, 1, 2, 3), dtype="BFloat16")
    args["Out msg nelems"] = received
    events = [kernel("ncclDevKernel_Generic(args)", 0, 5, NCCL, **args)]
    (event,) = read(write(tmp_path / "r.json", events)).communication
    assert event.call is not None
    assert (event.call.operation, event.call.nbytes) == (operation, nbytes)
    assert event.call.dtype == "bfloat16"


def test_a_kernel_without_metadata_has_that_of_the_op_that_launched_it(tmp_path: Path) -> None:
    op = {
        "ph": "X", "cat": "cpu_op", "name": "record_param_comms", "pid": 100, "tid": 1, "ts": 1,
        "dur": 2, "args": {"External id": 5, **metadata("allreduce", 8, 3)},
    }  # fmt: skip
    known = kernel("ncclKernel_AllReduce_RING_LL_Sum_float(args)", 2, 5, NCCL, **{"External id": 5})
    silent = kernel("ncclDevKernel_SendRecv(args)", 9, 5, NCCL, **{"External id": 6})
    found = read(write(tmp_path / "r.json", [op, known, silent]))
    first, second = (e.call for e in found.communication)
    assert first is not None
    assert second is not None
    assert (first.operation, first.nbytes, first.sequence) == ("all_reduce", 32, 3)
    assert (second.operation, second.nbytes) == ("send_recv", None)
    assert any("do not say what they carry" in note for note in found.notes)


def test_batched_messages_are_those_asked_for_before_the_launch(tmp_path: Path) -> None:
    def ask(name: str, start: float, identity: int, **args: Any) -> Any:
        said = metadata(name, 256, 1) | args | {"External id": identity}
        return {"ph": "X", "cat": "cpu_op", "name": "record_param_comms", "pid": 100, "tid": 1,
                "ts": start, "dur": 1, "args": said}  # fmt: skip

    events = [
        ask("send", 1, 11, **{"Dst Rank": 1}), ask("recv", 2, 12, **{"Src Rank": 1}),
        runtime("cudaLaunchKernelExC", 5, 1, 3),
        kernel("ncclDevKernel_SendRecv(args)", 8, 20, NCCL, 3, **{"External id": 13}),
        ask("send", 9, 14, **{"Dst Rank": 1}),  # after the launch: of the next kernel
    ]  # fmt: skip
    found = read(write(tmp_path / "r.json", events))
    calls = [e.call for e in found.communication]
    assert [(c.operation, c.peer, c.nbytes) for c in calls if c] == [
        ("send", 1, 1024), ("recv", 1, 1024),
    ]  # fmt: skip
    for event in found.communication:
        assert (event.start, event.end) == (pytest.approx(7e-6), pytest.approx(27e-6))


def test_ranks_of_large_groups_are_completed_by_their_stride(tmp_path: Path) -> None:
    args: dict[str, Any] = metadata("allreduce", 8, 1, group="dp")
    args |= {"Process Group Ranks": "[1, 9, ..., 25]", "Group size": 4, "Global rank start": 1,
             "Global rank stride": 8}  # fmt: skip
    events = [kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(args)", 0, 5, NCCL, **args)]
    assert read(write(tmp_path / "r.json", events)).groups["dp"].ranks == (1, 9, 17, 25)


def test_packed_and_plain_arrays_are_read(tmp_path: Path) -> None:
    plain = read(write(tmp_path / "r.json", step()))
    packed = tmp_path / "r.json.gz"
    packed.write_bytes(gzip.compress((tmp_path / "r.json").read_bytes()))
    assert read(packed).events == plain.events
    array = tmp_path / "rank_1.json"
    array.write_text(json.dumps(step()))
    found = read(array)
    assert (found.rank, len(found.events)) == (1, len(plain.events))
    assert any("its name says rank 1" in note for note in found.notes)


def test_gloo_leaves_only_ops_of_threads(tmp_path: Path) -> None:
    def op(
        name: str, tid: int, start: float, end: float, category: str = "cpu_op", **args: Any
    ) -> Any:
        return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": tid, "ts": start,
                "dur": end - start, "args": args}  # fmt: skip

    shapes = {"Input Dims": [[[1024]], [], [], [], []], "Input type": ["TensorList"]}
    events = [
        op("aten::mm", 1, 0, 100), op("aten::copy_", 1, 20, 50),
        op("c10d::allreduce_", 1, 110, 120, **shapes,
           **{"Concrete Inputs": ["", "", "", "", "False", "-1"]}),
        op("gloo:all_reduce", 2, 115, 400, "user_annotation", **{"Input type": ["float"]}),
        op("aten::add_", 1, 390, 430),
    ]  # fmt: skip
    found = read(write(tmp_path / "r.json", events))
    (reduce,) = found.communication
    assert reduce.call is not None
    assert (reduce.call.operation, reduce.call.nbytes, reduce.call.blocking) == (
        "all_reduce", 4096, True,
    )  # fmt: skip
    # The thread went on at 390: by then the operation was over, whatever its worker noted.
    assert (reduce.start, reduce.end) == (pytest.approx(115e-6), pytest.approx(390e-6))
    names = [e.name for e in found.events if e.stream == "thread 1"]
    assert names == ["aten::mm", "c10d::allreduce_", "wait", "aten::add_"]
    # A shorter all_reduce lets what waits for it begin earlier, and nothing else.
    assert replay(join([found])).duration == pytest.approx(430e-6)


def test_several_ranks_in_one_file(tmp_path: Path) -> None:
    events: list[Any] = []
    for rank in (0, 1):
        events.append({"ph": "M", "pid": rank, "tid": 0, "name": "process_name",
                       "args": {"name": f"rank {rank} (node 0)"}})  # fmt: skip
        each = kernel(
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 1, 2, **metadata("allreduce", 4, 1)
        )
        events.append(each | {"pid": rank})
    found = Kineto().recordings(write(tmp_path / "t.json", events))
    assert [r.rank for r in found] == [0, 1]
    (operation,) = join(found).operations
    assert set(operation.starts) == {0, 1}


# ---- bad files ----


def test_a_truncated_file_says_so(tmp_path: Path) -> None:
    text = write(tmp_path / "whole.json", step()).read_text()
    cut = tmp_path / "cut.json"
    for length in range(200, len(text), 97):
        cut.write_text(text[:length])
        with pytest.raises(SpecError) as caught:
            read(cut)
        assert str(cut) in str(caught.value)
        assert "line 1, column" in str(caught.value)
    cut.write_text(text[: len(text) // 2])
    with pytest.raises(SpecError, match="truncated"):
        read(cut)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("hello", "no known trace"),
        ('{"a": 1}', "no known trace"),
        ('{"traceEvents": []}', "0 trace events, none of them a kernel"),
        ('{"traceEvents": {"a": 1}}', "none of them a kernel"),
        ('{"traceEvents": [1, 2]}', r"traceEvents\[0\]: expected an object"),
        ('{"traceEvents": [{"ph": "X", "cat": "kernel"}]}', r"traceEvents\[0\]: expected a name"),
        ('{"traceEvents": [{"ph": "X" "cat": 1, "a": 2}]}', "line 1, column 29"),
        ('{"traceEvents": [nul, {"a": 1}]}', "line 1, column 18"),
    ],
)
def test_foreign_files_are_refused_with_the_place(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(SpecError, match=said):
        read_recordings([path])


def test_a_truncated_packed_file_says_so(tmp_path: Path) -> None:
    events = [kernel(f"kernel_{i}", i, 1) for i in range(3000)]
    data = gzip.compress(write(tmp_path / "r.json", events).read_bytes())
    path = tmp_path / "r.json.gz"
    for length in (12, len(data) // 2, len(data) - 4):
        path.write_bytes(data[:length])
        with pytest.raises(SpecError, match=r"r\.json\.gz: gzip: .*; expected a whole \.gz file"):
            read_recordings([path])


def test_progress_tells_bytes(tmp_path: Path) -> None:
    path = write(tmp_path / "r.json", [kernel("k" * 5000, 10 * i, 5) for i in range(700)])
    told: list[tuple[int, int]] = []
    Kineto().recordings(path, lambda done, of: told.append((done, of)))
    assert len(told) >= 3
    assert told == sorted(told)
    assert told[-1][0] <= told[-1][1] == path.stat().st_size


def test_the_format_is_recognised_by_its_beginning(tmp_path: Path) -> None:
    assert recognised(write(tmp_path / "r.json", step())) == Kineto()


def test_values_far_apart_in_a_large_file(tmp_path: Path) -> None:
    """Elements that cross the border of what is read at a time are whole."""
    events = [kernel("k" * 5000, 10 * i, 5) for i in range(700)]  # 3.5 MB
    found = read(write(tmp_path / "r.json", events))
    assert len(found.events) == 700
    assert {len(e.name) for e in found.events} == {5000}
    assert trace([])["traceEvents"] == []
    assert runtime("a", 1, 2)["cat"] == "cuda_runtime"
